"""The checker on hand-made and produced certificates, on their mutations, and on texts that are no certificates."""

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
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from statetrack import api
from statetrack.proofs_check import checker
from statetrack.proofs_check.checker import Field, Refused, verify

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


def build(layers: list[Cert], delta: list[list[int]], claims: Any, **ranged: Any) -> Cert:
    names, letters = [str(s) for s in range(len(delta))], [f"t{t}" for t in range(len(delta[0]))]
    automaton = {"alphabet": letters, "states": names, "outputs": names, "start": 0, "delta": delta}
    rule = RANGE | {"additive": "none", "dense": False} | ranged
    top = {"format": "statetrack-certificate/1", "kind": "closure", "field": {"cos": 1}, "range": rule}
    claims = dict(zip(("joint", "states", "codes", "margin"), claims, strict=True))
    return digested(top | {"layers": layers, "automaton": automaton, "claims": claims})


def each(count: int) -> list[Any]:
    return [[[t], [t, 0]] for t in range(count)]


def parity() -> Cert:
    steps = [[], [{"w": [1], "c": 2}]]
    return build([layer([head([[1]], steps, [[1]])], each(2))], [[0, 1], [1, 0]], (2, [[2]], [[2]], [[2]]))


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


def span(extra: bool = False) -> Cert:
    perms = [(1, 2, 3, 4, 5, 0), (1, 0, 2, 3, 4, 5)]
    size = 6 + extra
    steps = [[{"dense": [[int(p[j] == i) if j < 6 else 0 for j in range(size)] for i in range(6)]}] for p in perms]
    for step in steps if extra else ():
        step[0]["dense"].append([1, 0, 0, 0, 0, 0, 2])
        step[0]["b"] = [[0] * 6 + [1]]
    one_hot = [[1] + [0] * (size - 1)]
    delta = [[p[s] for p in perms] for s in range(6)]
    network = [layer([head(one_hot, steps, [[*range(6)] + [0] * extra])], each(2))]
    cert = build(network, delta, (0, [], [], []), dense=True, additive="any")
    return digested(cert | {"kind": "span", "claims": {"margin": 1}, "readouts": [[s] for s in range(6)]})


MAKERS = {"parity": parity, "flip-flop": flip_flop, "two-columns": two_columns, "dense": dense, "span": span}
MAKERS["unbounded"] = lambda: span(True)
SPAN = "(0|1(01*0)*1)*"
CKDA = ["Z2", "Z3", "D7", "S3", "A4", "S4"]
LARGE = {"Z60": "ckda", "A5": "ckda", "S5": "deltaproduct"}
MORE = {"Z7": "deltanet", "Z2xZ2": "diag[-1,1]", "(ab)*": "unconstrained", SPAN: "deltaproduct"}
PRODUCED = dict.fromkeys(CKDA, "ckda") | MORE | LARGE
COUNTS = dict.fromkeys(MAKERS, 400) | dict.fromkeys([*CKDA, *MORE], 1050) | {"S4": 600}


@cache
def produced(name: str) -> str:
    source, proof = f"regex:{name}" if "*" in name else name, "span" if name == SPAN else "closure"
    return api.build(source, PRODUCED[name], proof=proof, check=False).certificate.text()


def make(name: str) -> Cert:
    return json.loads(produced(name) if name in PRODUCED else text(MAKERS[name]()))


text = json.dumps


class Floats:
    """The claim of a certificate simulated in doubles, with nothing of the checker's."""

    def __init__(self, cert: Cert):
        self.cert = cert
        order = cert["field"]["cos"]
        self.basis = [1.0] + [2 * math.cos(2 * math.pi * k / order) for k in range(1, max(order // 2, 2))]

    def real(self, x: Any) -> float:
        if type(x) is not int and type(x) is not str:
            numbers: list[int] = x
            pairs = zip(numbers[1::2], numbers[2::2], strict=True)
            return sum(n * self.basis[k] for k, n in pairs) / numbers[0]
        return float(Fraction(x))

    def reals(self, row: Any) -> list[float]:
        return [*map(self.real, row)]

    def step(self, factors: Any, columns: list[list[float]]) -> list[list[float]]:
        for factor in factors:
            b = [self.reals(x) for x in factor["b"]] if "b" in factor else [[0.0] * len(columns[0])] * len(columns)
            if "dense" in factor:
                rows = [self.reals(row) for row in factor["dense"]]
                columns = [[sum(a * x for a, x in zip(row, h, strict=True)) for row in rows] for h in columns]
            else:
                w, c = self.reals(factor["w"]), self.real(factor["c"])
                gates = self.reals(factor.get("alpha", [1] * len(w)))
                columns = [[a * x for a, x in zip(gates, h, strict=True)] for h in columns]
                dots = [c * sum(a * x for a, x in zip(w, h, strict=True)) for h in columns]
                columns = [[x - d * a for a, x in zip(w, h, strict=True)] for d, h in zip(dots, columns, strict=True)]
            columns = [[x + y for x, y in zip(h, g, strict=True)] for h, g in zip(columns, b, strict=True)]
        return columns

    def in_range(self) -> bool:
        rule, near, good = self.cert["range"], 1e-9, True
        steps = [step for entry in self.cert["layers"] for h in entry["heads"] for step in h["steps"]]
        good &= rule["factors"] is None or all(len(step) <= rule["factors"] for step in steps)
        for factor in [factor for step in steps for factor in step]:
            w, beta = self.reals(factor.get("w", [])), 0.0
            if "dense" in factor:
                good &= rule["dense"] is True
            else:
                beta, gates = self.real(factor["c"]) * sum(x * x for x in w), self.reals(factor.get("alpha", [1]))
                good &= all(self.real(rule["low"]) - near <= a <= self.real(rule["high"]) + near for a in gates)
                good &= beta >= -near and (rule["beta_max"] is None or beta <= self.real(rule["beta_max"]) + near)
                good &= rule["gates"] == "channel" or len(set(gates)) == 1
                good &= rule["gates"] != "one" or gates[0] == 1
            for b in [b for b in map(self.reals, factor.get("b", [])) if any(b) and rule["additive"] != "any"]:
                pairs = itertools.combinations(zip(b, w, strict=True), 2)
                good &= beta > 0 and all(abs(x * v - y * u) < near for (x, u), (y, v) in pairs)
                good &= rule["additive"] == "key"
        return good

    def far(self, rows: list[tuple[float, ...]], codes: list[int], margin: Any) -> bool:
        pairs = [(x, y) for (x, a), (y, b) in itertools.combinations(zip(rows, codes, strict=True), 2) if a != b]
        return (margin is None) == (not pairs) and all(math.dist(x, y) >= Fraction(margin) - 1e-9 for x, y in pairs)

    def read(self, h: Cert, query: int, H: list[list[float]]) -> tuple[float, ...]:
        q = self.reals(h["queries"][query])
        return tuple(sum(a * x for a, x in zip(q, column, strict=True)) for column in H)

    def closure(self) -> bool:
        layers, automaton, claims = self.cert["layers"], self.cert["automaton"], self.cert["claims"]
        heads = [h for entry in layers for h in entry["heads"]]
        start = [[self.reals(x) for x in h["h0"]] for h in heads]
        names: list[dict[Any, int]] = [{} for _ in heads]
        rows: list[list[tuple[float, ...]]] = [[] for _ in heads]
        mats: list[set[Any]] = [{self.key(H)} for H in start]
        seen, queue = {(self.key(start), automaton["start"])}, [(start, automaton["start"])]
        used: set[tuple[Any, ...]] = set()
        for joint, state in queue:
            for token, target in enumerate(automaton["delta"][state]):
                after: list[Any] = []
                inputs, symbol = [token], -1
                for place, entry in enumerate(layers):
                    used.add((place, *inputs))
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
                    used |= set() if entry["emit"] is None else {(place, "emit", *codes)}
                    symbol = codes[0] if entry["emit"] is None else next(s for c, s in entry["emit"] if c == codes)
                    inputs.append(symbol)
                if symbol != target:
                    return False
                if (self.key(after), target) not in seen:
                    seen.add((self.key(after), target))
                    queue.append((after, target))
        flat: list[list[Any]] = [list(itertools.chain(*claims[key])) for key in ("states", "codes", "margin")]
        codes_of = [h["labels"] or list(range(len(row))) for h, row in zip(heads, rows, strict=True)]
        good = claims["joint"] == len(queue) and flat[:2] == [[len(x) for x in mats], [len(x) for x in rows]]
        good = good and len(used) == sum(len(entry["inputs"]) + len(entry["emit"] or []) for entry in layers)
        good = good and {state for _, state in queue} == set(range(len(automaton["delta"])))
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


def mutants(cert: Cert, count: int) -> Iterator[Cert]:
    """Changes of one number, string, flag, entry or key each, from a fixed seed; the digest stays."""
    rng, whole = random.Random(7), text(cert)
    found = [path for path in places(cert) if path and path not in (("digest",), ("format",))]
    while count:
        mutant: Any = json.loads(whole)
        parent, other, (*path, at) = mutant, cert, rng.choice(found)
        for key in path:
            parent = parent[key]
        for key in rng.choice(found):
            other: Any = other[key]
        value, how = parent[at], rng.choice(["step", "step", "other", "delete", "repeat", "swap", "null"])
        if how == "delete":
            del parent[at]
        elif how in ("null", "other"):
            parent[at] = None if how == "null" else other
        elif how in ("repeat", "swap") and hasattr(parent, "insert"):
            parent[at - 1 : at + 1] = (
                [*parent[at - 1 : at], value, value] if how == "repeat" else parent[at - 1 : at + 1][::-1]
            )
        elif isinstance(value, int):
            parent[at] = not value if isinstance(value, bool) else rng.choice([value + 1, value - 1, -value])
        elif isinstance(value, str):
            parent[at] = f"{Fraction(value) * rng.choice([2, -1, Fraction(1, 2)])}" if "/" in value else value + "x"
        if mutant != cert:
            count -= 1
            yield mutant


@pytest.mark.parametrize("name", [*MAKERS, *PRODUCED])
def test_a_true_claim_is_accepted_and_its_facts_are_named(name: str) -> None:
    cert = make(name)
    facts = verify(produced(name) if name in PRODUCED else text(cert), expect=cert["digest"])
    automaton, margin = cert["automaton"], cert["claims"]["margin"]
    sizes = {"symbols": len(automaton["alphabet"]), "states": len(automaton["states"])}
    margins: list[Any] = [margin] if cert["kind"] == "span" else [m for row in margin for m in row]
    heads = [(len(h["h0"][0]), len(h["h0"])) for entry in cert["layers"] for h in entry["heads"]]
    named = {"digest": cert["digest"], "kind": cert["kind"], "target": cert["range"]["target"]}
    more = {"joint": cert["claims"].get("joint", 0), "heads": heads, "margins": [*map(Fraction, margins)]}
    assert facts == {"proved": facts["proved"]} | named | sizes | more
    assert ("non-empty" in facts["proved"]) == (cert["kind"] == "closure")
    assert name in LARGE or Floats(cert).holds()


@pytest.mark.parametrize("name", COUNTS)
def test_a_mutation_is_refused_or_states_another_true_claim(name: str) -> None:
    cert, wrong, survivors = make(name), make(name), 0
    wrong["automaton"]["delta"][0][0] = (wrong["automaton"]["delta"][0][0] + 1) % len(wrong["automaton"]["delta"])
    assert not Floats(wrong).holds()
    for mutant in mutants(cert, COUNTS[name]):
        with pytest.raises(Refused):
            verify(text(mutant))
        signed = digested(mutant)
        with pytest.raises(Refused):
            verify(text(signed), expect=cert["digest"])
        try:
            verify(text(signed))
        except Refused:
            continue
        assert Floats(signed).holds(), text(signed)
        survivors += 1
    assert 0 < survivors < COUNTS[name] / 4


# certificate, path (h: the first head), JSON value, a part of the message
WRONG = """
parity range.beta_max 1 factor, | parity range.factors 0 factors, | parity h.steps.1.0.c -2 factor,
parity h.steps.1.0.alpha [2] factor, | parity h.steps.1.0.alpha ["-11/10"] factor, | Z3 range.gates "one" factor,
Z3 range.gates "scalar" factor, | Z3 range.low 0 factor, | Z3 range.high 0 factor, | Z3 range.gates "other" KeyError
Z3 h.derived [[2,1,0]] derived, | Z3 h.derived [[0,1,1]] derived, | two-columns h.derived [[3,1,1]] derived,
two-columns h.derived [[3,1,0]] derived,
Z3 claims.margin [["9/5"]] margin, | Z3 claims.margin [[0]] margin, | Z3 claims.margin [["-1/2"]] margin,
Z3 claims.margin [[null]] margin, | Z3 claims.joint 2 number.of.joint | Z3 claims.joint 4 claims,
Z3 claims.codes [[4]] claims, | Z3 claims.states [[2]] claims, | Z3 h.labels [0,1,2,3] claims,
Z3 h.labels [0,1] IndexError | Z3 h.labels [0,1,1] answer | parity claims.margin [[2],[]] claims,
parity claims.margin [[2,2]] claims, | parity claims.margin [] claims, | two-columns claims.margin [["9/4"]] margin,
flip-flop range.additive "none" b, | flip-flop h.steps.0.0.b.0.1 1 b, | flip-flop h.steps.0.0.c 0 b,
flip-flop h.steps.0.0.b [[1,0],[1,0]] factor, | dense range.dense false dense.factor | dense range.dense 1 .
Z2xZ2 layers.0.emit.0.0 [5,5] KeyError | Z2xZ2 layers.0.emit null inputs.and.emit
Z7 layers.1.inputs.0.0 [0,2] KeyError | Z7 layers.1.inputs.0.0 [0] inputs.and.emit
parity layers.0.inputs.1.1 [-1,0] inputs.and.emit | parity layers.0.inputs.1.1 [true,0] inputs.and.emit
parity layers.0.inputs.1.1 [1,0,0] ValueError | parity automaton.delta.1 [1,-2] automaton,
parity automaton.delta.1 [1,false] automaton, | parity automaton.start 2 automaton,
parity automaton.outputs [] automaton, | parity automaton.start 0.0 . | parity automaton.start false automaton,
span readouts.2 [7] readout, | span claims.margin "3/2" margin, | span claims.margin null margin,
span automaton.start 1 readout, | span layers.0.inputs [[[0],[0,0]]] network, | span h.labels [0,1,2,3,4,5] network,
unbounded h.steps.1.0.b [[1,0,0,0,0,0,1]] readout, | unbounded h.queries.0.6 1 readout,
parity h.h0 [] IndexError | parity h.h0 [[]] vector, | Z3 h.h0.0.0 [0,0,1] number, | Z3 h.h0.0.0 [-1,0,-1] number,
Z3 h.h0.0.0 [1,2,1] number, | Z3 h.h0.0.0 [1,-1,1] number, | Z3 h.h0.0.0 [1,0] number,
Z3 h.h0.0.0 [1,true,1] number,
Z3 h.h0.0.0 "1/0" ZeroDivisionError | Z3 h.h0.0.0 true . | Z3 h.h0.0.0 null . | Z3 h.h0.0.0 "nan" .
Z3 field.cos 100001 conductor, | Z3 field.cos true conductor, | Z3 field.cos 0 conductor, | Z3 field.cos 5 .
Z3 field {} keys, | Z3 field {"cos":12,"x":0} keys, | Z3 kind "span" keys,
Z3 format "statetrack-certificate/2" format,
"""
# against docs/certificate.md, though no false claim
ODD = """
Z7 layers.1.inputs.+ [["codes",3],[0,0]] . | parity h.h0.0.0 "1e0" . | parity claims.margin [["0.2e1"]] .
parity automaton.alphabet ["a","a"] . | parity automaton.states ["a","a"] . | parity range.target ["ckda"] .
parity layers [] . | dense range.low null . | dense range.additive 0 .
"""


def entries(table: str) -> list[list[str]]:
    return [entry.split(" ") for entry in table.strip().replace("\n", " | ").split(" | ")]


def altered(name: str, path: str, value: str) -> str:
    cert = make(name)
    parent: Any = cert
    *keys, last = path.replace("h.", "layers.0.heads.0.", path.startswith("h.")).split(".")
    for key in keys:
        parent = parent[int(key) if key.isdigit() else key]
    if last == "+":
        parent.append(None)
    parent[-1 if last == "+" else int(last) if last.isdigit() else last] = json.loads(value)
    return text(digested(cert))


@pytest.mark.parametrize(("name", "path", "value", "message"), entries(WRONG))
def test_a_wrong_entry_is_named(name: str, path: str, value: str, message: str) -> None:
    with pytest.raises(Refused, match=message):
        verify(altered(name, path, value))


@pytest.mark.parametrize(("name", "path", "value", "_"), entries(ODD))
def test_an_entry_against_the_format_is_refused(name: str, path: str, value: str, _: str) -> None:
    with pytest.raises(Refused):
        verify(altered(name, path, value))


def test_an_automaton_without_symbols_is_accepted() -> None:
    still = build([layer([head([[1]], [], [[1]])], [])], [[]], (1, [[1]], [[0]], [[None]]))
    assert verify(text(still))["symbols"] == 0
    cert = still | {"kind": "span", "claims": {"margin": None}, "readouts": [[1]]}
    assert verify(text(digested(cert)))["joint"] == 0
    with pytest.raises(Refused, match="readout"):
        verify(text(digested(cert | {"readouts": [[2]]})))


@pytest.mark.parametrize("order", [*range(1, 61), 105, 120, 156, 210, 385, 1155, 1996, 2048])
def test_reductions_and_enclosures_agree_with_cosines(order: int) -> None:
    field = Field(order)
    assert field.m == max(1, sum(math.gcd(j, order) == 1 for j in range(order)) // 2)
    for j in range(-order, 2 * field.m, max(1, order // 20)):
        terms = field.basis(j)
        value = sum(n * (2 * math.cos(2 * math.pi * k / order) if k else 1) for k, n in terms)
        assert all(0 <= k < field.m for k, _ in terms)
        assert value == pytest.approx(2 * math.cos(2 * math.pi * j / order), abs=1e-8)
    for k, bits in itertools.product(range(0, field.m, max(1, field.m // 5)), (64, 1024)):
        lo, hi = field.value(k, bits)
        expected = 2 * math.cos(2 * math.pi * k / order) if k else 1
        assert 0 <= hi - lo <= 4
        assert float(Fraction(lo + hi, 2 << bits)) == pytest.approx(expected, abs=1e-12)


def test_signs_of_close_numbers_are_right() -> None:
    """The convergents of 2cos(72 degrees), which is 1/golden ratio, lie on alternating sides."""
    field = Field(5)
    low, high, y = 0, 1, (1, ((1, 1),))
    for _ in range(60):
        low, high = high, low + high
        x = (high, ((0, low),))
        above = low * low + low * high > high * high
        assert field.at_least(x, y) == above
        assert field.at_least(y, x) != above


BAD = ["", "null", "[]", "{}", "[" * 100_000, '{"a":' * 100_000, "1" * 5000, '{"format": 1, "format": 1}', "1.5", "NaN"]
CUT = [text(parity())[:size] for size in range(1, len(text(parity())), 50)]


@pytest.mark.parametrize("bad", [*BAD, *CUT, "-Infinity", '"\\ud800"', '{"kind": {}}', '{"kind": "span"}'])
def test_texts_that_are_no_certificates_are_refused_in_one_line(bad: str) -> None:
    with pytest.raises(Refused) as info:
        verify(bad)
    assert "\n" not in str(info.value)


@pytest.mark.parametrize("name", ["Z7", "S5", SPAN])
def test_the_checker_runs_alone(name: str, tmp_path: Path) -> None:
    shutil.copy(checker.__file__, tmp_path / "checker.py")
    (tmp_path / "cert.json").write_text(produced(name))
    command = [sys.executable, "-I", "checker.py", "cert.json"]
    for more, code in (([], 0), (["--expect", make(name)["digest"]], 0), (["--expect", "00"], 2)):
        done = subprocess.run([*command, *more], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr.count("\n")) == (code, code // 2)
        assert ("after every" in done.stdout) == (code == 0)


def test_bad_files_give_one_line_and_exit_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "binary.json").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "lines.json").write_text(text(parity() | {"digest": "a\nb\r\n"}))
    (tmp_path / "parity.json").write_text(text(parity()))
    runs = [[str(tmp_path / name)] for name in ("binary.json", "lines.json", "missing.json", "", "\0")]
    for arguments in [*runs, [str(tmp_path / "parity.json"), "--expect", "00"]]:
        monkeypatch.setattr(sys, "argv", ["checker", *arguments])
        assert checker.main() == 2
        error = capsys.readouterr().err
        assert error.startswith("refused: ")
        assert error.count("\n") == 1
