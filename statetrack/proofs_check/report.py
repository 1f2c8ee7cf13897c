"""Verdicts as a static site: an index with a filter, and a page for each claim with its check and its evidence.

The site needs no server and no network: it opens from a folder. Its one script filters the index; without scripts
everything but the filter is there.

Main definitions: `write_report`, `Picture`, `cell`.

References: `claim.py` for what a claim is, `runner.py` for verdicts, docs/certificate.md for certificates.
"""

from __future__ import annotations

import ast
import inspect
import json
import shutil
import textwrap
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers.python import PythonLexer  # pyright: ignore[reportMissingTypeStubs]

from statetrack.errors import InvalidInput

from .atlas_table import atlas_rows, counts
from .claim import KINDS, Claim
from .runner import Verdict, claims

# Each verdict in words; "refuted" of a negative control is said differently.
MEANINGS: Mapping[str, str] = {
    "proved": "the check, with the argument in its docstring or the named document, proves the statement",
    "supported": "the check found no counterexample and everything it constructed was right; it is no full proof",
    "cited-lemma-needed": "the finite part is checked; the proof also takes a lemma from the literature",
    "refuted": "the check found the statement false",
    "error": "the check itself failed, so nothing is known",
}
# The style whose colours all have a contrast of more than 5 on white.
_STYLE = "xcode"
# Stands in every page, so that a report can be told from other files.
_MARK = '<meta name="generator" content="statetrack">'


@dataclass(frozen=True)
class Attached:
    """A certificate on the site: its file name, and what it is."""

    file: str
    kind: str
    target: str
    digest: str
    size: str


@dataclass(frozen=True)
class Picture:
    """A picture for a claim's page: its file, and what it shows in words."""

    path: Path
    caption: str


def write_report(
    verdicts: Iterable[Verdict],
    folder: str | Path,
    *,
    controls: Iterable[Verdict] = (),
    figures: Mapping[str, Picture] | None = None,
) -> Path:
    """Write the site of some verdicts and return the path of its index; files of an earlier report are replaced.

    Args:
        verdicts: one a claim, as `runner.verify` returns them.
        folder: made if it is not there.
        controls: verdicts of negative controls (`verify(controls=True)`), shown on their claims' pages.
        figures: pictures by claim id; each file is copied into the site once.

    Raises:
        InvalidInput: a verdict or a figure of no claim, two verdicts of one, or a folder that holds something else.
    """
    found, known = tuple(verdicts), claims()
    broken = {verdict.id: verdict for verdict in controls}
    pictures = figures or {}
    _refuse(found, known, [*broken, *pictures])
    root = Path(folder)
    _refuse_folder(root)
    for name in ("claims", "certificates", "figures"):
        shutil.rmtree(root / name, ignore_errors=True)
        (root / name).mkdir(parents=True)
    pages, files = _templates(), _copied(pictures, root / "figures")
    atlas = next((files[one.id] for one in found if known[one.id].figure == "atlas" and one.id in files), None)
    picture = None if atlas is None else f"figures/{atlas}"
    _write_index(pages, root, [(known[one.id], one, broken.get(one.id)) for one in found], picture)
    for i, verdict in enumerate(found):
        facts = _facts(known[verdict.id], verdict, broken.get(verdict.id))
        facts["before"] = found[i - 1].id if i else None
        facts["next"] = found[i + 1].id if i + 1 < len(found) else None
        facts["certificates"] = _attach(verdict, root / "certificates")
        facts["figure"] = files.get(verdict.id)
        facts["caption"] = pictures[verdict.id].caption if verdict.id in pictures else None
        _write(root / "claims" / f"{verdict.id}.html", pages.get_template("claim.html").render(facts))
    return root / "index.html"


def cell(verdicts: Sequence[Verdict]) -> str:
    """Some verdicts as HTML for a notebook: one with its evidence, several as a table."""
    known = claims()
    facts = {"rows": [(known.get(one.id), one) for one in verdicts], "meanings": MEANINGS, "kinds": KINDS}
    facts |= {"counts": _counts(verdicts), "sizes": _sizes}
    return _templates().get_template("cell.html").render(facts)


def _templates() -> Environment:
    return Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates", encoding="utf-8"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _write_index(
    pages: Environment, root: Path, rows: Sequence[tuple[Claim, Verdict, Verdict | None]], picture: str | None
) -> None:
    """The index, and what all pages share."""
    facts: dict[str, Any] = {
        "rows": rows,
        "kinds": KINDS,
        "meanings": MEANINGS,
        "counts": _counts(verdict for _, verdict, _ in rows),
        "controls": _counts(control for _, _, control in rows if control is not None),
        "sizes": _sizes,
    }
    _write(root / "index.html", pages.get_template("index.html").render(facts))
    atlas = {"rows": atlas_rows(), "counts": counts(), "picture": picture}
    _write(root / "atlas.html", pages.get_template("atlas.html").render(atlas))
    formatter = _formatter()
    colours = str(formatter.get_style_defs(".code"))  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType]
    _write(root / "style.css", pages.get_template("style.css").render() + "\n" + colours + "\n")
    _write(root / "filter.js", pages.get_template("filter.js").render() + "\n")


def _refuse(found: Sequence[Verdict], known: Mapping[str, Claim], others: Iterable[str]) -> None:
    names = Counter(verdict.id for verdict in found)
    foreign = sorted({*names, *others} - {*known})
    if foreign:
        raise InvalidInput(f"report: no claim is called {', '.join(foreign)}; 'statetrack verify --list' names all")
    twice = [name for name, count in names.items() if count > 1]
    if twice:
        raise InvalidInput(f"report: more than one verdict of {', '.join(twice)}; give one for each claim")


def _refuse_folder(root: Path) -> None:
    """Files are replaced only where an earlier report lies."""
    if root.exists() and not root.is_dir():
        raise InvalidInput(f"folder {root}: is a file; give the name of a folder")
    index = root / "index.html"
    ours = index.is_file() and _MARK in index.read_text(encoding="utf-8", errors="replace")
    if root.exists() and any(root.iterdir()) and not ours:
        raise InvalidInput(f"folder {root}: holds files that are no report; give a new or empty folder")


def _facts(one: Claim, verdict: Verdict, control: Verdict | None) -> dict[str, Any]:
    """What a claim's page shows, but for files."""
    return {
        "claim": one,
        "verdict": verdict,
        "meaning": MEANINGS[verdict.verdict],
        "kinds": {letter: KINDS[letter] for letter in one.kinds},
        "argument": _paragraphs(inspect.getdoc(one.check) or ""),
        "code": highlight(_source(one), PythonLexer(), _formatter()),
        "module": one.check.__module__,
        "control": control,
        "broken": ", ".join(f"{name} = {value!r}" for name, value in one.control.items()),
        "data": {name: _shown(value) for name, value in verdict.data.items()},
    }


def _formatter() -> HtmlFormatter[str]:
    return HtmlFormatter(style=_STYLE, nowrap=True)


def _source(one: Claim) -> str:
    """The check's source without decorators and docstring, which the page shows in words."""
    text = textwrap.dedent(inspect.getsource(one.check))
    tree = ast.parse(text).body[0]
    if not isinstance(tree, ast.FunctionDef):
        return text
    lines = text.splitlines()
    first = tree.body[0]
    if ast.get_docstring(tree) is not None and len(tree.body) > 1:
        del lines[first.lineno - 1 : first.end_lineno]
    return "\n".join(lines[tree.lineno - 1 :])


def _paragraphs(text: str) -> list[str]:
    return [" ".join(part.split()) for part in textwrap.dedent(text).split("\n\n") if part.strip()]


def _shown(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 2_000 else text[:2_000] + " ..."


def _attach(verdict: Verdict, folder: Path) -> list[Attached]:
    """Write a verdict's certificates, the bytes that their digest is about among them."""
    found: list[Attached] = []
    for number, data in enumerate(verdict.certificates, 1):
        text = json.dumps(data, separators=(",", ":"), ensure_ascii=True) + "\n"
        file = f"{verdict.id}-{number}.json"
        _write(folder / file, text)
        kilobytes = f"{len(text) / 1000:.1f} kB"
        found.append(Attached(file, str(data["kind"]), str(data["range"]["target"]), str(data["digest"]), kilobytes))
    return found


def _copied(pictures: Mapping[str, Picture], folder: Path) -> dict[str, str]:
    """Copy each picture once; returns the file's name by claim id, the name of the first claim that shows it."""
    files: dict[Path, str] = {}
    for name, picture in pictures.items():
        if picture.path not in files:
            files[picture.path] = f"{name}{picture.path.suffix}"
            shutil.copyfile(picture.path, folder / files[picture.path])
    return {name: files[picture.path] for name, picture in pictures.items()}


def _counts(verdicts: Iterable[Verdict]) -> dict[str, int]:
    """How many of each verdict, in the order of `MEANINGS`."""
    found = Counter(verdict.verdict for verdict in verdicts)
    return {name: found[name] for name in MEANINGS if found[name]}


def _sizes(sizes: Mapping[str, int]) -> str:
    return ", ".join(f"{count:,} {name}" for name, count in sizes.items())


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8", newline="\n")
