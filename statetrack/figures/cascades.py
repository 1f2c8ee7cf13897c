"""Pictures of permutation-reset cascades: components by layer, what they read, what they do.

Main definitions: `cascade_graph`, `draw_cascade`, `picture`, `draw_example`.
"""

# matplotlib is only partly typed.
# pyright: basic

from __future__ import annotations

from pathlib import Path

import networkx as nx
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from statetrack.constructions.cascade import MAX_STATES, Cascade
from statetrack.constructions.reduction import best_cascade
from statetrack.constructions.source import resolve
from statetrack.errors import InvalidInput
from statetrack.theory.automata import minimise

from .style import LEGEND, canvas, save

FORMATS = ("svg", "pdf", "png", "dot")


def cascade_graph(cascade: Cascade, most: int = MAX_STATES) -> nx.DiGraph[int]:
    """Components as nodes 0, 1, ... with `size`, `layer`, `kind` and `label`; an edge i -> j where j reads i.

    The kind is "resets", "permutations", "both" or "still", by the actions in contexts that occur; BudgetExceeded past
    `most` component states.
    """
    graph: nx.DiGraph[int] = nx.DiGraph()
    rows = zip(cascade.components, cascade.layers, cascade.actions(most), strict=True)
    for j, (component, layer, table) in enumerate(rows):
        actions = set(table.values())
        still = tuple(range(component.size))
        resets = any(len(set(f)) == 1 for f in actions) and component.size > 1
        moves = any(len(set(f)) == component.size and f != still for f in actions)
        kind = "both" if resets and moves else "resets" if resets else "permutations" if moves else "still"
        graph.add_node(j, size=component.size, layer=layer, kind=kind, label=f"{component.size} states\n{kind}")
        graph.add_edges_from((i, j) for i in component.reads)
    return graph


# Each kind has a shape, and a colour of its own lightness (Okabe and Ito's).
_LOOKS = {
    "resets": ("o", "#56B4E9"),
    "permutations": ("s", "#F0E442"),
    "both": ("h", "#D55E00"),
    "still": ("D", "white"),
}
EXAMPLE = "(a(b(ab)*b)*a)*"


def draw_cascade(cascade: Cascade, path: Path, *, title: str = "") -> None:
    """Write the picture as .svg, .pdf or .png, or the graph as .dot. Raises InvalidInput for another suffix."""
    kind = path.suffix.lower().removeprefix(".")
    if kind not in FORMATS:
        raise InvalidInput(f"picture {path}: know {', '.join('.' + f for f in FORMATS)}")
    graph = cascade_graph(cascade)
    if kind == "dot":
        path.write_text(nx.nx_pydot.to_pydot(graph).to_string(), encoding="utf-8")
        return
    picture(graph, title).savefig(str(path))


def draw_example(path: Path) -> None:
    """A cascade as a tree: components that reset, permute or do both, and which of them read which."""
    dfa = minimise(resolve(EXAMPLE).dfa)
    graph = cascade_graph(best_cascade(dfa).cascade)
    figure = picture(graph, f"{EXAMPLE}: {len(dfa.states)} states as {len(graph)} components")
    nodes = [{"component": n, **data} for n, data in graph.nodes(data=True)]
    save(figure, path, {"source": EXAMPLE, "components": nodes, "reads": [list(edge) for edge in graph.edges]})


def picture(graph: nx.DiGraph[int], title: str) -> Figure:
    """Components by layers: a number is a component's size, an arrow leads to a component that reads another."""
    rows: dict[int, list[int]] = {}
    for node in graph:
        rows.setdefault(graph.nodes[node]["layer"], []).append(node)
    deepest, widest = max(rows, default=1), max(map(len, rows.values()), default=1)
    figure, axes = canvas(2.2 + 1.3 * widest, 1.0 + 0.75 * deepest)
    axes.set_xlim(-0.5 * widest - 0.2, 0.5 * widest + 0.2)
    axes.set_ylim(-deepest - 0.45, -0.55)
    place = {n: (i - (len(row) - 1) / 2, -float(layer)) for layer, row in rows.items() for i, n in enumerate(row)}
    arrows = {"ax": axes, "edge_color": "#777777", "node_size": 900, "arrowsize": 9}
    for i, j in graph.edges:
        # Edges that pass a layer are bent outwards, so that they do not run behind its nodes.
        bend = 0.0 if place[i][1] - place[j][1] < 1.5 else -0.3 if place[j][0] > place[i][0] else 0.3
        nx.draw_networkx_edges(graph, place, edgelist=[(i, j)], connectionstyle=f"arc3,rad={bend}", **arrows)
    kinds = nx.get_node_attributes(graph, "kind")
    marks: list[Line2D] = []
    for kind in (kind for kind in _LOOKS if kind in kinds.values()):
        shape, colour = _LOOKS[kind]
        style = {"node_shape": shape, "node_color": colour, "node_size": 900, "edgecolors": "black", "linewidths": 0.6}
        nx.draw_networkx_nodes(graph, place, nodelist=[n for n in graph if kinds[n] == kind], ax=axes, **style)
        look = {"color": colour, "markeredgecolor": "black", "markersize": 8}
        marks.append(Line2D([], [], marker=shape, linestyle="", label=kind, **look))
    nx.draw_networkx_labels(graph, place, {n: str(d["size"]) for n, d in graph.nodes(data=True)}, ax=axes, font_size=10)
    for layer in rows:
        axes.text(-0.02, -layer, f"layer {layer}", transform=axes.get_yaxis_transform(), ha="right", va="center")
    axes.legend(handles=marks, loc="upper center", bbox_to_anchor=(0.5, -0.02), ncols=4, **LEGEND)
    axes.set_title(title, fontsize=9, parse_math=False)
    axes.set_axis_off()
    return figure
