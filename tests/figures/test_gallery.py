"""Every picture can be drawn, with its data beside it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import statetrack as st
from statetrack.errors import InvalidFile, InvalidInput
from statetrack.figures.gallery import FIGURES, OF_FILES, draw, pictures_of
from statetrack.proofs_check.runner import claims


@pytest.mark.parametrize("name", FIGURES)
def test_every_picture_is_drawn_and_keeps_its_data(name: str, tmp_path: Path) -> None:
    (path,) = draw(name, tmp_path / "new", ["svg"])
    assert path.read_text(encoding="utf-8").lstrip().startswith("<?xml")
    assert json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))


def test_the_quaternion_tracker_has_120_columns_in_four_rings_of_thirty(tmp_path: Path) -> None:
    draw("quaternions", tmp_path, ["png"])
    data = json.loads((tmp_path / "quaternions.json").read_text(encoding="utf-8"))
    assert (len(data["columns"]), data["states"]) == (120, 7200)
    radii = [round((x * x + y * y) ** 0.5, 6) for x, y in data["projected"]]
    assert sorted(radii.count(r) for r in set(radii)) == [30, 30, 30, 30]


def test_the_icosahedron_has_fifteen_planes_of_four_axes(tmp_path: Path) -> None:
    draw("icosahedron", tmp_path, ["svg"])
    data = json.loads((tmp_path / "icosahedron.json").read_text(encoding="utf-8"))
    assert [len(data["axes"][n]) for n in ("3", "5")] == [10, 6]
    assert len(data["normals"]) == 15


@pytest.mark.parametrize("name", OF_FILES)
def test_pictures_of_a_weights_file_show_its_numbers(name: str, tmp_path: Path) -> None:
    weights = st.build("Z5").weights()
    draw(name, tmp_path, ["svg"], weights)
    data = json.loads((tmp_path / f"{name}.json").read_text(encoding="utf-8"))
    if name == "spectrum":
        assert all(abs(abs(complex(*z)) - 1) < 1e-6 for z in data["layer 1"])
    else:
        assert len(data["states"]) == 5
    with pytest.raises(InvalidInput, match="give the weights file"):
        draw(name, tmp_path, ["svg"])


def test_formats_and_folders_that_cannot_be_are_one_line(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="gif"):
        draw("clock", tmp_path, ["gif"])
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidFile, match="cannot be made"):
        draw("clock", tmp_path / "file", ["svg"])


def test_the_name_of_a_picture_is_no_folder(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="give the folder to write clock"):
        draw("clock", tmp_path / "x.svg", ["svg"])
    assert not [*tmp_path.iterdir()]
    (tmp_path / "folder.svg").mkdir()
    assert draw("clock", tmp_path / "folder.svg", ["svg"])[0].is_file()


def test_the_example_of_a_cascade_is_its_graph(tmp_path: Path) -> None:
    draw("cascade", tmp_path, ["svg"])
    data = json.loads((tmp_path / "cascade.json").read_text(encoding="utf-8"))
    components = data["components"]
    assert {one["kind"] for one in components} == {"resets", "both"}
    assert max(one["layer"] for one in components) == 3
    for i, j in data["reads"]:
        assert components[i]["layer"] < components[j]["layer"]
    text = (tmp_path / "cascade.svg").read_text(encoding="utf-8")
    assert data["source"] in text
    assert all(f">layer {n}</text>" in text for n in (1, 2, 3))


def test_every_picture_that_a_claim_names_is_one_of_the_gallery() -> None:
    named = {name: one.figure for name, one in claims().items() if one.figure is not None}
    assert set(named.values()) == set(FIGURES)
    assert named["CKDA-lemma-16"] == named["CKDA-A5-dimension-3"] == "icosahedron"
    assert named["CKDA-thm-8"] == "spectra"
    assert named["OURS-hole-cascade"] == "cascade"


def test_claims_with_one_picture_share_its_file(tmp_path: Path) -> None:
    found = pictures_of(["CKDA-lemma-16", "CKDA-A5-dimension-3", "OURS-hole-cascade", "ERRATA-M1"], tmp_path)
    assert list(found) == ["CKDA-lemma-16", "CKDA-A5-dimension-3", "OURS-hole-cascade"]
    assert found["CKDA-lemma-16"] == found["CKDA-A5-dimension-3"]
    assert found["CKDA-lemma-16"].caption == "The icosahedron's 16 axes, and why no plane holds five."
    assert found["OURS-hole-cascade"].path == tmp_path / "cascade.svg"
    assert {path.name for path in tmp_path.glob("*.svg")} == {"icosahedron.svg", "cascade.svg"}


def test_pictures_of_thousands_of_points_are_pixels(tmp_path: Path) -> None:
    assert pictures_of(["CKDA-thm-8"], tmp_path)["CKDA-thm-8"].path.name == "spectra.png"
