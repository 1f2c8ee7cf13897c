"""The notebooks run as they stand and say what they said; the images of the documents are there and small."""

from __future__ import annotations

import doctest
import re
from pathlib import Path
from typing import Any

import nbformat
import pytest
from matplotlib.image import imread  # pyright: ignore[reportUnknownVariableType]
from nbclient import NotebookClient

ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))
IMAGES = sorted((ROOT / "docs" / "images").glob("*.png"))
WORDS = (ROOT / "README.md", *(ROOT / "docs").glob("*.md"))


def read(path: Path) -> Any:
    library: Any = nbformat
    return library.read(path, as_version=4)


def said(book: Any) -> list[list[str]]:
    """What each cell of code printed and returned as plain text; measured seconds are in HTML only."""
    cells = [cell["outputs"] for cell in book["cells"] if cell["cell_type"] == "code"]
    # What a cell prints comes in as many pieces as the kernel happened to send.
    printed = ["".join(x["text"] for x in cell if x["output_type"] == "stream") for cell in cells]
    returned = [[x["data"]["text/plain"] for x in cell if "data" in x] for cell in cells]
    return [[one, *more] for one, more in zip(printed, returned, strict=True)]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_and_says_what_is_stored(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # A reader's kernel does not run Triton's interpreter, which the kernels' tests ask for by this variable.
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    stored, again = read(path), read(path)
    NotebookClient(again, timeout=120, kernel_name="python3").execute()
    assert said(again) == said(stored)
    kinds = [sorted(x["data"]) for cell in again["cells"] for x in cell.get("outputs", ()) if "data" in x]
    assert kinds == [sorted(x["data"]) for cell in stored["cells"] for x in cell.get("outputs", ()) if "data" in x]


def test_there_is_a_notebook_for_each_job_valid_small_and_of_no_machine() -> None:
    assert [path.stem for path in NOTEBOOKS] == ["build", "figure", "verify"]
    for path in NOTEBOOKS:
        text = path.read_text(encoding="utf-8")
        nbformat.validate(read(path))  # pyright: ignore[reportUnknownMemberType]
        assert len(text) < 100_000
        assert not re.search(r"(?<![\w.])/(work|root|home|tmp)/\w|0x[0-9a-f]{6}|Traceback", text)
        counts = [cell["execution_count"] for cell in read(path)["cells"] if cell["cell_type"] == "code"]
        assert counts == [*range(1, len(counts) + 1)]


def test_the_examples_in_the_documents_say_what_they_say() -> None:
    found = [path for path in WORDS if ">>> " in path.read_text(encoding="utf-8")]
    assert ROOT / "docs" / "precision.md" in found
    for path in found:
        done = doctest.testfile(str(path), module_relative=False, encoding="utf-8")
        assert done.attempted > 5
        assert done.failed == 0, path


@pytest.mark.parametrize("path", IMAGES, ids=lambda path: path.name)
def test_an_image_is_small_not_blank_and_shown_somewhere(path: Path) -> None:
    assert path.stat().st_size < 300_000
    picture: Any = imread(str(path))
    height, width = picture.shape[:2]
    assert width >= 800
    assert height >= 400
    grey = picture[..., :3].mean(axis=-1)
    assert (grey < 0.4).mean() > 0.005
    assert (grey > 0.9).mean() > 0.4
    texts = [words.read_text(encoding="utf-8") for words in WORDS]
    shown = [name for text in texts for name in re.findall(r"!\[[^\]]+\]\(([^)]+)\)", text)]
    assert any(name.endswith(f"images/{path.name}") for name in shown)


def test_images_and_notebooks_that_the_documents_name_are_there() -> None:
    for words in WORDS:
        for name in re.findall(r"\]\(([^)#:]+\.(?:png|ipynb))\)", words.read_text(encoding="utf-8")):
            assert (words.parent / name).is_file(), (words.name, name)
    readme = WORDS[0].read_text(encoding="utf-8")
    commands = (ROOT / "docs" / "images" / "README.md").read_text(encoding="utf-8")
    assert all(re.search(rf"\b{path.stem}\b", commands) for path in IMAGES)
    assert all(f"docs/notebooks/{path.name}" in readme for path in NOTEBOOKS)
    assert [path.stem for path in IMAGES] == [
        "bounds",
        "learn-curves",
        "learn-sounds",
        "learn-spectra",
        "orders",
        "report-claim",
        "report-table",
        "survival",
    ]
