"""Check a statetrack certificate (docs/certificate.md) with integers and the standard library alone, wherever it lies.

*Theorem (closure).* If `verify` accepts, then after every non-empty word the symbol of the last layer is the state that
the automaton reaches, over the real numbers, and every step is a product of factors in the stated range.
*Proof.* A joint state is one matrix for each head, with an automaton state. The search lists the start (all h0, start
state). For each listed one and each token it computes the exact images (token and symbols below select each head's step
and query, the step moves its matrix, the query reads it, the codebook names the readout, the codes give the symbol),
refuses unless the last symbol is the automaton's next state, and lists the image: induction on the word's length.
Coordinates over b_0..b_(m-1) multiply by rules true of the real b_k: equal coordinates are equal reals, so columns may
move one by one. The codebook is a function of the *real* readout because the b_k are a basis: Q(2cos(2π/N)) has degree
φ(N)/2, b_k is a monic integer polynomial of degree k in b_1. Intervals decide signs. In a head with a unit u, entries x
after a step, all rational, become u·floor(x/u) before the readout: the theorem is then about that rounding arithmetic.
*Theorem (span).* If `verify` accepts, then after every word qᵀH = readouts[state], and readouts of different states are
at least the margin apart. *Proof.* v = (column j of H, one-hot of the state) moves by a linear map with each token. The
image of each listed v is listed or a combination of listed ones, so their span holds every reached vector; and
q·h = Σ_s g_s readouts[s][j] is linear in v = (h, g) and true of each listed one.
*Not needed*, hence not trusted: orthogonality, group structure, minimality, lists of states, floating point.
"""

# pyright: basic
import argparse
import hashlib
import json
import sys
from collections import defaultdict
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import cache
from itertools import product
from math import ceil, gcd, isqrt, lcm, prod
from pathlib import Path
from typing import Any

# (den, ((k, n), ...)) is the number (Σ n b_k)/den: k ascending, n not 0, in lowest terms, den > 0.
Num = tuple[int, tuple[tuple[int, int], ...]]
Row = tuple[Num, ...]
ZERO, ONE, MINUS = (1, ()), (1, ((0, 1),)), (1, ((0, -1),))


class Refused(Exception):
    """The certificate is not accepted: what, got, expected, in one line."""

    def __init__(self, what: str, got: object, expected: object) -> None:
        super().__init__(f"{what}, got {ascii(got)[:90]}, expected {ascii(str(expected))[1:-1][:90]}")


def verify(text: str, expect: str | None = None, larger: Callable[[Any], "Field"] | None = None) -> dict[str, Any]:
    """What the certificate's text proves, as a few named facts. Raises Refused for everything that is no proof."""
    try:
        top: Any = json.loads(text, object_pairs_hook=unique, parse_float=int, parse_constant=int)
        kind = top["kind"]
        keys(top, "format kind field range layers automaton claims digest" + " readouts" * (kind == "span"))
        need(top["format"] == "statetrack-certificate/1" and kind in ("closure", "span"), "format", top["format"])
        canon = json.dumps({k: v for k, v in top.items() if k != "digest"}, sort_keys=True, separators=(",", ":"))
        digest = hashlib.sha256(canon.encode()).hexdigest()
        need(digest == top["digest"] and expect in (None, digest), "digest", digest, expect or top["digest"])
        rule = keys(top["range"], "target gates low high beta_max factors additive dense")
        automaton = keys(top["automaton"], "alphabet states outputs start delta")
        letters, states, delta = len(automaton["alphabet"]), len(automaton["states"]), automaton["delta"]
        good = len(automaton["outputs"]) == len(delta) == states and below([automaton["start"]], states)
        good = good and [letters, states] == [len({*automaton[name]}) for name in ("alphabet", "states")]
        kinds = [type(rule[key]).__name__[:3] for key in ("target", "gates", "additive", "low", "high", "dense")]
        good = good and kinds == [*3 * ["str"], "int", "int", "boo"] and len(top["layers"]) > 0
        need(good and all(below(row, *[states] * letters) for row in delta), "automaton", delta, "a total one")
        field = larger(top["field"]) if larger and "root" in top["field"] else Field(keys(top["field"], "cos")["cos"])
        layers = [Layer(field, rule, i, layer) for i, layer in enumerate(top["layers"])]
        joint, margins = (check_closure if kind == "closure" else check_span)(field, layers, top)
    except (LookupError, TypeError, AttributeError, ArithmeticError, ValueError, RecursionError, MemoryError) as error:
        raise Refused("certificate", f"{type(error).__name__}: {error}", "the format of docs/certificate.md") from error
    words = "non-empty word the answer is the automaton's state" if joint else "word the readout is that of the state"
    heads = [(head.K, head.V) for layer in layers for head in layer.heads]
    words += ", states being rounded down to units after every token" * ('"unit":' in canon)  # only a key reads so
    facts = {"proved": f"after every {words}", "digest": digest, "kind": kind, "target": rule["target"]}
    return facts | {"symbols": letters, "states": states, "joint": joint, "heads": heads, "margins": margins}


def main(check: Callable[[str, str | None], dict[str, Any]] = verify) -> int:
    """The command line: 0 and a few lines on acceptance, 2 and one line on standard error on refusal."""
    parser = argparse.ArgumentParser(description="check a statetrack certificate with exact integers")
    parser.add_argument("file", help="a certificate as JSON")
    parser.add_argument("--expect", help="the digest that the certificate must have")
    options = parser.parse_args()
    try:
        facts = check(Path(options.file).read_text("utf-8"), options.expect)
        print("accepted", *(f"{key}: {value!a}" for key, value in facts.items()), sep="\n")
    except (Refused, OSError, ValueError) as error:
        print("refused:", *str(error).split(), file=sys.stderr)
        return 2
    return 0


def need(good: bool, what: str, got: object, expected: object = "docs/certificate.md") -> None:
    """Refuse unless good."""
    if not good:
        raise Refused(what, got, expected)


def keys(value: Any, names: str, optional: str = "") -> Any:
    """The object itself, refused unless it has just these keys."""
    need(set(names.split()) <= set(value.keys()) <= set(f"{names} {optional}".split()), "keys", value, names)
    return value


def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object, refused if a key stands twice."""
    need(len(dict(pairs)) == len(pairs), "repeated key", [key for key, _ in pairs], "each key once")
    return dict(pairs)


def rational(value: Any) -> int | Fraction:
    """An integer or "p/q"."""
    return value if type(value) is int else Fraction(value if {*value} <= {*"-/0123456789"} else "no number")


def below(values: Any, *limits: int) -> bool:
    """Whether a list holds one integer in range(limit) for each limit."""
    good = type(values) is list and len(values) == len(limits)
    return good and all(type(x) is int and 0 <= x < limit for x, limit in zip(values, limits, strict=True))


class Numbers(dict[Any, int]):
    """Numbers things 0, 1, 2, ... in the order in which they are asked for; `listed` gives them back."""

    def __init__(self, *things: Any) -> None:
        super().__init__({x: i for i, x in enumerate(things)})
        self.listed = [*things]

    def __missing__(self, key: Any) -> int:
        self.listed.append(key)
        return self.setdefault(key, len(self))


class Field:
    """K_N: b_0 = 1, b_k = 2cos(2πk/N), and b_i b_j = b_(i+j) + b_|i-j| with 2 for that rule's b_0."""

    def __init__(self, size: Any) -> None:
        need(type(size) is int and 0 < size <= 100_000, "conductor", size, "1 to 100000")
        self.primes = [p for p in range(2, size + 1) if size % p == 0 and all(p % d for d in range(2, isqrt(p) + 1))]
        self.N, self.basis, self.value, self.at_least = size, cache(self.basis), cache(self.value), cache(self.at_least)
        self.m = max(1, size * prod(p - 1 for p in self.primes) // prod(self.primes) // 2)

    def basis(self, j: int) -> Sequence[tuple[int, int]]:
        """2cos(2πj/N) over the basis, for any integer j."""
        m, i, sign = self.m, min(j % self.N, -j % self.N), 1
        if self.N % 2 == 0 and 4 * i > self.N:
            i, sign = self.N // 2 - i, -1
        if i < m or 4 * i == self.N:
            return () if 4 * i == self.N else ((i, sign if i else 2 * sign),)
        # Φ_N = Π over squarefree e | N of (1 - x^(N/e))^μ(e), up to sign; a_0..a_m are enough, as a_(m+k) = a_(m-k).
        series = [1] + [0] * m
        for chosen in product((False, True), repeat=len(self.primes)):
            step = self.N // prod(p for p, taken in zip(self.primes, chosen, strict=True) if taken)
            inverse = sum(chosen) % 2 == 1
            for at in range(step, m + 1) if inverse else range(m, step - 1, -1):
                series[at] += series[at - step] if inverse else -series[at - step]
        # Subtract multiples b_s (a_m + Σ a_(m+k) b_k) = 0 of the relation that Φ_N gives.
        work = defaultdict[int, int](int, {i: sign})
        for high in range(i, m - 1, -1):
            for k in range(m + 1) if (count := work[high]) else ():
                for index, n in raw(high - m, k):
                    work[index] -= count * series[m - k] * n
        return [(k, n) for k, n in sorted(work.items()) if n]

    def dot(self, u: Sequence[Num], v: Sequence[Num]) -> Num:
        """Σ u_i v_i, canonical."""
        pairs = [(x, y) for x, y in zip(u, v, strict=True) if x[1] and y[1]]
        den, total = lcm(*[x[0] * y[0] for x, y in pairs]), defaultdict[int, int](int)
        for (d, xs), (e, ys) in pairs:
            for (k, a), (j, b) in product(xs, ys):
                for index, n in raw(k, j):
                    for low, unit in ((index, 1),) if index < self.m else self.basis(index):
                        total[low] += a * b * n * unit * (den // (d * e))
        divisor = gcd(den, *total.values())
        return den // divisor, tuple([(k, n // divisor) for k, n in sorted(total.items()) if n])

    def enclose(self, x: Num, bits: int) -> tuple[int, int]:
        """Integers lo <= 2^bits den x <= hi."""
        ends = [sorted([n * end for end in self.value(k, bits)]) for k, n in x[1]]
        return sum([lo for lo, _ in ends]), sum([hi for _, hi in ends])

    def at_least(self, x: Num, y: Num, bits: int = 64) -> bool:
        """x >= y; equal numbers have equal coordinates, so the intervals of x - y exclude 0 in the end."""
        lo, hi = self.enclose(self.dot((x, y), (ONE, MINUS)), bits)
        need(bits < 1 << 15, "sign", (x, y), "numbers that differ within 2^15 bits")
        return True if x == y or lo > 0 else False if hi < 0 else self.at_least(x, y, 2 * bits)

    def value(self, k: int, bits: int) -> tuple[int, int]:
        """Integers lo <= 2^bits b_k <= hi."""
        # In units of 2^-q: each arctan errs by under 3(q + 1), so pi, the angle x < pi and cos x by under 60q + 61, and
        # y adds 1. A term's error e grows to at most 10e/((n-1)n) + 2 < 4, for at most q terms; the rest of the series
        # is below 4. So 2cos x is within 2(64q + 70) < 2^31 for q <= 2^15 + 32, and the shift costs 1 more.
        q, pi = bits + 32, 0
        for base, factor in (5, 16), (239, -4):
            power, n = (1 << q) // base, 1
            while power:
                pi, power, n = pi + factor * (power // n) * (2 - n % 4), power // (base * base), n + 2
        y, term, total, n = (2 * k * pi // self.N) ** 2 >> q, 1 << q, 0, 0
        while term:
            total, term, n = total + term, -((term * y >> q) // ((n + 1) * (n + 2))), n + 2
        return ((total >> 31) - 2, (total >> 31) + 2) if k else (1 << bits, 1 << bits)

    def number(self, value: Any) -> Num:
        """An integer, "p/q", or [den, k, n, k, n, ...]."""
        if type(value) is not list:
            q = rational(value)
            return q.denominator, ((0, q.numerator),) if q else ()
        good = len(value) % 2 == 1 and all(type(x) is int for x in value) and value[0] > 0
        need(good and below(value[1::2], *[self.m] * (len(value) // 2)), "number", value)
        terms = zip(value[1::2], value[2::2], strict=True)
        return self.dot([(value[0], (term,)) for term in terms], [ONE] * (len(value) // 2))

    def row(self, value: Any, length: int) -> Row:
        """A list of numbers."""
        need(type(value) is list and len(value) == length > 0, "vector", value, f"{length} numbers")
        return tuple([self.number(x) for x in value])


def raw(i: int, j: int) -> tuple[tuple[int, int], ...]:
    """b_i b_j over b_0 = 1, b_1, b_2, ... without reduction."""
    return ((i + j, 1),) if i == 0 or j == 0 else ((i + j, 1), (abs(i - j), 2 if i == j else 1))


class Head:
    """Exact maps; numbers for columns, matrices, readouts. With additive terms a column is kept as (column, e_j)."""

    def __init__(self, field: Field, rule: Any, data: Any) -> None:
        self.field, self.labels = field, keys(data, "h0 steps derived queries labels", "unit")["labels"]
        self.floor = rational(data["unit"]) if "unit" in data else None
        need(self.floor is None or (self.floor > 0 and not data["derived"]), "unit", data, "above 0, no derived steps")
        self.K, self.V = len(data["h0"][0]), len(data["h0"])
        more = self.V * any("b" in factor for step in data["steps"] for factor in step)
        self.unit: list[Row] = [(ZERO,) * i + (ONE,) + (ZERO,) * (self.K + more - 1 - i) for i in range(self.K + more)]
        self.place = {row: i for i, row in enumerate(self.unit)}
        self.queries = [field.row(query, self.K) + (ZERO,) * more for query in data["queries"]]
        self.steps = [self.compose(rule, step) for step in data["steps"]]
        self.column, self.move, self.code = map(cache, (self.column, self.move, self.code))
        for a, b, c in data["derived"]:
            need(self.after(self.steps[b], self.steps[c]) == self.steps[a], "derived", (a, b, c), "a is b after c")
        self.derived: dict[int, tuple[int, int]] = {a: (b, c) for a, b, c in data["derived"]}
        marks = [row[self.K :] for row in self.unit[self.K :]] or [()] * self.V
        self.h0 = [field.row(column, self.K) + mark for column, mark in zip(data["h0"], marks, strict=True)]
        self.columns, self.readouts = Numbers(*dict.fromkeys(self.h0)), Numbers()
        self.matrices = Numbers(tuple([self.columns[column] for column in self.h0]))

    def after(self, second: Sequence[Row], first: Sequence[Row]) -> list[Row]:
        """The matrix of doing first, then second."""
        columns, place, dot = list(zip(*first, strict=True)), self.place, self.field.dot
        return [first[place[row]] if row in place else tuple([dot(row, x) for x in columns]) for row in second]

    def compose(self, rule: Any, step: list[Any]) -> list[Row]:
        """The matrix of a step, refused unless every factor is in range."""
        K, field, dot, one, total = self.K, self.field, self.field.dot, self.unit, self.unit
        need(type(step) is list and (rule["factors"] is None or len(step) <= rule["factors"]), "factors", step, rule)
        for factor in step:
            b = [field.row(column, K) for column in factor["b"]] if "b" in factor else [(ZERO,) * K] * self.V
            w, c, gates = (ZERO,) * K, ZERO, (ONE,) * K
            if "dense" in factor:
                need(keys(factor, "dense", "b") == factor and rule["dense"] is True, "dense factor", factor, rule)
                rows = [field.row(row, K) for row in factor["dense"]]
            else:
                w, c = field.row(keys(factor, "w c", "alpha b")["w"], K), field.number(factor["c"])
                gates = field.row(factor["alpha"], K) if "alpha" in factor else gates
                low, high, beta = field.number(rule["low"]), field.number(rule["high"]), dot((c,), (dot(w, w),))
                good = all(field.at_least(g, low) and field.at_least(high, g) for g in set(gates))
                good = good and {"channel": True, "scalar": len({*gates}) == 1, "one": {*gates} == {ONE}}[rule["gates"]]
                most = beta if rule["beta_max"] is None else field.number(rule["beta_max"])
                need(good and field.at_least(c, ZERO) and field.at_least(most, beta), "factor", (gates, beta), rule)
                v = [dot((c,), (dot((x,), (MINUS,)),)) if x[1] else x for x in w]
                plain = [[dot((e, x), (ONE, y)) if x[1] and y[1] else e for e, y in zip(u, w)] for u, x in zip(one, v)]  # noqa: B905
                rows = [tuple([dot((x,), (g,)) if x[1] and g != ONE else x for x, g in zip(r, gates)]) for r in plain]  # noqa: B905
            if rule["additive"] != "any" and any(x != ZERO for column in b for x in column):
                i = next((i for i, x in enumerate(w) if x != ZERO), 0)
                good = all(dot((x[i],), (y,)) == dot((w[i],), (z,)) for x in b for y, z in zip(w, x, strict=True))
                need(good and ZERO not in (c, w[i]) and rule["additive"] == "key", "b", b, "multiples of w, c not 0")
            need(len(b) == self.V and len(rows) == K, "factor", factor, f"{K} rows, {self.V} columns")
            wide = [row + tuple([x[i] for x in b])[: len(self.unit) - K] for i, row in enumerate(rows)]
            total = self.after(wide + self.unit[K:], total)
        return list(total)

    def column(self, step: int, x: int) -> int:
        """The number of a column's image, rounded down to multiples of the unit where there is one."""
        if step in self.derived:
            b, c = self.derived[step]
            return self.column(b, self.column(c, x))
        old, u, number = self.columns.listed[x], self.floor, self.field.number
        new = [self.field.dot(row, old) for row in self.steps[step]]
        if u is not None:
            need(not any(k for y in (*old, *new) for k, _ in y[1]), "entries of a head with a unit", new, "rationals")
            new[: self.K] = [number(str(u * (Fraction(dict(t).get(0, 0), den) // u))) for den, t in new[: self.K]]
        return self.columns[tuple(new)]

    def move(self, step: int, matrix: int) -> int:
        """The number of the matrix after a step."""
        return self.matrices[tuple([self.column(step, x) for x in self.matrices.listed[matrix]])]

    def code(self, query: int, matrix: int) -> int:
        """The code of the matrix's readout."""
        columns = [self.columns.listed[x] for x in self.matrices.listed[matrix]]
        number = self.readouts[tuple([self.field.dot(self.queries[query], column) for column in columns])]
        return number if self.labels is None else self.labels[number]


class Layer:
    """Heads, the table from inputs to (step, query) a head, and the table from codes to symbols."""

    def __init__(self, field: Field, rule: Any, index: int, data: Any) -> None:
        self.heads = [Head(field, rule, head) for head in keys(data, "heads inputs emit")["heads"]]
        sizes = [size for head in self.heads for size in (len(head.steps), len(head.queries))]
        good = all(len(key) == index + 1 and below(picks, *sizes) for key, picks in data["inputs"])
        self.inputs = {tuple(key): [*zip(self.heads, p[::2], p[1::2], strict=True)] for key, p in data["inputs"]}
        self.emit = None if data["emit"] is None else {tuple(codes): symbol for codes, symbol in data["emit"]}
        self.unused = {*self.inputs, *(((), *codes) for codes in self.emit or ())}
        good = good and len(self.unused) == len(data["inputs"]) + len(data["emit"] or ())
        need(good and (len(self.heads) == 1 or self.emit is not None), "inputs and emit", index, sizes)

    def advance(self, key: tuple[int, ...], joint: tuple[int, ...], mats: list[int]) -> int:
        """The symbol for an input; appends the heads' new matrices to `mats`."""
        codes: list[int] = []
        for head, step, query in self.inputs[key]:
            mats.append(head.move(step, joint[len(mats)]))
            codes.append(head.code(query, mats[-1]))
        self.unused -= {key, ((), *codes)}
        return codes[0] if self.emit is None else self.emit[tuple(codes)]


def check_closure(field: Field, layers: list[Layer], top: Any) -> tuple[int, list[Fraction | None]]:
    """The number of joint states and the margins; every edge agrees with the automaton, no entry is unused."""
    claims, delta = keys(top["claims"], "joint states codes margin"), top["automaton"]["delta"]
    heads = [head for layer in layers for head in layer.heads]
    joints = Numbers((*[0] * len(heads), top["automaton"]["start"]))
    for joint in joints.listed:
        for token, target in enumerate(delta[joint[-1]]):
            key, mats = (token,), list[int]()
            for layer in layers:
                key = (*key, layer.advance(key, joint, mats))
            if key[-1] != target or joints[(*mats, target)] >= min(claims["joint"], 5_000_000):
                raise Refused("answer, or number of joint states", (key[-1], len(joints)), (target, claims["joint"]))
    unused = [layer.unused for layer in layers] + [{*range(len(delta))} - {joint[-1] for joint in joints}]
    need(not any(unused), "inputs, codes or states out of reach", unused, "none")
    states = [[len(head.matrices) for head in layer.heads] for layer in layers]
    codes = [[len(head.readouts) for head in layer.heads] for layer in layers]
    found = {"joint": len(joints), "states": states, "codes": codes, "margin": claims["margin"]}
    good = all(h.labels is None or len(h.labels) == len(h.readouts) for h in heads)
    need(good and claims == found and [*map(len, claims["margin"])] == [*map(len, codes)], "claims", claims, found)
    margins = zip(heads, [m for row in claims["margin"] for m in row], strict=True)
    return len(joints), [apart(field, h.readouts.listed, h.labels, m) for h, m in margins]


def check_span(field: Field, layers: list[Layer], top: Any) -> tuple[int, list[Fraction | None]]:
    """The margin, after listing vectors that span all reached ones, and checking the equation on each."""
    (layer,), delta = layers, top["automaton"]["delta"]
    (head,), tokens = layer.heads, range(len(delta[0]))
    readouts = [field.row(row, head.V) for row in top["readouts"]]
    good = len(head.queries) == 1 and layer.emit is head.labels is head.floor is None and len(readouts) == len(delta)
    need(good and sorted(layer.inputs) == [(t,) for t in tokens], "network", "other", "one query, an input each token")
    for j, column in enumerate(head.h0):
        echelon, queue = dict[int, dict[int, Fraction]](), [(column, top["automaton"]["start"])]
        for h, s in queue:
            x = {i * field.m + k: Fraction(n, den) for i, (den, terms) in enumerate(h) for k, n in terms}
            x[len(h) * field.m + s] = Fraction(1)
            # Subtract multiples of the echelon's rows until nothing is left, or a row with a new first entry.
            while x and (row := echelon.setdefault(min(x), x)) is not x:
                scale = x[min(x)] / row[min(x)]
                x = {i: n for i in x.keys() | row.keys() if (n := x.get(i, 0) - scale * row.get(i, 0))}
            if x:
                need(field.dot(head.queries[0], h) == readouts[s][j], "readout", f"column {j}", "the one of the state")
                moved = [tuple([field.dot(row, h) for row in head.steps[layer.inputs[t,][0][1]]]) for t in tokens]
                queue += zip(moved, delta[s], strict=True)
    return 0, [apart(field, readouts, None, keys(top["claims"], "margin")["margin"])]


def apart(field: Field, rows: Sequence[Row], labels: Sequence[int] | None, claim: Any) -> Fraction | None:
    """The claimed margin; refused unless rows of different labels are so far apart (None: all labels are equal)."""
    codes, margin = labels or range(len(rows)), None if claim is None else Fraction(rational(claim))
    need((margin is None or margin > 0) and (margin is None) == (len({*codes}) < 2), "margin", claim, "> 0 or null")
    if margin is None:
        return None
    den, bits = lcm(*[x[0] for row in rows for x in row]), 64
    ends = {x: field.enclose(x, bits) for row in rows for x in row}
    radius = max((hi - lo) * (den // x[0]) for x, (lo, hi) in ends.items())
    points = [[ends[x][0] * (den // x[0]) for x in row] for row in rows]
    # Each real times den 2^bits lies in [point, point + radius], so differences are off by at most the radius, and
    # readouts in cells that do not touch are more than `side` apart.
    side, square = margin * den * 2**bits, field.number(str(margin * margin))
    limit = ceil((side + radius * (isqrt(len(rows[0])) + 1)) ** 2)
    grid: dict[tuple[int, ...], list[int]] = defaultdict(list)
    for i, point in enumerate(points):
        grid[tuple([x // (ceil(side) + radius) for x in point[:4]])].append(i)
    for cell, group in grid.items():
        others = [x for x in product(*[(x - 1, x, x + 1) for x in cell]) if x >= cell and x in grid]
        for i, j in [(i, j) for other in others for j in grid[other] for i in group if i < j or other != cell]:
            if codes[i] != codes[j] and sum([(x - y) ** 2 for x, y in zip(points[i], points[j], strict=True)]) < limit:
                gap = [field.dot((x, y), (ONE, MINUS)) for x, y in zip(rows[i], rows[j], strict=True)]
                need(field.at_least(field.dot(gap, gap), square), "margin", claim, f"the distance of readouts {i}, {j}")
    return margin


if __name__ == "__main__":
    sys.exit(main())
