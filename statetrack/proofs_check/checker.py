"""Check a statetrack certificate with integers and the standard library alone.

A certificate (`docs/certificate.md`) states exact weights of a network, an automaton, and that one tracks the other.

*Theorem (closure).* If `verify` accepts, then for every non-empty word the symbol of the last layer after the word is
the state that the automaton reaches, over the real numbers, and every factor of every step is in the stated range.
*Proof.* A joint state is one matrix for each head, with an automaton state. The search keeps a list J that begins with
the h0 matrices and the start state. For each member and token it computes the exact image of every head in turn: a
layer's input is the token with the symbols of the layers below, the head's step acts on the head's matrix, the query
reads the new matrix, the codebook names the readout, the codes give the symbol. It refuses unless the last symbol is
the automaton's next state, and appends the image to J if it is new. In the end J contains the start, is closed under
every token, and no edge is wrong: induction on the length of the word.
Arithmetic is on coordinates over b_0..b_(m-1) and uses only rules that the real b_k obey, so equal coordinates are
equal reals, and matrices may be named by the numbers of their columns. The codebook must be a function of the *real*
readout, so different coordinates must be different reals: for {cos} the b_k are a basis of K_N over Q, since K_N has
degree phi(N)/2 and b_k is a monic polynomial of degree k in b_1; for {minpoly} all columns and readouts are separated
by disjoint rational intervals. Signs (ranges, margins) are decided by integer intervals around the b_k, or by
coordinates that are all zero.

*Theorem (span).* If `verify` accepts, then q^T H = readouts[state reached] after every word, and readouts of different
states are at least `margin` apart. *Proof.* Let x = (column j of H, one-hot g of the state). A token maps x linearly to
(A_t h + sum(g) b_tj, g moved along delta). The checker closes the start vector under these maps, up to rational linear
combination, and checks q h = sum_s g_s readouts[s][j], a linear equation, on each spanning vector.

*Not needed*, so not trusted: irreducibility of minpoly, orthogonality, group structure, minimality of the automaton, a
list of states or edges, floating point, any other file of statetrack.
"""

import argparse
import hashlib
import json
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations, pairwise, product
from math import ceil, floor, gcd, isqrt, lcm, prod
from typing import Any, TypeAlias

# (den, ((i, n), ...)): the vector whose component i // m is the sum of n b_(i % m) / den; lowest terms, i ascending.
Vec: TypeAlias = tuple[int, tuple[tuple[int, int], ...]]
Rows: TypeAlias = Sequence[Sequence[Vec]]
Tree: TypeAlias = dict[str, Any]
Margins: TypeAlias = tuple[tuple[Fraction | None, ...], ...]
ZERO: Vec = (1, ())
ONE: Vec = (1, ((0, 1),))
MAX_ORDER, MAX_DEGREE, MAX_JOINT = 100_000, 4_096, 5_000_000

NATURAL, MARGIN = range(1 << 60), (None, int, str)
VECTOR = [(int, str, [int])]
FACTOR = ({"w": VECTOR, "c": VECTOR[0], "alpha?": VECTOR, "b?": [VECTOR]}, {"dense": [VECTOR], "b?": [VECTOR]})
HEAD = {
    "h0": [VECTOR],
    "steps": [[FACTOR]],
    "derived": [[NATURAL] * 3],
    "queries": [VECTOR],
    "labels": (None, [NATURAL]),
}
EMIT = (None, [[[NATURAL], NATURAL]])
CERTIFICATE: Tree = {
    "format": "statetrack-certificate/1",
    "kind": ("closure", "span"),
    "field": ({"cos": range(1, MAX_ORDER + 1)}, {"minpoly": [int], "interval": [(int, str), (int, str)]}),
    "range": {"target": str, "gates": ("one", "scalar", "channel"), "additive": ("none", "key", "any"), "dense": bool}
    | {"low": int, "high": int, "beta_max": (None, NATURAL), "factors": (None, NATURAL)},
    "layers": [{"heads": [HEAD], "inputs": [[[NATURAL], [NATURAL]]], "emit": EMIT}],
    "automaton": {"alphabet": [str], "states": [str], "outputs": [(bool, str)], "start": NATURAL, "delta": [[NATURAL]]},
    "digest": str,
}
CLOSURE = {"claims": {"joint": NATURAL, "states": [[NATURAL]], "codes": [[NATURAL]], "margin": [[MARGIN]]}}
SPAN = {"claims": {"margin": MARGIN}, "readouts": [VECTOR]}


class Refused(Exception):
    """The certificate is not accepted: what, where, got, expected."""

    def __init__(self, what: str, where: str, got: object, expected: object):
        super().__init__(f"{what}, {where}, got {show(got)}, expected {expected}")


@dataclass(frozen=True)
class Facts:
    """What an accepted certificate proves; `dims` is (K, V) and `margin` the claim of each head of each layer."""

    digest: str
    kind: str
    target: str
    alphabet: int
    states: int
    dims: tuple[tuple[tuple[int, int], ...], ...]
    joint: int | None
    margin: Margins


def verify(text: str, expect: str | None = None, max_joint: int = MAX_JOINT) -> Facts:
    """Facts proved by a certificate's text; `expect` pins its digest. Raises Refused for everything else."""
    try:
        top = parse(text)
        need(type(top) is dict, "not an object", "certificate", top, "a JSON object")
        fit(top, CERTIFICATE | (SPAN if top.get("kind") == "span" else CLOSURE), "certificate")
        body = {key: value for key, value in top.items() if key != "digest"}
        canon = json.dumps(body, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
        digest = hashlib.sha256(canon.encode()).hexdigest()
        need(digest == top["digest"], "digest differs", "digest", top["digest"], digest)
        need(expect in (None, digest), "digest differs", "digest", digest, expect)
        automaton, rule, field = top["automaton"], top["range"], read_field(top["field"])
        check_automaton(automaton)
        layers = [Layer(field, rule, i, entry) for i, entry in enumerate(top["layers"])]
        need(len(layers) > 0, "no layer", "layers", 0, "a layer")
        if top["kind"] == "span":
            joint, margin = None, span(field, layers, automaton, top)
        else:
            joint, margin = closure(field, layers, automaton, top["claims"], max_joint)
    except (ArithmeticError, ValueError, RecursionError, MemoryError) as error:
        raise Refused("computation failed", "certificate", str(error), "numbers of moderate size") from error
    dims = tuple(tuple((head.K, head.V) for head in layer.heads) for layer in layers)
    sizes = len(automaton["alphabet"]), len(automaton["states"])
    return Facts(digest, top["kind"], rule["target"], *sizes, dims, joint, margin)


def main(arguments: list[str] | None = None) -> int:
    """The command line: 0 and a few lines on acceptance, 2 and one line on stderr on refusal."""
    parser = argparse.ArgumentParser(description="check a statetrack certificate with exact integers")
    parser.add_argument("file", help="a .json or .safetensors file, or - for stdin")
    parser.add_argument("--expect", help="the digest that the certificate must have")
    parser.add_argument("--max-joint", type=int, default=MAX_JOINT, help="refuse beyond this many joint states")
    options, clock = parser.parse_args(arguments), time.perf_counter()
    try:
        facts = verify(read_text(options.file), options.expect, options.max_joint)
    except (Refused, OSError, ValueError, MemoryError) as error:
        line = error if isinstance(error, Refused) else f"unreadable, file, got {show(str(error))}, expected a file"
        print("refused:", line, file=sys.stderr)
        return 2
    dims = "; ".join(", ".join(f"{K} x {V}" for K, V in layer) for layer in facts.dims)
    margins = "; ".join(", ".join(str(value or "none") for value in layer) for layer in facts.margin)
    claim = f"after every non-empty word the network's answer is the automaton's state ({facts.joint} joint states)"
    if facts.kind == "span":
        claim = "after every word the readout is the one listed for the automaton's state"
    print(f"accepted: {facts.digest}\nproved: {claim}; target {show(facts.target)}")
    print(f"alphabet {facts.alphabet}, states {facts.states}, layers {len(facts.dims)}, hidden {dims}")
    print(f"margins {margins}; checked in {time.perf_counter() - clock:.2f} s")
    return 0


def show(value: object) -> str:
    """A short one-line ASCII form of any value."""
    try:
        text = ascii(value)
    except (ValueError, RecursionError):
        return "a huge value"
    return text if len(text) <= 90 else text[:87] + "..."


def need(good: bool, what: str, where: str, got: object, expected: object) -> None:
    """Refuse unless good."""
    if not good:
        raise Refused(what, where, got, expected)


def read_text(path: str) -> str:
    """The certificate's JSON text in a .json or .safetensors file or on stdin."""
    if path == "-":
        return sys.stdin.buffer.read().decode()
    with open(path, "rb") as stream:
        data = stream.read()
    if not path.endswith(".safetensors"):
        return data.decode()
    size = int.from_bytes(data[:8], "little")
    need(8 + size <= len(data), "truncated header", "file", len(data), f"{8 + size} bytes")
    found: Any = parse(data[8 : 8 + size].decode())
    for key in ("__metadata__", "certificate"):
        found = found.get(key) if hasattr(found, "get") else None
    fit(found, str, "__metadata__.certificate")
    return found


def parse(text: str) -> Any:
    """JSON without floats, NaN and repeated keys."""

    def unique(pairs: list[tuple[str, Any]]) -> Tree:
        found = dict(pairs)
        need(len(found) == len(pairs), "repeated key", "JSON text", [key for key, _ in pairs], "each key once")
        return found

    def number(token: str) -> Any:
        raise Refused("not an integer", "JSON text", token, "integers only")

    try:
        return json.loads(text, object_pairs_hook=unique, parse_float=number, parse_constant=number)
    except (ValueError, RecursionError) as error:
        raise Refused("not JSON", "text", str(error), "one JSON object") from error


def fit(value: Any, shape: Any, where: str) -> None:
    """Refuse a value that has not the shape: a type, word, range, None, (this, or), [each], [first, second], {...}."""
    kind: Any = shape.__class__
    given: Any = value.__class__
    good = value is shape or given is shape
    if kind is tuple:
        for choice in shape:
            try:
                return fit(value, choice, where)
            except Refused:
                continue
    elif kind is list:
        good = given is list and len(shape) in (1, len(value))
        for i, entry in enumerate(value if good else ()):
            fit(entry, shape[i % len(shape)], f"{where}[{i}]")
    elif kind is dict:
        keys: Tree = {key.removesuffix("?"): each for key, each in shape.items()}
        good = given is dict and {*value, *(key for key in keys if key not in shape)} == set(keys)
        for key in value if good else ():
            fit(value[key], keys[key], f"{where}.{key}")
    elif kind is str:
        good = given is str and value == shape
    elif kind is range:
        good = given is int and value in shape
    return need(good, "wrong entry", where, value, f"as in docs/certificate.md: {show(shape)}")


def rational(value: Any, where: str) -> Fraction:
    """An integer, or "p/q" in lowest terms with q > 1."""
    number = Fraction(value if type(value) is int or set(value) <= set("-/0123456789") else 0)
    spelled = number.numerator if number.denominator == 1 else str(number)
    good = type(spelled) is type(value) and spelled == value
    need(good, "not a canonical rational", where, value, "an integer, or 'p/q' in lowest terms with q > 1")
    return number


def check_automaton(automaton: Tree) -> None:
    """Refuse unless the parts have one size, names are distinct, and every state is reachable."""
    letters, count = len(automaton["alphabet"]), len(automaton["states"])
    distinct = len(set(automaton["alphabet"])) == letters > 0 and len(set(automaton["states"])) == count
    need(distinct, "wrong names", "automaton", automaton["states"], "distinct states and symbols, at least one symbol")
    sizes = [len(automaton["outputs"]), len(automaton["delta"]), *map(len, automaton["delta"])]
    need(sizes == [count, count, *[letters] * count], "wrong lengths", "automaton", sizes, "one a state or symbol")
    fit([automaton["start"], *automaton["delta"]], [range(count)] + [[range(count)]] * count, "[start, *delta]")
    seen = [automaton["start"]]
    reached = set(seen)
    for state in seen:
        fresh = set(automaton["delta"][state]) - reached
        reached |= fresh
        seen.extend(fresh)
    need(len(seen) == count, "states out of reach", "automaton", f"{len(seen)} reachable", f"all {count}")


def canonical(den: int, coordinates: dict[int, int]) -> Vec:
    """The vector with these coordinates over den > 0, in lowest terms."""
    terms = [(i, n) for i, n in sorted(coordinates.items()) if n]
    divisor = gcd(den, *[n for _, n in terms]) if terms else den
    return den // divisor, tuple([(i, n // divisor) for i, n in terms] if divisor > 1 else terms)


def plus(x: Vec, y: Vec, scale: int = 1) -> Vec:
    """The vector x + scale y."""
    if not y[1]:
        return x
    den = lcm(x[0], y[0])
    total = defaultdict[int, int](int, ((i, n * (den // x[0])) for i, n in x[1]))
    for i, n in y[1]:
        total[i] += n * (den // y[0]) * scale
    return canonical(den, total)


class Field:
    """Exact arithmetic in Q[b_0, ..., b_(m-1)]; subclasses say how the b_k multiply and where they lie."""

    most_bits = 1 << 15

    def __init__(self, degree: int):
        self.m = degree
        self.signs: dict[Vec, int] = {}
        self.values: dict[tuple[int, int], tuple[int, int]] = {}

    def value(self, k: int, bits: int) -> tuple[int, int]:
        """Integers lo <= 2^bits b_k <= hi."""
        raise NotImplementedError

    def reduced(self, j: int) -> tuple[tuple[int, int], ...]:
        """The coordinates of b_j for m <= j < 2m."""
        raise NotImplementedError

    def spread(self, raw: dict[int, int], at: int, k: int, l: int, n: int) -> None:  # noqa: E741
        """Add n b_k b_l to the sum of raw[at + j] b_j over 0 <= j < 2m."""
        raise NotImplementedError

    def fold(self, den: int, raw: dict[int, int]) -> Vec:
        """The vector whose component i is the sum of raw[2 m i + j] b_j / den over 0 <= j < 2m."""
        m, total = self.m, defaultdict[int, int](int)
        for key, n in raw.items():
            i, j = divmod(key, 2 * m)
            for k, a in ((j, 1),) if j < m else self.reduced(j):
                total[i * m + k] += n * a
        return canonical(den, total)

    def times(self, scalar: Vec, x: Vec) -> Vec:
        """The vector x times an element."""
        raw = defaultdict[int, int](int)
        for i, n in x[1]:
            component, k = divmod(i, self.m)
            for j, a in scalar[1]:
                self.spread(raw, 2 * self.m * component, k, j, n * a)
        return self.fold(scalar[0] * x[0], raw)

    def pair(self, x: Vec, y: Vec, added: bool) -> Vec:
        """The products of the components of x and y, as a vector or added up."""
        raw, parts = defaultdict[int, int](int), defaultdict[int, list[tuple[int, int]]](list)
        for i, n in x[1]:
            parts[i // self.m].append((i % self.m, n))
        for i, n in y[1]:
            component, k = divmod(i, self.m)
            for j, a in parts.get(component, ()):
                self.spread(raw, 0 if added else 2 * self.m * component, k, j, n * a)
        return self.fold(x[0] * y[0], raw)

    def enclose(self, x: Vec, bits: int) -> tuple[int, int]:
        """Integers lo <= 2^bits den x <= hi for an element x."""
        lo = hi = 0
        for k, n in x[1]:
            if (k, bits) not in self.values:
                self.values[k, bits] = self.value(k, bits)
            ends = self.values[k, bits]
            lo += n * ends[n < 0]
            hi += n * ends[n > 0]
        return lo, hi

    def sign(self, x: Vec, where: str) -> int:
        """The sign of an element; an element that is zero with other coordinates than zero is refused."""
        bits = 64
        while x[1] and x not in self.signs:
            lo, hi = self.enclose(x, bits)
            if lo > 0 or hi < 0:
                self.signs[x] = 1 if lo > 0 else -1
            elif bits == self.most_bits:
                raise Refused("sign not decided", where, x, f"a number not zero within {bits} bits")
            bits *= 2
        return self.signs[x] if x[1] else 0

    def element(self, value: Any, where: str) -> Vec:
        """An element in its one canonical spelling."""
        if type(value) in (int, str):
            number = rational(value, where)
            return canonical(number.denominator, {0: number.numerator})
        terms: dict[int, int] = dict(zip(value[1::2], value[2::2], strict=False))
        found = canonical(max([1, *value[:1]]), terms)
        good = value == [found[0], *(entry for term in found[1] for entry in term)]
        good = good and 0 <= min(terms, default=0) <= max(terms, default=0) < self.m and max(terms, default=0) > 0
        need(good, "not a canonical element", where, value, f"[den, k, n, ...] with k below {self.m}")
        return found

    def vector(self, value: Any, length: int, where: str) -> Vec:
        """A list of elements."""
        need(len(value) == length > 0, "wrong length", where, len(value), length)
        return self.join([self.element(entry, f"{where}[{i}]") for i, entry in enumerate(value)])

    def join(self, parts: Sequence[Vec]) -> Vec:
        """The vector with these components."""
        den = lcm(*(part[0] for part in parts))
        return den, tuple((i * self.m + k, n * (den // d)) for i, (d, part) in enumerate(parts) for k, n in part)

    def split(self, x: Vec, length: int) -> list[Vec]:
        """The components of a vector."""
        parts: list[dict[int, int]] = [{} for _ in range(length)]
        for i, n in x[1]:
            parts[i // self.m][i % self.m] = n
        return [canonical(x[0], part) for part in parts]


class Cosines(Field):
    """K_N: b_0 = 1 and b_k = 2 cos(2 pi k / N), so b_i b_j = b_(i+j) + b_|i-j| with 2 for "b_0"."""

    def __init__(self, order: int):
        self.primes = [p for p in range(2, order + 1) if order % p == 0 and all(p % d for d in range(2, isqrt(p) + 1))]
        super().__init__(max(1, order * prod(p - 1 for p in self.primes) // prod(self.primes) // 2))
        self.order = order
        self.long: dict[int, tuple[tuple[int, int], ...]] = {}
        self.pi: dict[int, int] = {}

    def spread(self, raw: dict[int, int], at: int, k: int, l: int, n: int) -> None:  # noqa: D102, E741
        raw[at + k + l] += n
        if k and l:
            raw[at + abs(k - l)] += n if k != l else 2 * n

    def reduced(self, j: int) -> tuple[tuple[int, int], ...]:  # noqa: D102
        N, i, sign = self.order, min(j % self.order, -j % self.order), 1
        if N % 2 == 0 and 4 * i > N:
            i, sign = N // 2 - i, -1
        if 4 * i == N:
            return ()
        if i < self.m:
            return ((i, sign if i else 2 * sign),)
        if i not in self.long:
            self.long[i] = self.divided(i)
        return self.long[i] if sign > 0 else tuple((k, -n) for k, n in self.long[i])

    def divided(self, i: int) -> tuple[tuple[int, int], ...]:
        """The coordinates of b_i, by subtracting multiples b_s (a_m + sum of a_(m+k) b_k) = 0 of the relation."""
        m, series = self.m, [1] + [0] * self.m
        # Phi_N = prod over squarefree e | N of (1 - x^(N/e))^mu(e); a_0..a_m are enough, as a_(m+k) = a_(m-k).
        for chosen in product((False, True), repeat=len(self.primes)):
            step = self.order // prod(p for p, taken in zip(self.primes, chosen, strict=True) if taken)
            inverse = sum(chosen) % 2 == 1
            for at in range(step, m + 1) if inverse else range(m, step - 1, -1):
                series[at] += series[at - step] if inverse else -series[at - step]
        relation = [(k, series[m - k]) for k in range(m + 1) if series[m - k]]
        work = defaultdict[int, int](int, {i: 1})
        for high in range(i, m - 1, -1):
            if count := work[high]:
                for k, a in relation:
                    self.spread(work, 0, k, high - m, -count * a)
        return tuple((k, n) for k, n in sorted(work.items()) if n)

    def value(self, k: int, bits: int) -> tuple[int, int]:  # noqa: D102
        if k == 0:
            return 1 << bits, 1 << bits
        # In units of 2^-q: pi is within 60 q + 60 (`machin`), so the angle x < pi is within 60 q + 61, and so is cos x.
        # Rounding y = x^2 moves cos x by at most 1. The error e of a term grows to at most 10 e / ((n-1) n) + 2, so it
        # stays below 4; at most q terms are added; the alternating rest is at most the first term left out, below 4.
        # So 2 cos x is within 2 (64 q + 70) < 2^31 for q <= 2^15 + 32: under 1 after the shift by 32, which costs 1.
        q = bits + 32
        x = 2 * k * self.machin(q) // self.order
        y, term, total, n = x * x >> q, 1 << q, 0, 0
        while term:
            total += term
            n += 2
            term = -((term * y >> q) // (n * (n - 1)))
        return (total >> 31) - 2, (total >> 31) + 2

    def machin(self, q: int) -> int:
        """2^q pi = 2^q (16 arctan 1/5 - 4 arctan 1/239); each arctan errs by under 3 (q + 1)."""
        for base in (5, 239) if q not in self.pi else ():
            power, n, total = (1 << q) // base, 1, 0
            while power:
                total += power // n if n % 4 == 1 else -(power // n)
                power //= base * base
                n += 2
            self.pi[q] = 16 * total if base == 5 else self.pi[q] - 4 * total
        return self.pi[q]


class Root(Field):
    """Q[x]/(f) at the one root of the monic f in an open interval, b_k the powers of the root."""

    most_bits = 1 << 12

    def __init__(self, monic: tuple[int, ...], ends: tuple[Fraction, Fraction]):
        super().__init__(len(monic) - 1)
        self.f, self.ends = monic, ends
        self.powers: list[list[int]] = [[-a for a in monic[:-1]]]
        signs = [self.at(list(monic), end) for end in ends]
        good = ends[0] < ends[1] and signs[0] * signs[1] < 0 and self.roots() == 1
        need(good, "no isolated root", "field", monic, "a sign change and one root in the interval")
        self.rising = 1 if signs[1] > 0 else -1

    @staticmethod
    def at(f: Sequence[int | Fraction], x: Fraction) -> Fraction:
        """The value f(x)."""
        total = Fraction(0)
        for a in reversed(f):
            total = total * x + a
        return total

    def roots(self) -> int:
        """The number of distinct roots in the interval, by Sturm's chain of f, f', and negated remainders."""
        chain = [[Fraction(a) for a in self.f], [Fraction(k * a) for k, a in enumerate(self.f) if k]]
        while chain[-1]:
            rest, last = list(chain[-2]), chain[-1]
            while len(rest) >= len(last):
                factor, shift = rest[-1] / last[-1], len(rest) - len(last)
                rest = [a - factor * last[k - shift] if k >= shift else a for k, a in enumerate(rest)][:-1]
            while rest and not rest[-1]:
                rest.pop()
            scale = max((abs(a) for a in rest), default=Fraction(1))
            chain.append([-a / scale for a in rest])
        changes = [[v for v in (self.at(f, end) for f in chain) if v] for end in self.ends]
        low, high = (sum(v * w < 0 for v, w in pairwise(row)) for row in changes)
        return low - high

    def spread(self, raw: dict[int, int], at: int, k: int, l: int, n: int) -> None:  # noqa: D102, E741
        raw[at + k + l] += n

    def reduced(self, j: int) -> tuple[tuple[int, int], ...]:  # noqa: D102
        while len(self.powers) <= j - self.m:
            last = self.powers[-1]
            self.powers.append([a + last[-1] * b for a, b in zip([0, *last[:-1]], self.powers[0], strict=True)])
        return tuple((k, n) for k, n in enumerate(self.powers[j - self.m]) if n)

    def value(self, k: int, bits: int) -> tuple[int, int]:  # noqa: D102
        lo, hi = self.ends
        while hi - lo > Fraction(1, 1 << bits):
            middle = (lo + hi) / 2
            found = self.at(self.f, middle) * self.rising
            lo, hi = middle if found <= 0 else lo, middle if found >= 0 else hi
        self.ends = lo, hi
        corners = [lo**k, hi**k] + [Fraction(0)] * (lo < 0 < hi)
        return floor(min(corners) * (1 << bits)), ceil(max(corners) * (1 << bits))


def read_field(value: Tree) -> Field:
    """The field of the certificate."""
    if "cos" in value:
        field: Field = Cosines(value["cos"])
    else:
        monic = tuple(value["minpoly"])
        need(2 <= len(monic) <= 65 and monic[-1] == 1, "wrong polynomial", "field", monic, "monic of degree 1 to 64")
        field = Root(monic, (rational(value["interval"][0], "interval"), rational(value["interval"][1], "interval")))
    need(field.m <= MAX_DEGREE, "degree too large", "field", field.m, f"at most {MAX_DEGREE}")
    return field


class Affine:
    """h <- M h + b: the columns of M, b for each column of H; M acts on coordinates by sparse integer columns."""

    def __init__(self, field: Field, columns: list[Vec], offsets: list[Vec]):
        self.field, self.columns, self.offsets = field, columns, offsets
        self.den = lcm(*(column[0] for column in columns))
        self.sparse: dict[int, list[tuple[int, int]]] = {}

    def linear(self, x: Vec) -> Vec:
        """M x."""
        total = defaultdict[int, int](int)
        for index, n in x[1]:
            if index not in self.sparse:
                i, k = divmod(index, self.field.m)
                den, terms = self.field.times((1, ((k, 1),)), self.columns[i])
                self.sparse[index] = [(row, a * (self.den // den)) for row, a in terms]
            for row, a in self.sparse[index]:
                total[row] += n * a
        return canonical(self.den * x[0], total)

    def after(self, first: "Affine") -> tuple[list[Vec], list[Vec]]:
        """The columns and offsets of the map that takes the first one and then this one."""
        moved = [plus(self.linear(x), y) for x, y in zip(first.offsets, self.offsets, strict=True)]
        return [self.linear(x) for x in first.columns], moved


def compose(field: Field, rule: Tree, factors: list[Tree], K: int, V: int, where: str) -> Affine:
    """The affine map of a step, all of whose factors are in range."""
    step = Affine(field, [(1, ((i * field.m, 1),)) for i in range(K)], [ZERO] * V)
    most = rule["factors"]
    need(most is None or len(factors) <= most, "too many factors", where, len(factors), most)
    for i, factor in enumerate(factors):
        at = f"{where}[{i}]"
        if "dense" in factor:
            need(rule["dense"], "dense factor", at, "dense", "reflection-like factors")
            need(len(factor["dense"]) == K, "wrong length", at, len(factor["dense"]), K)
            rows = [field.split(field.vector(row, K, at), K) for row in factor["dense"]]
            w, c, columns = ZERO, ZERO, [field.join(column) for column in zip(*rows, strict=True)]
        else:
            w, c = field.vector(factor["w"], K, at), field.element(factor["c"], at)
            gates = field.split(field.vector(factor["alpha"], K, at), K) if "alpha" in factor else [ONE] * K
            check_range(field, rule, field.pair(w, w, True), c, gates, at)
            parts = zip(field.split(w, K), gates, strict=True)
            # Column j of (I - c w w^T) Diag(alpha) is alpha_j (e_j - c w_j w).
            columns = [
                plus((1, ((j * field.m, 1),)), field.times(field.times(c, x), w), -1) for j, (x, _) in enumerate(parts)
            ]
            columns = [x if gate == ONE else field.times(gate, x) for x, gate in zip(columns, gates, strict=True)]
        b = [field.vector(x, K, at) for x in factor.get("b", [[0] * K] * V)]
        need(len(b) == V, "wrong length", at, len(b), V)
        need("b" not in factor or rule["additive"] != "none", "additive term", at, "b", "no b")
        if rule["additive"] == "key" and any(x[1] for x in b):
            check_key(field, field.split(w, K), w, c, b, at)
        step = Affine(field, *Affine(field, columns, b).after(step))
    return step


def check_range(field: Field, rule: Tree, square: Vec, c: Vec, gates: list[Vec], where: str) -> None:
    """Refuse a factor whose gates or c (w.w) are out of range."""
    for gate in set(gates):
        low, high = (field.sign(plus(gate, ONE, -rule[bound]), where) for bound in ("low", "high"))
        need(low >= 0 >= high, "gate out of range", where, gate, f"between {rule['low']} and {rule['high']}")
    good = rule["gates"] == "channel" or (len(set(gates)) == 1 and (rule["gates"] == "scalar" or gates[0] == ONE))
    need(good, "wrong gates", where, gates, rule["gates"])
    need(field.sign(c, where) >= 0, "negative coefficient", where, c, "c of at least 0")
    beta, most = field.times(c, square), rule["beta_max"]
    good = most is None or field.sign(plus(beta, ONE, -most), where) <= 0
    need(good, "beta out of range", where, beta, f"c (w.w) at most {most}")


def check_key(field: Field, key: list[Vec], w: Vec, c: Vec, b: list[Vec], where: str) -> None:
    """Refuse unless c is not 0 and each column x of b is a multiple of w: x_i w = w_i x for one w_i that is not 0."""
    pivots = [i for i, x in enumerate(key) if x[1]][:1]
    good = all(field.sign(x, where) for x in (*(key[i] for i in pivots), c)) and len(pivots) == 1
    need(good, "additive term without a key", where, b, "b = 0 where c w is 0")
    for x in b:
        good = all(field.times(field.split(x, len(key))[i], w) == field.times(key[i], x) for i in pivots)
        need(good, "additive term off the key", where, x, "a multiple of w")


class Head:
    """A head's exact maps, and the numbers that the search gives to its columns, matrices and readouts."""

    def __init__(self, field: Field, rule: Tree, entry: Tree, where: str):
        need(len(entry["h0"]) > 0, "no column", where, 0, "a column")
        self.field, self.K, self.V = field, len(entry["h0"][0]), len(entry["h0"])
        self.h0 = [field.vector(x, self.K, f"{where}.h0[{j}]") for j, x in enumerate(entry["h0"])]
        steps = enumerate(entry["steps"])
        self.steps: list[Affine] = [compose(field, rule, x, self.K, self.V, f"{where}.steps[{i}]") for i, x in steps]
        self.queries = [field.vector(x, self.K, f"{where}.queries[{i}]") for i, x in enumerate(entry["queries"])]
        self.labels: list[int] | None = entry["labels"]
        self.derived: dict[int, tuple[int, int]] = {}
        triples: list[list[int]] = entry["derived"]
        fit(triples, [[range(len(self.steps))]], where + ".derived")
        for a, b, c in reversed(triples):
            good = not {a, b, c} & set(self.derived) and a not in (b, c)
            need(good, "derived out of order", where, [a, b, c], "a derived once, b and c not a, and not derived later")
            self.derived[a] = b, c
            good = (self.steps[a].columns, self.steps[a].offsets) == self.steps[b].after(self.steps[c])
            need(good, "derived step differs", where, [a, b, c], "step a = step b after step c")
        slots = [tuple(step.offsets[j] for step in self.steps) for j in range(self.V)]
        alike = [slots.index(slot) for slot in slots]
        memo: list[list[dict[int, int]]] = [[{} for _ in alike] for _ in self.steps]
        # Columns of H with the same offsets in every step share one table from a column's number to its image's.
        self.images = [[row[j] for j in alike] for row in memo]
        self.columns, self.vectors = dict[Vec, int](), list[Vec]()
        self.matrices, self.rows = dict[tuple[int, ...], int](), list[tuple[int, ...]]()
        self.values, self.readouts = dict[Vec, int](), dict[tuple[int, ...], int]()
        self.read: list[dict[int, int]] = [{} for _ in self.queries]
        self.codes: list[dict[int, int]] = [{} for _ in self.queries]
        self.matrix(tuple([self.column(x) for x in self.h0]))

    def column(self, x: Vec) -> int:
        """The number of a column."""
        if x not in self.columns:
            self.columns[x] = len(self.vectors)
            self.vectors.append(x)
        return self.columns[x]

    def matrix(self, row: tuple[int, ...]) -> int:
        """The number of a matrix, given by the numbers of its columns."""
        found = self.matrices.setdefault(row, len(self.rows))
        if found == len(self.rows):
            self.rows.append(row)
        return found

    def image(self, step: int, slot: int, column: int) -> int:
        """The number of a column's image; a derived step goes by the tables of the two steps it is made of."""
        stack = [(step, column)]
        while stack:
            a, x = stack[-1]
            b, c = self.derived.get(a, (a, a))
            if a == b:
                moved = plus(self.steps[a].linear(self.vectors[x]), self.steps[a].offsets[slot])
                self.images[a][slot][x] = self.column(moved)
            elif (middle := self.images[c][slot].get(x)) is None:
                stack.append((c, x))
                continue
            elif (found := self.images[b][slot].get(middle)) is None:
                stack.append((b, middle))
                continue
            else:
                self.images[a][slot][x] = found
            stack.pop()
        return self.images[step][slot][column]

    def move(self, step: int, matrix: int) -> int:
        """The number of the matrix after a step."""
        row, tables = self.rows[matrix], self.images[step]
        try:
            return self.matrix(tuple([table[x] for table, x in zip(tables, row)]))  # noqa: B905
        except KeyError:
            for j, x in enumerate(row):
                if x not in tables[j]:
                    self.image(step, j, x)
            return self.move(step, matrix)

    def code(self, query: int, matrix: int) -> int:
        """The code of a matrix's readout."""
        read, row = self.read[query], self.rows[matrix]
        for x in row:
            if x not in read:
                value = self.field.pair(self.queries[query], self.vectors[x], True)
                read[x] = self.values.setdefault(value, len(self.values))
        number = self.readouts.setdefault(tuple([read[x] for x in row]), len(self.readouts))
        labels = range(len(self.readouts)) if self.labels is None else self.labels
        need(number < len(labels), "too few labels", "labels", len(labels), "one for each readout")
        self.codes[query][matrix] = labels[number]
        return labels[number]


class Layer:
    """A layer: heads, the table of inputs, the table of symbols."""

    def __init__(self, field: Field, rule: Tree, index: int, entry: Tree):
        self.where = f"layers[{index}]"
        self.heads = [Head(field, rule, x, f"{self.where}.heads[{i}]") for i, x in enumerate(entry["heads"])]
        sizes = [size for head in self.heads for size in (len(head.steps), len(head.queries))]
        self.inputs: dict[tuple[int, ...], list[tuple[Head, int, int]]] = {}
        for key, picks in entry["inputs"]:
            good = len(key) == index + 1 and len(picks) == len(sizes) and tuple(key) not in self.inputs
            good = good and all(n < size for n, size in zip(picks, sizes, strict=True))
            need(good, "wrong input", self.where, [key, picks], f"each input once, with indices below {sizes}")
            self.inputs[tuple(key)] = list(zip(self.heads, picks[::2], picks[1::2], strict=True))
        chosen = {pick for _, picks in entry["inputs"] for pick in enumerate(picks)}
        need(len(chosen) == sum(sizes), "unused step or query", self.where, f"{len(chosen)} used", f"{sum(sizes)} used")
        self.emit = None if entry["emit"] is None else {tuple(codes): symbol for codes, symbol in entry["emit"]}
        good = len(self.emit or ()) == len(entry["emit"] or ())
        need(good, "repeated codes", self.where, "emit", "each combination once")
        good = len(self.heads) == 1 or (len(self.heads) > 1 and self.emit is not None)
        need(good, "wrong heads", self.where, len(self.heads), "one head, or several and a table of symbols")
        self.used, self.emitted = set[tuple[int, ...]](), set[tuple[int, ...]]()

    def advance(self, key: tuple[int, ...], joint: tuple[int, ...], mats: list[int]) -> int:
        """The symbol for an input; appends the heads' new matrices."""
        if key not in self.inputs:
            raise Refused("input not listed", self.where, key, "every reachable input")
        self.used.add(key)
        codes: list[int] = []
        for head, step, query in self.inputs[key]:
            matrix = head.move(step, joint[len(mats)])
            code = head.codes[query].get(matrix)
            codes.append(head.code(query, matrix) if code is None else code)
            mats.append(matrix)
        if self.emit is None:
            return codes[0]
        symbol = self.emit.get(tuple(codes))
        if symbol is None:
            raise Refused("codes not listed", self.where + ".emit", codes, "every combination that occurs")
        self.emitted.add(tuple(codes))
        return symbol

    def finish(self) -> None:
        """Refuse entries that never occurred."""
        for what, listed, used in (("inputs", self.inputs, self.used), ("emit", self.emit or {}, self.emitted)):
            unused = set(listed) - used
            need(not unused, "unused entry", f"{self.where}.{what}", unused, "entries that occur")
        for head in self.heads:
            good = head.labels is None or len(head.labels) == len(head.readouts)
            need(good, "wrong number of labels", self.where, len(head.labels or ()), len(head.readouts))


def closure(field: Field, layers: list[Layer], automaton: Tree, claims: Tree, most: int) -> tuple[int, Margins]:
    """The joint states counted by the canonical search, and the margins of all heads."""
    need(claims["joint"] <= most, "too many joint states", "claims.joint", claims["joint"], f"at most {most}")
    joint = search(layers, automaton, claims["joint"])
    for layer in layers:
        layer.finish()
    states = [[len(head.rows) for head in layer.heads] for layer in layers]
    codes = [[len(head.readouts) for head in layer.heads] for layer in layers]
    for name, found in (("joint", joint), ("states", states), ("codes", codes)):
        need(claims[name] == found, "count differs", f"claims.{name}", claims[name], found)
    good = [len(row) for row in claims["margin"]] == [len(row) for row in codes]
    need(good, "wrong length", "claims.margin", "other", "one margin a head")
    margins: list[list[Fraction | None]] = []
    for layer, row in zip(layers, claims["margin"], strict=True):
        margins.append([])
        for h, (head, margin) in enumerate(zip(layer.heads, row, strict=True)):
            values, where = list(head.values), f"{layer.where}.heads[{h}]"
            readouts = [[values[i] for i in number] for number in head.readouts]
            if isinstance(field, Root):
                separate(field, [field.split(x, head.K) for x in head.vectors], where)
                separate(field, readouts, where)
            margins[-1].append(apart(field, readouts, head.labels or range(len(readouts)), margin, where))
    return joint, tuple(tuple(row) for row in margins)


def search(layers: list[Layer], automaton: Tree, most: int) -> int:
    """The number of joint states reached; every edge agrees with the automaton."""
    queue: list[tuple[int, ...]] = [(*(0 for layer in layers for _ in layer.heads), automaton["start"])]
    seen, parents = set(queue), [(0, 0)]
    for place, joint in enumerate(queue):
        for token, target in enumerate(automaton["delta"][joint[-1]]):
            symbol, key, mats = -1, (token,), list[int]()
            for layer in layers:
                symbol = layer.advance(key, joint, mats)
                key = (*key, symbol)
            if symbol != target:
                word = [token]
                while place:
                    place, before = parents[place]
                    word.append(before)
                raise Refused("wrong answer", f"after the word {show(word[::-1])}", symbol, target)
            mats.append(target)
            after: tuple[int, ...] = tuple(mats)
            if after not in seen:
                if len(queue) == most:
                    raise Refused("count differs", "claims.joint", most, "more joint states")
                seen.add(after)
                queue.append(after)
                parents.append((place, token))
    return len(queue)


def span(field: Field, layers: list[Layer], automaton: Tree, top: Tree) -> Margins:
    """The margin, after closing each column's span and checking the equation on it."""
    layer, head = layers[0], layers[0].heads[0]
    good = len(layers) == len(layer.heads) == len(head.queries) == 1 and layer.emit is None and head.labels is None
    need(good, "wrong network", "layers", "other", "one layer, one head, one query row, no emit, no labels")
    delta, width = automaton["delta"], head.K * field.m
    good = sorted(layer.inputs) == [(token,) for token in range(len(delta[0]))]
    need(good, "wrong inputs", "inputs", "other", "each token once")
    need(len(top["readouts"]) == len(delta), "wrong length", "readouts", len(top["readouts"]), len(delta))
    rows = [field.vector(row, head.V, f"readouts[{s}]") for s, row in enumerate(top["readouts"])]
    readouts = [field.split(row, head.V) for row in rows]
    steps = [head.steps[layer.inputs[token,][0][1]] for token in range(len(delta[0]))]
    for j, (den, start) in enumerate(head.h0):
        echelon: dict[int, dict[int, int]] = {}
        queue = [dict(start) | {width + automaton["start"]: den}]
        for x in queue:
            if not independent(echelon, x):
                continue
            h = 1, tuple((i, n) for i, n in x.items() if i < width)
            g = {i - width: n for i, n in x.items() if i >= width}
            found = field.pair(head.queries[0], h, True)
            for s, n in g.items():
                found = plus(found, readouts[s][j], -n)
            need(not found[1], "readout differs", f"column {j}", x, "q h = the readout on the span")
            for token, step in enumerate(steps):
                den, terms = plus(step.linear(h), step.offsets[j], sum(g.values()))
                image = defaultdict[int, int](int, terms)
                for s, n in g.items():
                    image[width + delta[s][token]] += n * den
                queue.append(dict(canonical(1, image)[1]))
    return ((apart(field, readouts, range(len(readouts)), top["claims"]["margin"], "readouts"),),)


def independent(echelon: dict[int, dict[int, int]], x: dict[int, int]) -> bool:
    """Whether x is no combination of the echelon's rows; then what is left of it joins them."""
    while x:
        row = echelon.setdefault(min(x), x)
        if row is x:
            return True
        up, down = row[min(x)], x[min(x)]
        mixed = {i: up * x.get(i, 0) - down * row.get(i, 0) for i in x.keys() | row.keys()}
        divisor = gcd(*mixed.values()) or 1
        x = {i: n // divisor for i, n in mixed.items() if n}
    return False


def enclose(field: Field, rows: Rows, bits: int) -> tuple[int, list[list[int]], int]:
    """A scale, integer points, and a radius: each real times the scale is within the radius of its integer."""
    values = {value for row in rows for value in row}
    den, radius = lcm(*(value[0] for value in values)), 0
    middle: dict[Vec, int] = {}
    for value in values:
        lo, hi = field.enclose(value, bits)
        middle[value] = (lo + hi >> 1) * (den // value[0])
        radius = max(radius, (hi - (lo + hi >> 1)) * (den // value[0]))
    return den << bits, [[middle[value] for value in row] for row in rows], radius


def separate(field: Field, rows: Rows, where: str) -> None:
    """Refuse unless the rows are different as reals: sort by a coordinate, cut at gaps, go on inside the clusters."""
    bits = 64
    while True:
        _, points, radius = enclose(field, rows, bits)
        clusters = [list(range(len(rows)))]
        for axis in range(len(rows[0])):
            finer: list[list[int]] = []
            for cluster in clusters:
                cluster.sort(key=lambda i, axis=axis: points[i][axis])
                for before, i in zip([None, *cluster], cluster, strict=False):
                    if before is None or points[i][axis] - points[before][axis] > 2 * radius:
                        finer.append([])
                    finer[-1].append(i)
            clusters = [cluster for cluster in finer if len(cluster) > 1]
        if not clusters:
            return
        need(bits < field.most_bits, "not separated as reals", where, rows[clusters[0][0]], "different reals")
        bits *= 2


def apart(field: Field, rows: Rows, codes: Sequence[int], claim: Any, where: str) -> Fraction | None:
    """The claimed margin; refused unless rows of different codes are so far apart (None: all codes are equal)."""
    margin = None if claim is None else rational(claim, where)
    good = margin is None if len(set(codes)) < 2 else margin is not None and margin > 0
    need(good, "wrong margin", where, claim, "positive, or null where no two codes differ")
    if margin is None:
        return None
    scale, points, radius = enclose(field, rows, 64)
    # The true distance times the scale is at least |x - y| - 2 radius sqrt(V) for the integer points x, y.
    threshold = ceil((margin * scale + 2 * radius * (isqrt(len(rows[0]) - 1) + 1)) ** 2)
    bound = canonical((margin**2).denominator, {0: (margin**2).numerator})
    for i, j in near(points, codes, ceil(margin * scale) + 2 * radius):
        if codes[i] != codes[j] and within(points[i], points[j], threshold):
            gap = field.join([plus(x, y, -1) for x, y in zip(rows[i], rows[j], strict=True)])
            good = field.sign(plus(field.pair(gap, gap, True), bound, -1), where) >= 0
            need(good, "margin too large", where, f"readouts {i} and {j} closer", str(margin))
    return margin


def within(x: list[int], y: list[int], square: int) -> bool:
    """Whether the squared distance of two points is below the square."""
    total = 0
    for a, b in zip(x, y):  # noqa: B905
        total += (a - b) * (a - b)
        if total >= square:
            return False
    return True


def near(points: list[list[int]], codes: Sequence[int], side: int) -> Iterator[tuple[int, int]]:
    """All pairs but those of one code and those two cells apart on an axis, so apart by more than a side."""
    cells = [[x // side for x in point] for point in points]
    axes = sorted(range(len(cells[0])), key=lambda axis: -len({cell[axis] for cell in cells}))
    whole = list(range(len(points)))
    stack = [(whole, whole, 0)]
    while stack:
        a, b, depth = stack.pop()
        if depth == len(axes) or len(a) * len(b) <= 64:
            yield from combinations(a, 2) if a is b else product(a, b)
        elif len({codes[i] for i in a}) > 1 or {codes[i] for i in a} != {codes[i] for i in b}:
            groups: list[defaultdict[int, list[int]]] = []
            for part in (a, b):
                groups.append(defaultdict(list))
                for i in part:
                    groups[-1][cells[i][axes[depth]]].append(i)
            left, right = groups[0], groups[0 if a is b else 1]
            for cell, group in left.items():
                for other in (cell, cell + 1) if a is b else (cell - 1, cell, cell + 1):
                    if other in right:
                        stack.append((group, right[other], depth + 1))


if __name__ == "__main__":
    sys.exit(main())
