"""The atlas: which groups one layer tracks, each YES with a certificate through the checker, each NO with its witness.

Parts: `small` decides all 312 groups of order up to 60 and, with --keep, writes what the page, the picture and the
report show; `named` the groups of the papers and a few more; `random` 500 random groups of order up to 200 (subgroups
of products and random permutations), letters being their generators.
"""
# pyright: basic

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from pathlib import Path
from typing import Any

from report import save

import statetrack as st
from statetrack.constructions.atlas import built, decide, is_realisable
from statetrack.constructions.multihead import decoder_sizes, head_states
from statetrack.constructions.source import from_group
from statetrack.constructions.targets import target
from statetrack.proofs_check import networks
from statetrack.proofs_check.witness import verify_witness
from statetrack.theory import cayley_tables
from statetrack.theory.cayley_tables import binary_polyhedral, projective
from statetrack.theory.finite_group import library, regular, small_group
from statetrack.theory.groups import Group, direct_product, named_group, permutation_group

ROOT = Path(__file__).parents[1]
HEADING = "## Groups of order up to 60"
KEPT = ROOT / "statetrack" / "proofs_check" / "atlas_results.json"
NAMED = ("S1", "S2", "S3", "S4", "S5", "S6", "A5", "A6", "Q8", "Z2xA5", "Q16", "Q24", "Z60", "D30")
PARTS = ("S3", "S4", "A4", "D4", "Q8", "Z4", "Z9", "D5", "Z7", "Q12", "A5", "S5", "D6", "Z3", "F21", "F20", "2T")
MORE = {"F21": ((1, 2, 3, 4, 5, 6, 0), (0, 2, 4, 6, 1, 3, 5)), "F20": ((1, 2, 3, 4, 0), (0, 2, 4, 1, 3))}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu", help="name in the file name of the results")
    parser.add_argument("--parts", nargs="+", default=["small", "named", "random"])
    parser.add_argument("--count", type=int, default=500, help="random groups")
    parser.add_argument("--most", type=int, default=200, help="largest order of a random group")
    parser.add_argument("--keep", action="store_true", help="write the package's data from the part small")
    options = parser.parse_args()
    makers = {"small": small, "named": named, "random": lambda: drawn(options.count, options.most)}
    for part in options.parts:
        rows: list[dict[str, Any]] = []
        for group, facts in makers[part]():
            rows.append(facts | measure(group, "generators" if part == "random" else "all"))
            print({k: rows[-1][k] for k in ("group", "order", "verdict", "construction", "seconds")}, flush=True)
        words = [row["verdict"] for row in rows]
        print(part, {word: words.count(word) for word in sorted(set(words))}, file=sys.stderr)
        save(f"atlas-{part}", options.device, rows, options.device)
        if part == "small" and options.keep:
            keep(rows)
            page(rows)


def small() -> Any:
    for n, i, name in library():
        yield small_group(n, i), {"group": f"[{n},{i}]", "structure": name, "number": i}


def named() -> Any:
    for name in NAMED:
        yield named_group(name), {"group": name}
    tables = {"PSL(2,7)": projective(7), "2T": binary_polyhedral(3), "2O": binary_polyhedral(4)}
    tables |= {"2I = SL(2,5)": binary_polyhedral(5)}
    for name, table in tables.items():
        yield regular(table), {"group": name}
    for name, rows in MORE.items():
        yield permutation_group(name, rows), {"group": name}
    yield small_group(48, 29), {"group": "GL(2,3)"}


def drawn(count: int, most: int) -> Any:
    draw = random.Random(0)
    made = 0
    while made < count:
        if draw.random() < 0.4:
            degree = draw.randint(3, 10)
            rows = [tuple(draw.sample(range(degree), degree)) for _ in range(2)]
        else:
            factors = [_part(draw.choice(PARTS)) for _ in range(draw.randint(1, 3))]
            if max(factor.order for factor in factors) ** len(factors) > 100_000:
                continue
            whole = direct_product("product", factors)
            rows = [whole.permutation(draw.randrange(whole.order)) for _ in range(draw.randint(1, 3))]
        try:
            group = permutation_group("random", rows, max_order=most)
        except st.BudgetExceeded:
            continue
        made += 1
        yield group, {"group": f"random {made}", "generators": json.dumps([list(map(int, row)) for row in rows])}


def _part(name: str) -> Group:
    if name == "2T":
        return regular(binary_polyhedral(3))
    return permutation_group(name, MORE[name]) if name in MORE else named_group(name)


def measure(group: Group, letters: str) -> dict[str, Any]:
    """The verdict and its proof, re-checked; an exception where either is wrong."""
    started = time.perf_counter()
    table = cayley_tables.from_group(group)
    found = decide(table)
    decided = time.perf_counter()
    row: dict[str, Any] = {"order": group.order, "verdict": found.word, "construction": None}
    if found.tracker is not None:
        program, certificate = built(found, from_group(group, letters), target("ckda"))
        done = time.perf_counter()
        facts = networks.verify(certificate.text())
        assert program.depth == 1
        assert facts["states"] == group.order
        assert facts["target"] == "ckda"
        row |= {
            "construction": found.tracker.how,
            "heads": len(program.dims[0]),
            "dims": " ".join(map(str, program.dims[0])),
            "states": " ".join(map(str, head_states(certificate.data))),
            "joint": certificate.joint,
            "decoder": decoder_sizes(certificate.data),
            "kind": certificate.kind,
            "build_s": done - decided,
            "check_s": time.perf_counter() - done,
        }
        if group.order <= 60:
            row["bijective"] = is_realisable(table)
    if found.witness is not None:
        row |= {"law": found.witness.law, "witness": found.witness.describe(group.labels)}
        row["checked"] = verify_witness(table.table.tolist(), found.witness.to_json())
    if found.verdict is None:
        row["tried"] = "; ".join(found.tried)
    return row | {"decide_s": decided - started, "seconds": time.perf_counter() - started}


def keep(rows: list[dict[str, Any]]) -> None:
    keys = (
        "order",
        "number",
        "structure",
        "verdict",
        "construction",
        "dims",
        "states",
        "joint",
        "decoder",
        "bijective",
        "law",
        "witness",
    )
    lines = [json.dumps({key: row[key] for key in keys if row.get(key) is not None}) for row in rows]
    KEPT.write_text("[\n" + ",\n".join(lines) + "\n]\n", encoding="utf-8")


def page(rows: list[dict[str, Any]]) -> None:
    """The table of docs/atlas.md, behind the text that stands before its heading."""
    path = ROOT / "docs" / "atlas.md"
    text = path.read_text(encoding="utf-8")
    words = [row["verdict"] for row in rows]
    found = ", ".join(f"{words.count(word)} {word}" for word in ("YES", "NO", "UNKNOWN"))
    planar = [row for row in rows if row["construction"] == "planar heads"]
    sizes = [row["heads"] for row in planar]
    spread = ", ".join(f"{sizes.count(k)} with {k}" for k in sorted(set(sizes)))
    one = sum(bool(row.get("bijective")) for row in rows)
    lines = [
        HEADING,
        f"{len(rows)} groups: {found}; {one} with a decoder one to one. Planar heads alone: {len(planar)} ({spread}). "
        "Listed are the others; the report of `statetrack verify --html` lists all. Written by `benchmarks/atlas.py`.",
        "",
        "| group | structure | verdict | how, or law | sizes K, or elements | hidden states of each head "
        "| decoder entries | one to one |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        if row["construction"] == "planar heads":
            continue
        bijective = {True: "possible", False: "impossible", None: ""}[row.get("bijective")]
        cells = [row["group"], row["structure"], row["verdict"], row["construction"] or row.get("law", "")]
        cells += [row.get("dims", row.get("witness", "")), row.get("states", ""), row.get("decoder", ""), bijective]
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    path.write_text(text[: text.index(HEADING)] + "\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
