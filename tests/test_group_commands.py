"""`statetrack groups` and `statetrack groups decide`, for people and as JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from statetrack.cli import main
from statetrack.proofs_check import networks


def facts(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict[str, Any]]:
    code = main(["groups", "decide", *arguments, "--json"])
    return code, json.loads(capsys.readouterr().out)


def test_a_yes_comes_with_heads_and_a_certificate(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "q8.json"
    code, found = facts(capsys, "Q8", "--certificate", str(path))
    assert (code, found["verdict"], found["layers"], found["dims"]) == (0, "YES", 1, [[2, 2]])
    assert (found["bijective_decoder"], found["joint_states"]) == ("impossible", 16)
    assert networks.verify(path.read_text(encoding="utf-8"), found["digest"])["states"] == 8


def test_a_no_names_the_law_and_the_elements(capsys: pytest.CaptureFixture[str]) -> None:
    code, found = facts(capsys, "(1 2 3 4 5);(1 2)")
    assert (code, found["verdict"], found["law"]) == (0, "NO", "U6")
    assert set(found["elements"]) == {"x", "y", "t"}
    assert "fails" in found["checked"]


def test_unknown_says_what_was_tried_and_exits_with_1(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    # Z3^2:Q8, the quaternion group acting by matrices of SL(2, 3).
    points = [(a, b) for a in range(3) for b in range(3)]
    moved = ([(a + 1, b), (a, b + 1), (-b, a), (a + b, a - b)] for a, b in points)
    rows = [[points.index((a % 3, b % 3)) for a, b in images] for images in zip(*moved, strict=True)]
    (tmp_path / "group.json").write_text(json.dumps({"generators": rows}), encoding="utf-8")
    code, found = facts(capsys, str(tmp_path / "group.json"))
    assert (code, found["order"], found["verdict"]) == (1, 72, "UNKNOWN")
    assert "U1 to U7" in found["tried"]


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (("Q9",), "unknown group"),
        (("S5", "--certificate", "x.json"), "U6"),
        (("Q8", "--letters", "some"), "all or generators"),
        (("Q8", "--certificate", "none/x.json"), "no folder"),
        (("S7",), "max-order"),
    ],
)
def test_a_mistake_is_one_line(arguments: tuple[str, ...], word: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["groups", "decide", *arguments]) == 2
    shown = capsys.readouterr().err.strip()
    assert word in shown
    assert "\n" not in shown


def test_the_names_are_still_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["groups", "--json"]) == 0
    assert {"Zn, also Cn", "GxH"} <= {row["name"] for row in json.loads(capsys.readouterr().out)}
