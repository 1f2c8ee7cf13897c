"""All pictures by name.

Main definitions: `FIGURES`, `OF_FILES`, `OF_MEASUREMENTS`, `OF_RUNS`, `draw`, `pictures_of`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from statetrack.constructions.weights import Weights
from statetrack.errors import InvalidFile, InvalidInput
from statetrack.proofs_check.report import Picture
from statetrack.proofs_check.runner import claims

from . import atlas_picture, axes, cascades, programs, spectra
from .learned import OF_ANSWERS, Learned, read_runs
from .measured import OF_MEASUREMENTS, read_measurements
from .sounds import OF_SOUNDS
from .texts import OF_TEXTS

KINDS = ("svg", "pdf", "png")
FIGURES: dict[str, tuple[str, Callable[[Path], None]]] = {
    **{name: (function.__doc__ or name, function) for name, function in spectra.FIGURES.items()},
    "cube": ("the axes of the turned cube and the coordinate planes", axes.draw_cube),
    "icosahedron": ("the icosahedron's 16 axes, and why no plane holds five", axes.draw_icosahedron),
    "quaternions": ("what the quaternion tracker of A5 reaches", axes.draw_quaternions),
    "atlas": ("which groups of order up to 60 one layer tracks", atlas_picture.draw_atlas),
    "cascade": ("a cascade as a tree: what its components read and do", cascades.draw_example),
    "clock": ("a clock's states and readouts", programs.draw_clock),
}
# As PNG: thousands of points as SVG are megabytes.
_DENSE = ("spectra", "regions")
# Pictures of a weights file.
OF_FILES: dict[str, tuple[str, Callable[[Path, Weights], None]]] = {
    "spectrum": ("eigenvalues of the transitions in a weights file", programs.draw_spectrum),
    "states": ("exact states that a program's last head reaches", programs.draw_states),
}
# Pictures of trained models.
OF_RUNS: dict[str, tuple[str, Callable[[Path, Learned], None]]] = {**OF_ANSWERS, **OF_SOUNDS, **OF_TEXTS}


def draw(
    name: str, folder: Path, kinds: Sequence[str], weights: Weights | None = None, measured: Path | None = None
) -> tuple[Path, ...]:
    """Write a picture in each format, with its data as JSON beside it; returns the pictures' paths.

    `weights` for a picture of a weights file, `measured` for one of measurements (JSON lines) or of trained models.
    """
    wrong = [kind for kind in kinds if kind not in KINDS]
    if wrong or not kinds:
        raise InvalidInput(f"format {', '.join(wrong) or 'none'}: know {', '.join(KINDS)}")
    if folder.suffix.lower().removeprefix(".") in KINDS and not folder.is_dir():
        raise InvalidInput(f"folder {folder}: the name of a picture; give the folder to write {name}.{kinds[0]} to")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidFile(str(folder), f"cannot be made ({error.strerror})", "give a folder to write to") from None
    paths = tuple(folder / f"{name}.{kind}" for kind in kinds)
    for path in paths:
        if name in OF_MEASUREMENTS or name in OF_RUNS:
            if measured is None:
                raise InvalidInput(f"figure {name}: give the measurements to draw with --from FILE")
            if name in OF_RUNS:
                OF_RUNS[name][1](path, read_runs(measured))
            else:
                OF_MEASUREMENTS[name][1](path, read_measurements(measured))
        elif name in OF_FILES:
            if weights is None:
                raise InvalidInput(f"figure {name}: give the weights file to draw")
            OF_FILES[name][1](path, weights)
        else:
            FIGURES[name][1](path)
    return paths


def pictures_of(ids: Iterable[str], folder: Path) -> dict[str, Picture]:
    """The pictures that claims name, drawn into the folder: for each id of a claim with one, its file and caption."""
    known, found = claims(), dict[str, Picture]()
    drawn: dict[str, Path] = {}
    for name in ids:
        wanted = known[name].figure
        if wanted is None:
            continue
        if wanted not in drawn:
            (drawn[wanted],) = draw(wanted, folder, ["png" if wanted in _DENSE else "svg"])
        found[name] = Picture(drawn[wanted], _sentence(FIGURES[wanted][0]))
    return found


def _sentence(words: str) -> str:
    return words[0].upper() + words[1:].rstrip(".") + "."
