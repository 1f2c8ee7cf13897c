"""The site of verdicts: valid and accessible pages, links that lead somewhere, certificates that check."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import html5lib
import pytest
from matplotlib.image import imread  # pyright: ignore[reportUnknownVariableType]

from statetrack.errors import InvalidInput
from statetrack.proofs_check import networks
from statetrack.proofs_check.report import Picture, write_report
from statetrack.proofs_check.runner import Verdict, verify

NAMES = ("OURS-nilpotent-window", "OURS-single-factor", "ERRATA-M7", "CKDA-layers-compared")
# 1 by 1 pixels.
PICTURE = '<svg xmlns="http://www.w3.org/2000/svg" width="1" height="1"></svg>'
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome-headless-shell")


@pytest.fixture(scope="module")
def verdicts() -> tuple[Verdict, ...]:
    wrong = 'got <script>alert("1")</script> & more'
    return tuple(
        replace(one, verdict="refuted", detail=wrong, notes=("a < b",)) if one.id == NAMES[1] else one
        for one in verify(NAMES)
    )


@pytest.fixture(scope="module")
def site(verdicts: tuple[Verdict, ...], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    picture = folder / "picture.svg"
    picture.write_text(PICTURE)
    shown = {NAMES[0]: Picture(picture, 'A "window" & <more>.'), NAMES[3]: Picture(picture, "The same again.")}
    index = write_report(verdicts, folder / "report", controls=verify(NAMES[:3], controls=True), figures=shown)
    assert index == folder / "report" / "index.html"
    return index.parent


class Page(HTMLParser):
    """Tags with their attributes in order, and the text inside each element that is looked at."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str]]] = []
        self.texts: dict[str, list[str]] = {"a": [], "h1": [], "th": [], "title": [], "label": [], "caption": []}
        self._open: list[str] = []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, {name: value or "" for name, value in attrs}))
        if tag in self.texts:
            self.texts[tag].append("")
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if self._open and self._open[-1] == tag:
            self._open.pop()

    def handle_data(self, data: str) -> None:
        for tag in self._open:
            self.texts[tag][-1] += data

    def all(self, tag: str) -> list[dict[str, str]]:
        return [attributes for name, attributes in self.tags if name == tag]


def parse_strictly(path: Path) -> None:
    """Raises for the first thing in the file that HTML 5 does not allow."""
    html5lib.HTMLParser(strict=True).parse(path.read_text(encoding="utf-8"))  # pyright: ignore[reportUnknownMemberType]


def pages(site: Path) -> list[Path]:
    found = sorted(site.rglob("*.html"))
    assert len(found) == 2 + len(NAMES)
    return found


def test_every_page_is_valid_html(site: Path) -> None:
    for path in pages(site):
        parse_strictly(path)


def test_links_lead_to_files_of_the_site_and_nothing_needs_a_network(site: Path) -> None:
    for path in pages(site):
        page = Page(path)
        ids = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
        assert len(set(ids)) == len(ids)
        for _, attributes in page.tags:
            for name in ("href", "src"):
                target = unquote(attributes.get(name, "data:,"))
                assert "://" not in target
                if target.startswith("#"):
                    assert target[1:] in ids
                elif target != "data:,":
                    assert (path.parent / target).resolve().is_file(), target
                    assert site.resolve() in (path.parent / target).resolve().parents
    script = (site / "filter.js").read_text()
    assert not re.search(r"https?:|fetch|XMLHttp|import\(", script + (site / "style.css").read_text())


def test_pages_can_be_read_by_everyone(site: Path) -> None:
    for path in pages(site):
        page = Page(path)
        assert page.all("html")[0]["lang"] == "en-GB"
        assert len(page.all("title")) == len(page.all("h1")) == len(page.all("main")) == 1
        levels = [int(tag[1]) for tag, _ in page.tags if re.fullmatch(r"h[1-6]", tag)]
        assert levels[0] == 1
        assert all(b <= a + 1 for a, b in pairwise(levels))
        assert all(text.strip() for texts in page.texts.values() for text in texts)
        labels = {attributes["for"] for attributes in page.all("label")}
        assert labels == {attributes["id"] for tag in ("input", "select") for attributes in page.all(tag)}
        assert all(attributes.get("alt") for attributes in page.all("img"))
        assert all(attributes["scope"] in ("col", "row") for attributes in page.all("th"))
        scrolled = [attributes for _, attributes in page.tags if "tabindex" in attributes]
        assert all(a["role"] == "region" and ("aria-label" in a or "aria-labelledby" in a) for a in scrolled)


def luminance(colour: str) -> float:
    digits = "".join(2 * x for x in colour[1:]) if len(colour) == 4 else colour[1:]
    parts = (int(digits[i : i + 2], 16) / 255 for i in (0, 2, 4))
    linear = [x / 12.92 if x <= 0.03928 else ((x + 0.055) / 1.055) ** 2.4 for x in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_every_colour_of_text_has_enough_contrast(site: Path) -> None:
    style = (site / "style.css").read_text()
    rules = re.findall(r"([^{}]+)\{([^{}]*)\}", style)
    assert len(rules) > 40
    for name, body in rules:
        colour = re.search(r"(?:^|[; ])color: (#[0-9a-fA-F]{3,6})\b", body)
        ground = re.search(r"background(?:-color)?: (#[0-9a-fA-F]{3,6})\b", body)
        if colour and "linenos" not in name:
            for below in (ground[1],) if ground else ("#fff", "#f4f6f8"):
                dark, light = sorted((luminance(colour[1]), luminance(below)))
                assert (light + 0.05) / (dark + 0.05) >= 4.5, (name, colour[1], below)


def test_certificates_on_the_site_are_accepted_under_the_digest_that_the_page_shows(site: Path) -> None:
    files = sorted((site / "certificates").iterdir())
    assert len(files) == 3 + 5
    for file in files:
        page = (site / "claims" / f"{file.stem.rsplit('-', 1)[0]}.html").read_text(encoding="utf-8")
        shown = re.search(rf'certificates/{re.escape(file.name)}".*?([0-9a-f]{{64}})', page, re.DOTALL)
        assert shown
        networks.verify(file.read_text(), shown[1])


def test_a_page_shows_the_statement_the_check_its_evidence_and_its_control(site: Path) -> None:
    text = re.sub(r"<[^>]*>", "", (site / "claims" / "OURS-nilpotent-window.html").read_text(encoding="utf-8"))
    for wanted in (
        "keeps exactly the last two tokens",
        "β ≥ 0",
        "closure: all lengths",
        "def nilpotent_windows",
        "138",
    ):
        assert wanted in text
    assert "last_gate = 1" in text
    assert "Verdict: refuted" in text
    assert "@claim" not in text
    assert (site / "figures" / "OURS-nilpotent-window.svg").read_text() == PICTURE
    assert 'A "window" &amp; &lt;more&gt;.' in text.replace("&#34;", '"')
    other = (site / "claims" / "CKDA-layers-compared.html").read_text(encoding="utf-8")
    assert 'src="../figures/OURS-nilpotent-window.svg" alt="Picture for CKDA-layers-compared: The same again."' in other
    assert [path.name for path in (site / "figures").iterdir()] == ["OURS-nilpotent-window.svg"]
    assert "It was not run for this report" in other
    assert "largest number after 40 blocks" in (site / "claims" / "ERRATA-M7.html").read_text(encoding="utf-8")


def test_texts_are_escaped_and_a_refutation_is_shown(site: Path) -> None:
    text = (site / "claims" / "OURS-single-factor.html").read_text(encoding="utf-8")
    assert "<script>" not in text
    assert "got &lt;script&gt;" in text
    assert "a &lt; b" in text
    index = (site / "index.html").read_text(encoding="utf-8")
    assert re.search(r'<tr data-verdict="refuted">\s*<th scope="row"><a href="claims/OURS-single-factor.html">', index)


def test_a_second_report_replaces_the_first(verdicts: tuple[Verdict, ...], tmp_path: Path) -> None:
    write_report(verdicts, tmp_path)
    assert (tmp_path / "certificates" / "OURS-nilpotent-window-1.json").is_file()
    before = (tmp_path / "certificates" / "CKDA-layers-compared-1.json").read_bytes()
    write_report([one for one in verdicts if one.id != NAMES[0]], tmp_path)
    assert not (tmp_path / "claims" / "OURS-nilpotent-window.html").exists()
    assert not list((tmp_path / "certificates").glob("OURS-nilpotent-window*"))
    assert (tmp_path / "certificates" / "CKDA-layers-compared-1.json").read_bytes() == before


def test_an_empty_report_is_a_page_too(tmp_path: Path) -> None:
    parse_strictly(write_report((), tmp_path))


def test_foreign_and_double_verdicts_and_files_in_the_way_are_refused(
    verdicts: tuple[Verdict, ...], tmp_path: Path
) -> None:
    for wrong in ((replace(verdicts[0], id="OURS-nothing"),), (verdicts[0], verdicts[0])):
        with pytest.raises(InvalidInput, match=r"no claim is called OURS-nothing|more than one verdict"):
            write_report(wrong, tmp_path / "site")
    with pytest.raises(InvalidInput, match=r"no claim is called \.\./x"):
        write_report((), tmp_path / "site", figures={"../x": Picture(tmp_path, "x")})
    assert not (tmp_path / "site").exists()
    (tmp_path / "file").touch()
    with pytest.raises(InvalidInput, match="is a file"):
        write_report(verdicts, tmp_path / "file")
    with pytest.raises(InvalidInput, match="are no report"):
        write_report(verdicts, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def browse(tmp_path: Path, page: Path, *what: str) -> subprocess.CompletedProcess[str]:
    browser = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    if browser is None:
        pytest.skip(f"no browser here: needs one of {', '.join(BROWSERS)}")
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", f"--user-data-dir={tmp_path}"]
    return subprocess.run([browser, *flags, *what, page.as_uri()], capture_output=True, text=True, timeout=60)


def test_a_browser_runs_the_filter_without_an_error(site: Path, tmp_path: Path) -> None:
    done = browse(tmp_path, site / "index.html", "--dump-dom")
    assert "CONSOLE" not in done.stderr
    assert re.search(r'<output id="shown"[^>]*>4 of 4 shown</output>', done.stdout)
    assert re.search(r'<form id="filter" role="search">', done.stdout)


@pytest.mark.parametrize("page", ["index.html", "claims/OURS-nilpotent-window.html"])
def test_a_browser_draws_the_pages_with_their_colours(site: Path, tmp_path: Path, page: str) -> None:
    drawn = tmp_path / "page.png"
    browse(tmp_path / "profile", site / page, "--hide-scrollbars", "--window-size=1200,700", f"--screenshot={drawn}")
    picture: Any = imread(str(drawn))
    assert picture.shape[:2] == (700, 1200)
    colours = {tuple(colour) for colour in (255 * picture[..., :3]).round().astype(int).reshape(-1, 3).tolist()}
    # Paper, text, links, and the ground of a verdict that is proved.
    assert {(255, 255, 255), (28, 28, 28), (11, 83, 148), (234, 246, 236)} <= colours
    # Words reach from the left to the right, and nothing is cut off at the right edge.
    dark = (picture[..., :3].mean(axis=-1) < 0.5).any(axis=0)
    assert dark[:60].any()
    assert dark[600:].any()
    assert not dark[-10:].any()
