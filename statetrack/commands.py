"""The commands that check claims and draw figures; `cli.py` puts them beside the others.

Main definitions: `verify`, `figure`.
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any

import typer

from statetrack.errors import InvalidInput
from statetrack.printing import progress_line, say_rows

if TYPE_CHECKING:
    from statetrack.proofs_check.runner import Verdicts

Json = Annotated[bool, typer.Option("--json", help="Print one JSON list instead of a table.")]


def verify(
    ids: Annotated[list[str] | None, typer.Argument(help="Claims by id, * and ? allowed (default: all).")] = None,
    budget: Annotated[str, typer.Option(help="fast, full or thorough.")] = "fast",
    controls: Annotated[bool, typer.Option("--controls", help="Run the negative controls: each must refute.")] = False,
    kernels: Annotated[str | None, typer.Option(help="Run constructions through the kernels too: cpu or cuda.")] = None,
    html: Annotated[Path | None, typer.Option(help="Write the report as a folder of web pages.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of the random inputs.")] = 0,
    jobs: Annotated[int, typer.Option(min=1, help="Processes.")] = 2,
    listed: Annotated[bool, typer.Option("--list", help="Only list the claims.")] = False,
    as_json: Json = False,
) -> None:
    """Check every claim of the papers, or those named; exit code 1 if one is refuted."""
    from statetrack.proofs_check import runner

    if listed:
        rows = [{"id": c.id, "kinds": " ".join(c.kinds), "statement": c.statement} for c in runner.select(ids or ["*"])]
        say_rows(rows, as_json)
        return
    if controls and html is not None:
        raise InvalidInput("verify: --html is the report of the claims; leave out --controls")
    wanted = ids or ["*"]
    with progress_line("claims", len(runner.select(wanted))) as update:
        found = runner.verify(
            wanted, budget=budget, seed=seed, kernels=kernels, controls=controls, jobs=jobs, progress=update
        )
    rows = [
        {
            "id": v.id,
            "verdict": v.verdict,
            "kinds": " ".join(v.kinds),
            "seconds": v.seconds,
            "detail": v.detail,
        }
        | ({"sizes": v.sizes, "notes": list(v.notes), "seed": v.seed} if as_json else {})
        for v in found
    ]
    say_rows(rows, as_json)
    if html is not None:
        _write_report(html, found, runner.verify(wanted, budget=budget, seed=seed, controls=True, jobs=jobs))
    if any((v.verdict != "refuted") if controls else (v.verdict in ("refuted", "error")) for v in found):
        raise typer.Exit(1)


def figure(
    name: Annotated[str | None, typer.Argument(help="Which picture; --list names them.")] = None,
    file: Annotated[Path | None, typer.Argument(help="Weights file, for pictures of one.")] = None,
    measured: Annotated[
        Path | None, typer.Option("--from", help="Measurements: JSON lines, results.json, runs.")
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="All that need no file.")] = False,
    formats: Annotated[str, typer.Option("--format", help="svg, pdf, png, several apart by commas.")] = "svg",
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder to write to.")] = Path("pictures"),
    listed: Annotated[bool, typer.Option("--list", help="Only list the pictures.")] = False,
    as_json: Json = False,
) -> None:
    """Draw a picture from computed data; the data are saved beside it as JSON."""
    from statetrack import api
    from statetrack.figures.gallery import FIGURES, OF_FILES, OF_MEASUREMENTS, OF_RUNS, draw

    of_data = OF_MEASUREMENTS | OF_RUNS
    if listed or (name is None and not every):
        rows: list[dict[str, Any]] = [{"name": key, "what": what} for key, (what, _) in FIGURES.items()]
        rows += [{"name": f"{key} FILE", "what": what} for key, (what, _) in OF_FILES.items()]
        rows += [{"name": f"{key} --from FILE", "what": what} for key, (what, _) in of_data.items()]
        say_rows(rows, as_json)
        return
    known = [*FIGURES, *OF_FILES, *of_data]
    if name is not None and name not in known:
        raise InvalidInput(f"figure {name!r}: know {', '.join(known)}")
    if (file is None) == (name in OF_FILES):
        raise InvalidInput(f"figure {name}: " + ("give the weights file to draw" if file is None else "takes no file"))
    if (measured is None) == (name in of_data):
        raise InvalidInput(f"figure {name}: " + ("give --from FILE" if measured is None else "takes no --from"))
    weights = None if file is None else api.load(file)
    kinds = [kind.strip() for kind in formats.split(",")]
    names = list(FIGURES) if every else [str(name)]
    with progress_line("figures", len(names)) as update:
        rows = []
        for done, key in enumerate(names, 1):
            rows += [{"name": key, "file": str(path)} for path in draw(key, output, kinds, weights, measured)]
            if update is not None:
                update(done)
    say_rows(rows, as_json)


def _write_report(folder: Path, found: Verdicts, controls: Verdicts) -> None:
    """The report, with the pictures that its claims name."""
    from statetrack.figures.gallery import pictures_of
    from statetrack.proofs_check.report import write_report

    with TemporaryDirectory() as drawn:
        pictures = pictures_of((verdict.id for verdict in found), Path(drawn))
        write_report(found, folder, controls=controls, figures=pictures)
