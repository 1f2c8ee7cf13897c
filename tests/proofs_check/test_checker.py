"""The checker on hand-made certificates, on their mutations, and on texts that are no certificates."""

import copy
import hashlib
import itertools
import json
import math
import random
import shutil
import subprocess
import sys
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from statetrack.proofs_check import checker
from statetrack.proofs_check.checker import Refused, verify

Cert = dict[str, Any]
RANGE = {"target": "deltanet", "gates": "channel", "low": -1, "high": 1, "beta_max": 2, "factors": None}


def digested(body: Cert) -> Cert:
    rest = {key: value for key, value in body.items() if key != "digest"}
    text = json.dumps(rest, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return {**rest, "digest": hashlib.sha256(text.encode()).hexdigest()}


def head(h0: Any, steps: Any, queries: Any, labels: Any = None, derived: Any = ()) -> Cert:
    return {"h0": h0, "steps": steps, "derived": list(derived), "queries": queries, "labels": labels}


def layer(heads: list[Cert], inputs: Any, emit: Any = None) -> Cert:
    return {"heads": heads, "inputs": inputs, "emit": emit}


def build(layers: list[Cert], delta: list[list[int]], claims: Any, field: Any = None, **ranged: Any) -> Cert:
    names = [str(s) for s in range(len(delta))]
    automaton = {
        "alphabet": [f"t{t}" for t in range(len(delta[0]))],
        "states": names,
        "outputs": [s == "0" for s in names],
    }
    joint, states, codes, margin = claims
    return digested(
        {
            "format": "statetrack-certificate/1",
            "kind": "closure",
            "field": field or {"cos": 1},
            "range": {**RANGE, "additive": "none", "dense": False, **ranged},
            "layers": layers,
            "automaton": {**automaton, "start": 0, "delta": delta},
            "claims": {"joint": joint, "states": states, "codes": codes, "margin": margin},
        }
    )


def each(count: int) -> list[Any]:
    return [[[t], [t, 0]] for t in range(count)]


def cosine(order: int, j: int) -> Any:
    """cos(2 pi j / order) for order 12 and 20, from tables worked out by hand (b_4 = b_2 - 1 for order 20)."""
    j = min(j % order, -j % order)
    table: list[Any] = {12: [1, [2, 1, 1], "1/2", 0], 20: [1, [2, 1, 1], [2, 2, 1], [2, 3, 1], [2, 0, -1, 2, 1], 0]}[
        order
    ]
    if 4 * j <= order:
        return table[j]
    flipped: Any = table[order // 2 - j]
    if flipped == "1/2":
        return "-1/2"
    return -flipped if isinstance(flipped, int) else [-n if i % 2 == 0 and i else n for i, n in enumerate(flipped)]


def mirror(order: int, j: int, **more: Any) -> Cert:
    """The reflection [[cos 2a, sin 2a], [sin 2a, -cos 2a]] with a = 2 pi j / order."""
    sine = cosine(order, j - order // 4 + order // 2)
    return {"w": [sine, cosine(order, j)], "c": 2, **more}


def parity() -> Cert:
    steps = [[], [{"w": [1], "c": 2}]]
    return build([layer([head([[1]], steps, [[1]])], each(2))], [[0, 1], [1, 0]], (2, [[2]], [[2]], [[2]]))


def cyclic(n: int, margin: str) -> Cert:
    steps = [[mirror(4 * n, 2 * k, alpha=[1, -1])] for k in range(n)]
    derived = [[k, 1, k - 1] for k in range(2, n)]
    delta = [[(s + t) % n for t in range(n)] for s in range(n)]
    heads = [head([[1, 0], [0, 1]], steps, [[1, 0]], None, derived)]
    return build([layer(heads, each(n))], delta, (n, [[n]], [[n]], [[margin]]), {"cos": 4 * n})


def symmetric() -> Cert:
    perms = list(itertools.permutations(range(3)))
    swap = [{"w": [1, -1, 0], "c": 1}, {"w": [0, 1, -1], "c": 1}]
    words = {(0, 1): [swap[0]], (1, 2): [swap[1]], (): []}
    made = {perms[0]: words[()]}
    while len(made) < 6:
        for p, factors in list(made.items()):
            for i, factor in enumerate(swap):
                q = tuple({i: i + 1, i + 1: i}.get(x, x) for x in p)
                made.setdefault(q, [*factors, factor])
    steps = [made[p][:2] if len(made[p]) < 3 else [{"w": [1, 0, -1], "c": 1}] for p in perms]
    delta = [[perms.index(tuple(p[x] for x in s)) for p in perms] for s in perms]
    columns = [[int(i == j) for i in range(3)] for j in range(3)]
    return build([layer([head(columns, steps, [[1, 2, 3]])], each(6))], delta, (6, [[6]], [[6]], [["7/5"]]), factors=2)


def flip_flop() -> Cert:
    steps = [[{"w": [1, 0], "c": 1, "b": [[n, 0]]}] for n in (1, 2)] + [[]]
    heads = [head([[0, 1]], steps, [[1, 0]], [1, 2, 0])]
    return build([layer(heads, each(3))], [[1, 2, s] for s in range(3)], (3, [[3]], [[3]], [[1]]), additive="key")


def two_columns() -> Cert:
    """Columns with different b, and a step derived from two with b: set a = set a after set b."""
    first, second = ({"w": [1], "c": 1, "b": b} for b in ([[1], [3]], [[2], [1]]))
    heads = [head([[0], [0]], [[first], [second], [], [first]], [[1]], [1, 2, 0], [[3, 0, 1]])]
    delta = [[1, 2, s, 1] for s in range(3)]
    return build([layer(heads, each(4))], delta, (3, [[3]], [[3]], [[2]]), additive="any")


def dense() -> Cert:
    steps = [[{"dense": [[0, 0, 0], [1, 0, 0], [0, 1, 1]]}], [{"dense": [[1, 1, 1], [0, 0, 0], [0, 0, 0]]}]]
    heads = [head([[1, 0, 0]], steps, [[0, 1, 2]], [1, 0, 2])]
    return build([layer(heads, each(2))], [[1, 0], [2, 0], [2, 0]], (3, [[3]], [[3]], [[1]]), dense=True)


def dihedral() -> Cert:
    first = layer([head([[1]], [[{"w": [1], "c": 2}]], [[1]])], [[[t], [0, 0]] for t in range(5)])
    steps = [[mirror(20, 1 - 2 * i)] for i in range(5)] + [[mirror(20, 1 + 2 * i)] for i in range(5)]
    second = head([[1, 0], [0, 1]], steps, [[1, 0]], [*range(5), *range(5)])
    inputs = [[[t, p], [5 * p + t, 0]] for t in range(5) for p in range(2)]
    delta = [[(s + t) % 5 for t in range(5)] for s in range(5)]
    claims = (10, [[2], [10]], [[2], [10]], [[2], ["3/5"]])
    return build([first, layer([second], inputs)], delta, claims, {"cos": 20}, gates="one")


def two_heads() -> Cert:
    flip = [[], [{"w": [1], "c": 2}]]
    heads = [head([[1]], flip, [[1]]), head([["1/2"]], flip, [[1]])]
    inputs = [[[2 * a + b], [a, 0, b, 0]] for a in range(2) for b in range(2)]
    emit = [[[a, b], 2 * a + b] for a in range(2) for b in range(2)]
    delta = [[s ^ t for t in range(4)] for s in range(4)]
    return build([layer(heads, inputs, emit)], delta, (4, [[2, 2]], [[2, 2]], [[2, 1]]))


def eighth() -> Cert:
    turn = {"w": [-1, [1, 0, 1, 1, 1]], "c": [2, 0, 2, 1, -1], "alpha": [1, -1]}
    heads = [head([[1, 0]], [[turn]], [[2, 1]], [1, 2, 3, 4, 5, 6, 7, 0])]
    field = {"minpoly": [-2, 0, 1], "interval": [1, "3/2"]}
    return build([layer(heads, each(1))], [[(s + 1) % 8] for s in range(8)], (8, [[8]], [[8]], [["1/10"]]), field)


def posing(interval: list[Any]) -> Cert:
    """Parity by the root of x^2 - 1 in the interval: true for -1, false for 1."""
    heads = [head([[1]], [[{"dense": [[[1, 1, 1]]]}]], [[1]], [1, 0])]
    field = {"minpoly": [-1, 0, 1], "interval": interval}
    return build([layer(heads, each(1))], [[1], [0]], (2, [[2]], [[2]], [["1/2"]]), field, dense=True)


def span(extra: bool = False) -> Cert:
    perms = [(1, 2, 3, 4, 5, 0), (1, 0, 2, 3, 4, 5)]
    size = 6 + extra
    steps = [[{"dense": [[int(p[j] == i) if j < 6 else 0 for j in range(size)] for i in range(6)]}] for p in perms]
    for step in steps if extra else ():
        step[0]["dense"].append([1, 0, 0, 0, 0, 0, 2])
        step[0]["b"] = [[0] * 6 + [1]]
    one_hot = [[1] + [0] * (size - 1)]
    cert = build([layer([head(one_hot, steps, [[*range(6)] + [0] * extra])], each(2))], [[0]], (1, [], [], []))
    names = [str(s) for s in range(6)]
    cert["automaton"] |= {"alphabet": ["a", "b"], "states": names, "outputs": names}
    cert["automaton"]["delta"] = [[p[s] for p in perms] for s in range(6)]
    cert["range"] |= {"dense": True, "additive": "any"}
    return digested(cert | {"kind": "span", "claims": {"margin": 1}, "readouts": [[s] for s in range(6)]})


MAKERS = {
    "parity": parity,
    "Z3": lambda: cyclic(3, "17/10"),
    "Z5": lambda: cyclic(5, "11/10"),
    "S3": symmetric,
    "flip-flop": flip_flop,
    "two columns": two_columns,
    "dense": dense,
    "dihedral": dihedral,
    "two heads": two_heads,
    "eighth": eighth,
    "minus one": lambda: posing([-2, "-1/2"]),
    "span": span,
    "span, unbounded": lambda: span(True),
}


def text(cert: Cert) -> str:
    return json.dumps(cert)


class Floats:
    """The claim of a certificate simulated in doubles, with nothing of the checker's."""

    def __init__(self, cert: Cert):
        self.cert = cert
        if "cos" in cert["field"]:
            self.basis = [1.0] + [2 * math.cos(2 * math.pi * k / cert["field"]["cos"]) for k in range(1, 100)]
        else:
            lo, hi = (float(Fraction(x)) for x in cert["field"]["interval"])
            f = [float(a) for a in cert["field"]["minpoly"]]
            rising = sum(a * hi**k for k, a in enumerate(f)) > 0
            for _ in range(200):
                middle = (lo + hi) / 2
                above = (sum(a * middle**k for k, a in enumerate(f)) > 0) == rising
                lo, hi = (lo, middle) if above else (middle, hi)
            self.basis = [lo**k for k in range(len(f))]

    def real(self, x: Any) -> float:
        if type(x) is not int and type(x) is not str:
            numbers: list[int] = x
            pairs = zip(numbers[1::2], numbers[2::2], strict=True)
            return sum(n * self.basis[k] for k, n in pairs) / numbers[0]
        return float(Fraction(x))

    def reals(self, row: Any) -> list[float]:
        return [self.real(x) for x in row]

    def step(self, factors: Any, columns: list[list[float]]) -> list[list[float]]:
        for factor in factors:
            b = [self.reals(x) for x in factor["b"]] if "b" in factor else [[0.0] * len(columns[0])] * len(columns)
            if "dense" in factor:
                rows = [self.reals(row) for row in factor["dense"]]
                columns = [[sum(a * x for a, x in zip(row, h, strict=True)) for row in rows] for h in columns]
            else:
                w, c = self.reals(factor["w"]), self.real(factor["c"])
                columns = (
                    [[a * x for a, x in zip(self.reals(factor["alpha"]), h, strict=True)] for h in columns]
                    if "alpha" in factor
                    else columns
                )
                dots = [c * sum(a * x for a, x in zip(w, h, strict=True)) for h in columns]
                columns = [[x - d * a for a, x in zip(w, h, strict=True)] for d, h in zip(dots, columns, strict=True)]
            columns = [[x + y for x, y in zip(h, g, strict=True)] for h, g in zip(columns, b, strict=True)]
        return columns

    def in_range(self) -> bool:
        rule, near = self.cert["range"], 1e-9
        heads = [h for entry in self.cert["layers"] for h in entry["heads"]]
        for factors in (step for h in heads for step in h["steps"]):
            if rule["factors"] is not None and len(factors) > rule["factors"]:
                return False
            for factor in factors:
                additive, w = rule["additive"], self.reals(factor.get("w", []))
                gates = self.reals(factor.get("alpha", [1]))
                beta = self.real(factor.get("c", 0)) * sum(x * x for x in w)
                good = all(rule["low"] - near <= a <= rule["high"] + near for a in gates) or "dense" in factor
                good &= beta >= -near and (rule["beta_max"] is None or beta <= rule["beta_max"] + near)
                good &= rule["gates"] == "channel" or len(set(gates)) == 1
                good &= rule["gates"] != "one" or gates[0] == 1
                good &= rule["dense"] or "dense" not in factor
                for b in (self.reals(x) for x in factor.get("b", [])):
                    good &= additive != "none"
                    if additive == "key" and any(b):
                        pairs = itertools.combinations(zip(b, w, strict=True), 2)
                        good &= all(abs(x * v - y * u) < near for (x, u), (y, v) in pairs) and beta > 0
                if not good:
                    return False
        return True

    def far(self, rows: list[tuple[float, ...]], codes: list[int], margin: Any) -> bool:
        pairs = [(x, y) for (x, a), (y, b) in itertools.combinations(zip(rows, codes, strict=True), 2) if a != b]
        return (margin is None) == (not pairs) and all(math.dist(x, y) >= Fraction(margin) - 1e-9 for x, y in pairs)

    def read(self, h: Cert, query: int, H: list[list[float]]) -> tuple[float, ...]:
        q = self.reals(h["queries"][query])
        return tuple(sum(a * x for a, x in zip(q, column, strict=True)) for column in H)

    def closure(self) -> bool:
        """The canonical search with matrices rounded to 6 places."""
        layers, automaton, claims = self.cert["layers"], self.cert["automaton"], self.cert["claims"]
        heads = [h for entry in layers for h in entry["heads"]]
        start = [[self.reals(x) for x in h["h0"]] for h in heads]
        names: list[dict[Any, int]] = [{} for _ in heads]
        rows: list[list[tuple[float, ...]]] = [[] for _ in heads]
        mats: list[set[Any]] = [{self.key(H)} for H in start]
        seen, queue = {(self.key(start), automaton["start"])}, [(start, automaton["start"])]
        for joint, state in queue:
            for token, target in enumerate(automaton["delta"][state]):
                after: list[Any] = []
                inputs, symbol = [token], -1
                for entry in layers:
                    picks = next(pick for key, pick in entry["inputs"] if key == inputs)
                    codes: list[int] = []
                    for h, step, query in zip(entry["heads"], picks[::2], picks[1::2], strict=True):
                        at = len(after)
                        after.append(self.step(h["steps"][step], joint[at]))
                        mats[at].add(self.key(after[at]))
                        row = self.read(h, query, after[at])
                        number = names[at].setdefault(self.key(row), len(names[at]))
                        rows[at] += [row] * (number == len(rows[at]))
                        codes.append(number if h["labels"] is None else h["labels"][number])
                    symbol = codes[0] if entry["emit"] is None else next(s for c, s in entry["emit"] if c == codes)
                    inputs.append(symbol)
                if symbol != target:
                    return False
                if (self.key(after), target) not in seen:
                    seen.add((self.key(after), target))
                    queue.append((after, target))
        flat: list[list[Any]] = [list(itertools.chain(*claims[key])) for key in ("states", "codes", "margin")]
        codes_of = [
            list(range(len(row))) if h["labels"] is None else h["labels"] for h, row in zip(heads, rows, strict=True)
        ]
        good = claims["joint"] == len(queue) and flat[:2] == [[len(x) for x in mats], [len(x) for x in rows]]
        return good and all(self.far(*claim) for claim in zip(rows, codes_of, flat[2], strict=True))

    def key(self, x: Any) -> Any:
        return round(x, 6) + 0.0 if isinstance(x, float) else tuple(self.key(y) for y in x)

    def span(self) -> bool:
        cert, rng = self.cert, random.Random(0)
        h = cert["layers"][0]["heads"][0]
        rows = [tuple(self.reals(row)) for row in cert["readouts"]]
        for _ in range(40):
            columns = [self.reals(x) for x in h["h0"]]
            state: int = cert["automaton"]["start"]
            for _ in range(25):
                if any(abs(x - y) > 1e-6 for x, y in zip(self.read(h, 0, columns), rows[state], strict=True)):
                    return False
                token = rng.randrange(len(cert["automaton"]["alphabet"]))
                step = next(pick[0] for key, pick in cert["layers"][0]["inputs"] if key == [token])
                columns, state = self.step(h["steps"][step], columns), cert["automaton"]["delta"][state][token]
        return self.far(rows, list(range(len(rows))), cert["claims"]["margin"])

    def holds(self) -> bool:
        return self.in_range() and (self.span() if self.cert["kind"] == "span" else self.closure())


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    keys: Any = value if hasattr(value, "keys") else range(len(value)) if hasattr(value, "append") else ()
    for key in keys:
        yield from places(value[key], (*path, key))


def mutants(cert: Cert, most: int) -> Iterator[Cert]:
    """Changes of one number, string, flag, entry or key, in a fixed random order."""
    found: list[tuple[tuple[Any, ...], str]] = []
    for path in places(cert):
        if path and path != ("digest",):
            found += [(path, how) for how in ("up", "down", "negate", "delete", "repeat", "swap", "null")]
    random.Random(7).shuffle(found)
    for path, how in found[:most]:
        mutant = copy.deepcopy(cert)
        parent: Any = mutant
        for key in path[:-1]:
            parent = parent[key]
        at, value = path[-1], parent[path[-1]]
        if how == "delete":
            del parent[at]
        elif how == "null":
            parent[at] = None
        elif how == "repeat" and isinstance(parent, list):
            parent.insert(at, copy.deepcopy(value))  # pyright: ignore[reportUnknownMemberType]
        elif how == "swap" and isinstance(parent, list) and at:
            parent[at - 1 : at + 1] = [value, parent[at - 1]]
        elif isinstance(value, bool):
            parent[at] = not value
        elif isinstance(value, int):
            parent[at] = {"up": value + 1, "down": value - 1}.get(how, -value)
        elif isinstance(value, str):
            parent[at] = (
                f"{Fraction(value) * (2 if how == 'up' else -1)}"
                if "/" in value and value[-1].isdigit() and value[0] != "s"
                else value + "x"
            )
        if mutant != cert:
            yield mutant


@pytest.mark.parametrize("name", MAKERS)
def test_a_true_claim_is_accepted_and_holds_in_floating_point(name: str) -> None:
    cert = MAKERS[name]()
    facts = verify(text(cert), expect=cert["digest"])
    assert (facts.digest, facts.kind) == (cert["digest"], cert["kind"])
    assert facts.joint == cert["claims"].get("joint")
    assert Floats(cert).holds()


@pytest.mark.parametrize("name", MAKERS)
def test_a_mutation_under_the_old_digest_is_refused(name: str) -> None:
    for mutant in mutants(MAKERS[name](), 120):
        with pytest.raises(Refused):
            verify(text(mutant))


@pytest.mark.parametrize("name", MAKERS)
def test_a_mutation_that_survives_under_its_own_digest_is_a_true_claim(name: str) -> None:
    cert = MAKERS[name]()
    total = survived = 0
    for mutant in mutants(cert, 500):
        total += 1
        signed = digested(mutant)
        try:
            verify(text(signed), max_joint=1000)
        except Refused:
            continue
        survived += 1
        assert Floats(signed).holds(), text(signed)
        with pytest.raises(Refused, match="digest"):
            verify(text(signed), expect=cert["digest"])
    assert survived < total / 3


@pytest.mark.parametrize("name", ["parity", "dense", "Z3", "two heads"])
def test_the_simulation_refutes_a_wrong_answer(name: str) -> None:
    cert = MAKERS[name]()
    cert["automaton"]["delta"][0].reverse()
    assert not Floats(cert).holds()
    with pytest.raises(Refused, match="wrong answer, after the word"):
        verify(text(digested(cert)))


def test_equal_reals_posing_as_two_are_refused() -> None:
    with pytest.raises(Refused, match="not separated as reals"):
        verify(text(posing(["1/2", 2])))


@pytest.mark.parametrize("interval", [[-2, 2], [2, 3], [-1, 0], ["-1/2", -2], [1, 1]])
def test_an_interval_without_exactly_one_root_is_refused(interval: list[Any]) -> None:
    with pytest.raises(Refused, match="no isolated root"):
        verify(text(posing(interval)))


@pytest.mark.parametrize(
    ("name", "path", "value", "message"),
    [
        ("parity", ["range", "beta_max"], 1, "beta out of range"),
        ("parity", ["range", "factors"], 0, "too many factors"),
        ("Z3", ["range", "gates"], "one", "wrong gates"),
        ("Z3", ["range", "gates"], "scalar", "wrong gates"),
        ("Z3", ["range", "low"], 0, "gate out of range"),
        ("Z3", ["field", "cos"], 5, "not a canonical element|wrong|differs"),
        ("Z3", ["layers", 0, "heads", 0, "derived", 0, 1], 0, "derived step differs"),
        ("Z3", ["layers", 0, "heads", 0, "derived", 0, 2], 2, "derived out of order"),
        ("Z3", ["claims", "margin", 0, 0], "9/5", "margin too large"),
        ("Z3", ["claims", "joint"], 2, "count differs"),
        ("Z3", ["claims", "joint"], 4, "count differs"),
        ("parity", ["claims", "states", 0, 0], True, "wrong entry"),
        ("parity", ["claims", "margin", 0, 0], "2/1", "not a canonical rational"),
        ("parity", ["claims", "joint"], 10**9, "too many joint states"),
        ("two columns", ["layers", 0, "heads", 0, "derived", 0, 1], 1, "derived step differs"),
        ("two columns", ["claims", "margin", 0, 0], "9/4", "margin too large"),
        ("flip-flop", ["range", "additive"], "none", "additive term"),
        ("flip-flop", ["layers", 0, "heads", 0, "steps", 0, 0, "b", 0, 1], 1, "off the key"),
        ("flip-flop", ["layers", 0, "heads", 0, "steps", 0, 0, "c"], 0, "without a key"),
        ("dense", ["range", "dense"], False, "dense factor"),
        ("dihedral", ["layers", 1, "inputs", 0, 0], [0, 2], "input not listed|unused"),
        ("two heads", ["layers", 0, "emit", 0, 0], [5, 5], "codes not listed"),
        ("span", ["readouts", 2, 0], 7, "readout differs"),
        ("span", ["claims", "margin"], "3/2", "margin too large"),
        ("span", ["claims", "margin"], None, "wrong margin"),
        ("span", ["automaton", "start"], 1, "readout differs"),
        ("parity", ["layers", 0, "heads", 0, "h0", 0, 0], [1, 0, 1], "not a canonical element"),
        ("parity", ["layers", 0, "heads", 0, "h0", 0, 0], [0], "not a canonical element"),
        ("Z5", ["layers", 0, "heads", 0, "h0", 0, 0], [2, 1, 2], "not a canonical element"),
        ("Z5", ["layers", 0, "heads", 0, "h0", 0, 0], [1, 2, 1, 1, 1], "not a canonical element"),
        ("Z5", ["layers", 0, "heads", 0, "h0", 0, 0], [1, 4, 1], "not a canonical element"),
        ("Z5", ["layers", 0, "heads", 0, "h0", 0, 0], True, "wrong entry"),
        ("Z5", ["field", "cos"], 100_001, "wrong entry"),
        ("Z5", ["field", "cos"], 99_991, "degree too large"),
    ],
)
def test_a_wrong_entry_is_named(name: str, path: list[Any], value: Any, message: str) -> None:
    cert = MAKERS[name]()
    parent: Any = cert
    for key in path[:-1]:
        parent = parent[key]
    parent[path[-1]] = value
    with pytest.raises(Refused, match=message):
        verify(text(digested(cert)))


@pytest.mark.parametrize("order", [5, 7, 8, 12, 15, 20, 21, 36, 60, 105, 156, 210, 1996])
def test_long_reductions_agree_with_cosines(order: int) -> None:
    field = checker.Cosines(order)
    for j in {*range(field.m, min(2 * field.m, order // 2 + 1)), field.m}:
        value = sum(n * (2 * math.cos(2 * math.pi * k / order) if k else 1) for k, n in field.reduced(j))
        assert value == pytest.approx(2 * math.cos(2 * math.pi * j / order), abs=1e-8)
    for k in range(1, field.m, 7):
        for bits in (64, 1024):
            lo, hi = field.value(k, bits)
            middle = Fraction(lo + hi, 2 << bits)
            assert hi - lo <= 4
            assert float(middle) == pytest.approx(2 * math.cos(2 * math.pi * k / order), abs=1e-12)


def test_every_truncation_is_refused() -> None:
    whole = text(parity())
    for size in range(len(whole)):
        with pytest.raises(Refused):
            verify(whole[:size])


@pytest.mark.parametrize(
    "bad",
    [
        "",
        "null",
        "[]",
        "{}",
        "[" * 100_000,
        '{"a":' * 100_000,
        "1" * 5000,
        '{"format": 1, "format": 1}',
        "1.5",
        "NaN",
        "-Infinity",
        '"\\ud800"',
    ],
)
def test_texts_that_are_no_certificates_are_refused_in_one_line(bad: str) -> None:
    with pytest.raises(Refused) as info:
        verify(bad)
    assert "\n" not in str(info.value)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"start": 0', '"start": 0.0'),
        ('"start": 0', '"start": false'),
        ('"start": 0', '"start": 0, "start": 0'),
        ('"c": 2', f'"c": {10**4000}'),
    ],
)
def test_floats_flags_repeated_keys_and_huge_numbers_are_refused(old: str, new: str) -> None:
    assert old in text(parity())
    changed = text(parity()).replace(old, new)
    with pytest.raises(Refused):
        verify(changed)
    if new.count("start") < 2 and "." not in new:
        with pytest.raises(Refused, match=r"wrong entry|beta out of range"):
            verify(text(digested(json.loads(changed))))


def test_the_checker_runs_alone(tmp_path: Path) -> None:
    shutil.copy(checker.__file__, tmp_path / "alone.py")
    certificate = text(dihedral())
    (tmp_path / "c.json").write_text(certificate)
    header = json.dumps({"__metadata__": {"certificate": certificate}}).encode()
    (tmp_path / "c.safetensors").write_bytes(len(header).to_bytes(8, "little") + header)
    for file, given in (("c.json", ""), ("c.safetensors", ""), ("-", certificate)):
        command = [sys.executable, "-I", "alone.py", file, "--expect", dihedral()["digest"]]
        done = subprocess.run(command, cwd=tmp_path, input=given, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, "")
        assert "10 joint states" in done.stdout


def test_bad_files_give_one_line_and_exit_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "short.safetensors").write_bytes(b"\xff" * 9)
    (tmp_path / "empty.safetensors").write_bytes(b"")
    (tmp_path / "bare.safetensors").write_bytes((2).to_bytes(8, "little") + b"{}")
    (tmp_path / "binary.json").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "parity.json").write_text(text(parity()))
    names = ["short.safetensors", "empty.safetensors", "bare.safetensors", "binary.json", "missing.json", ""]
    for arguments in [*([str(tmp_path / name)] for name in names), [str(tmp_path / "parity.json"), "--expect", "00"]]:
        assert checker.main(arguments) == 2
        error = capsys.readouterr().err
        assert error.startswith("refused: ")
        assert error.count("\n") == 1
    assert checker.main([str(tmp_path / "parity.json"), "--max-joint", "1"]) == 2
