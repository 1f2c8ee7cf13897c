"""Pictures of cascades: the graph is the cascade's, and every file that is promised is written."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path

import networkx as nx
import numpy as np
import pytest
from hypothesis import given

from statetrack.constructions.cascade import Cascade, Component, hole_cascade
from statetrack.constructions.reduction import best_cascade, reduce
from statetrack.errors import InvalidInput
from statetrack.figures.cascades import FORMATS, cascade_graph, draw_cascade
from statetrack.theory.automata import Dfa, minimise
from statetrack.theory.regex import parse_regex
from tests.strategies import dfas, fewer

ABA = "[ab]*aba[ab]*"


def kind_of(maps: set[tuple[int, ...]], size: int) -> str:
    resets = size > 1 and any(len({*f}) == 1 for f in maps)
    moves = any(len({*f}) == size and f != (*range(size),) for f in maps)
    return {(True, True): "both", (True, False): "resets", (False, True): "permutations"}.get((resets, moves), "still")


@fewer(2)
@given(dfas(max_states=5))
def test_the_graph_has_the_components_and_what_they_read(dfa: Dfa) -> None:
    for cascade in (hole_cascade(dfa), reduce(hole_cascade(dfa))):
        graph = cascade_graph(cascade)
        assert list(graph.nodes) == list(range(len(cascade.components)))
        assert set(graph.edges) == {(i, j) for j, c in enumerate(cascade.components) for i in c.reads}
        for j, component in enumerate(cascade.components):
            node = graph.nodes[j]
            assert (node["size"], node["layer"]) == (component.size, cascade.layers[j])
            maps = {
                component.action(token, tuple(x[i] for i in component.reads))
                for x in cascade.reachable()
                for token in range(len(dfa.alphabet))
            }
            assert node["kind"] == kind_of(maps, component.size)
            assert node["label"] == f"{component.size} states\n{node['kind']}"
            # An arrow goes down at least one layer, and some arrow goes down exactly one.
            above = [graph.nodes[i]["layer"] for i in graph.predecessors(j)]
            assert node["layer"] == 1 + max(above, default=0)


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("pattern", [ABA, "(aa)*", "a*"], ids=["three", "one", "none"])
def test_every_format_is_written_for_three_components_for_one_and_for_none(
    kind: str, pattern: str, tmp_path: Path
) -> None:
    cascade = best_cascade(minimise(parse_regex(pattern))).cascade
    assert len(cascade.components) == {ABA: 3, "(aa)*": 1, "a*": 0}[pattern]
    path = tmp_path / f"c.{kind}"
    draw_cascade(cascade, path, title=f"cascade of {pattern} <&>")
    starts = {"svg": b"<?xml", "pdf": b"%PDF", "png": b"\x89PNG", "dot": b"strict digraph"}
    assert path.read_bytes().startswith(starts[kind])


def test_a_vector_picture_is_well_formed_and_names_layers_and_kinds(tmp_path: Path) -> None:
    path = tmp_path / "c.svg"
    cascade = best_cascade(minimise(parse_regex(ABA))).cascade
    draw_cascade(cascade, path, title="aba")
    root = ET.fromstring(path.read_text(encoding="utf-8"))
    assert root.tag.endswith("svg")
    comments = path.read_text(encoding="utf-8")
    for text in ("aba", *(f"layer {i}" for i in range(1, cascade.levels + 1)), "resets"):
        assert f"<!-- {text} -->" in comments or f">{text}<" in comments
    assert "layer 4" not in comments


def test_a_dot_file_is_read_back_as_the_graph(tmp_path: Path) -> None:
    path = tmp_path / "c.dot"
    cascade = best_cascade(minimise(parse_regex(ABA))).cascade
    draw_cascade(cascade, path)
    read = nx.nx_pydot.read_dot(path)  # pyright: ignore[reportUnknownVariableType]
    graph = cascade_graph(cascade)
    assert {(int(i), int(j)) for i, j, *_ in read.edges} == set(graph.edges)
    assert {int(n) for n in read.nodes if str(n).isdigit()} == set(graph.nodes)
    assert {int(n): int(str(d["size"])) for n, d in read.nodes(data=True) if str(n).isdigit()} == {
        n: d["size"] for n, d in graph.nodes(data=True)
    }


@pytest.mark.parametrize("name", ["c.gif", "c", "c.svg.txt", ".svg"])
def test_another_suffix_is_refused_in_one_line_and_nothing_is_written(name: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"know \.svg, \.pdf, \.png, \.dot") as caught:
        draw_cascade(best_cascade(parse_regex("(aa)*")).cascade, tmp_path / name)
    assert "\n" not in str(caught.value)
    assert not any(tmp_path.iterdir())


def test_a_suffix_may_be_in_capitals(tmp_path: Path) -> None:
    draw_cascade(best_cascade(parse_regex("(aa)*")).cascade, tmp_path / "C.PNG")
    assert (tmp_path / "C.PNG").read_bytes().startswith(b"\x89PNG")


def test_kinds_are_those_of_contexts_that_occur() -> None:
    """A component that would permute in a context that never occurs only resets."""
    dfa = Dfa(("a",), ("p", "q"), 0, np.array([[1], [1]], dtype=np.int32), (False, True))

    def second(token: int, read: tuple[int, ...]) -> tuple[int, ...]:
        return (1, 0) if read == (2,) else (1, 1)

    idle = Component(3, (), lambda token, read: (0, 1, 2))
    cascade = Cascade(dfa, (idle, Component(2, (0,), second)), (0, 0), lambda x: x[1])
    assert [d["kind"] for _, d in cascade_graph(cascade).nodes(data=True)] == ["still", "resets"]


def test_a_component_that_reads_past_a_layer_is_drawn(tmp_path: Path) -> None:
    """Components in layers 1, 2, 3 of which the last reads the first: its arrow is bent."""
    dfa = Dfa(("a",), ("p", "q"), 0, np.array([[1], [0]], dtype=np.int32), (False, True))

    def flip(token: int, read: tuple[int, ...]) -> tuple[int, ...]:
        return (1, 0) if sum(read) % 2 == 0 else (0, 1)

    components = (Component(2, (), flip), Component(2, (0,), flip), Component(2, (0, 1), flip))
    cascade = Cascade(dfa, components, (0, 0, 0), lambda x: x[0])
    graph = cascade_graph(cascade)
    assert [d["layer"] for _, d in graph.nodes(data=True)] == [1, 2, 3]
    assert set(graph.edges) == {(0, 1), (0, 2), (1, 2)}
    draw_cascade(cascade, tmp_path / "c.svg")
    assert (tmp_path / "c.svg").stat().st_size > 1000
