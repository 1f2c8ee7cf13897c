"""Pictures of permutation-reset cascades: components by layer, what they read, what they do.

Main definitions: `cascade_graph`, `draw_cascade`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import networkx as nx

from statetrack.constructions.cascade import Cascade
from statetrack.errors import InvalidInput

FORMATS = ("svg", "pdf", "png", "dot")


def cascade_graph(cascade: Cascade) -> nx.DiGraph[int]:
    """Components as nodes 0, 1, ... with `size`, `layer`, `kind` and `label`; an edge i -> j where j reads i.

    The kind is "resets", "permutations", "both" or "still", by the actions in contexts that occur.
    """
    graph: nx.DiGraph[int] = nx.DiGraph()
    rows = zip(cascade.components, cascade.layers, cascade.actions(), strict=True)
    for j, (component, layer, table) in enumerate(rows):
        actions = set(table.values())
        still = tuple(range(component.size))
        resets = any(len(set(f)) == 1 for f in actions) and component.size > 1
        moves = any(len(set(f)) == component.size and f != still for f in actions)
        kind = "both" if resets and moves else "resets" if resets else "permutations" if moves else "still"
        graph.add_node(j, size=component.size, layer=layer, kind=kind, label=f"{component.size} states\n{kind}")
        graph.add_edges_from((i, j) for i in component.reads)
    return graph


# Told apart by shade as well as by hue (Okabe and Ito's colours).
_COLOURS = {"resets": "#56B4E9", "permutations": "#E69F00", "both": "#CC79A7", "still": "#DDDDDD"}


def draw_cascade(cascade: Cascade, path: Path, *, title: str = "") -> None:
    """Write the picture as .svg, .pdf or .png, or the graph as .dot. Raises InvalidInput for another suffix."""
    kind = path.suffix.lower().removeprefix(".")
    if kind not in FORMATS:
        raise InvalidInput(f"picture {path}: know {', '.join('.' + f for f in FORMATS)}")
    graph = cascade_graph(cascade)
    if kind == "dot":
        path.write_text(nx.nx_pydot.to_pydot(graph).to_string(), encoding="utf-8")
        return
    _picture(graph, path, title)


def _picture(graph: nx.DiGraph[int], path: Path, title: str) -> None:
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    place = nx.multipartite_layout(graph, subset_key="layer", align="horizontal") if graph else {}
    layers = [data["layer"] for _, data in graph.nodes(data=True)]
    widest = max((layers.count(layer) for layer in layers), default=1)
    figure = Figure(figsize=(2.2 + 1.3 * widest, 1.4 + 0.8 * max(layers, default=1)), layout="constrained")
    axes: Any = figure.subplots()
    place = {node: (float(x), -float(graph.nodes[node]["layer"])) for node, (x, _) in place.items()}
    near = [(i, j) for i, j in graph.edges if graph.nodes[j]["layer"] == graph.nodes[i]["layer"] + 1]
    far = [edge for edge in graph.edges if edge not in set(near)]
    # Edges that pass a layer are bent, so that they do not run behind its nodes.
    for edges, bend in ((near, 0.0), (far, 0.2)):
        nx.draw_networkx_edges(
            graph,
            place,
            edgelist=edges,
            ax=axes,
            edge_color="#777777",
            width=0.7,
            node_size=900,
            arrowsize=8,
            connectionstyle=f"arc3,rad={bend}",
        )
    nx.draw_networkx_nodes(
        graph,
        place,
        ax=axes,
        node_color=[_COLOURS[data["kind"]] for _, data in graph.nodes(data=True)],
        node_size=900,
        edgecolors="black",
        linewidths=0.6,
    )
    nx.draw_networkx_labels(graph, place, {n: str(d["size"]) for n, d in graph.nodes(data=True)}, ax=axes, font_size=10)
    for layer in sorted(set(layers)):
        axes.text(-0.02, -layer, f"layer {layer}", transform=axes.get_yaxis_transform(), ha="right", va="center")
    used = [kind for kind in _COLOURS if any(data["kind"] == kind for _, data in graph.nodes(data=True))]
    marks = [Line2D([], [], marker="o", linestyle="", color=_COLOURS[k], markeredgecolor="black") for k in used]
    axes.legend(marks, used, loc="upper center", bbox_to_anchor=(0.5, -0.02), ncols=4, frameon=False)
    axes.set_title(title, fontsize=10)
    axes.set_axis_off()
    axes.margins(0.15)
    figure.savefig(str(path))  # pyright: ignore[reportUnknownMemberType]
