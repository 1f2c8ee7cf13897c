"""Certificates of blocks, linear, stack and chain made here from the document, their mutations, and damaged texts."""

# pyright: basic
import copy
import hashlib
import itertools
import json
import random
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from statetrack.proofs_check import checker, networks, readers, root_fields
from statetrack.proofs_check.networks import Refused, verify

Cert = dict[str, Any]
Mat = tuple[tuple[Fraction, ...], ...]
RANGE = {"target": "ckda", "gates": "channel", "low": -1, "high": 1, "beta_max": None, "factors": None}
RANGE |= {"additive": "key", "dense": False}
text = json.dumps


# ---- making certificates -------------------------------------------------------------------------------------------


def signed(value: Any) -> Any:
    """The same with all digests computed anew, inner ones first."""
    if isinstance(value, list):
        items: list[Any] = value
        return [signed(x) for x in items]
    if not isinstance(value, dict):
        return value
    members: Cert = value
    body = {key: signed(x) for key, x in members.items() if key != "digest"}
    if "format" in body:
        canon = json.dumps(body, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
        body["digest"] = hashlib.sha256(canon.encode()).hexdigest()
    return body


def number(x: Any) -> Any:
    return int(x) if Fraction(x).denominator == 1 else str(Fraction(x))


def numbers(rows: Any) -> Any:
    return [[number(x) for x in row] for row in rows]


def automaton(delta: list[list[int]], start: int = 0) -> Cert:
    named = [f"q{s}" for s in range(len(delta))]
    letters = [f"t{t}" for t in range(len(delta[0]))]
    return {"alphabet": letters, "states": named, "outputs": [*named], "start": start, "delta": delta}


def head(h0: Any, steps: Any, queries: Any, labels: Any = None, **more: Any) -> Cert:
    return {"h0": h0, "steps": steps, "derived": [], "queries": queries, "labels": labels, **more}


def closure(one: Cert, delta: list[list[int]], claims: tuple[Any, ...], start: int = 0, **ranged: Any) -> Cert:
    """One head whose token t takes step t and reads with query 0."""
    joint, states, codes, margin = claims
    layer = {"heads": [one], "inputs": [[[t], [t, 0]] for t in range(len(delta[0]))], "emit": None}
    top = {"format": "statetrack-certificate/1", "kind": "closure", "field": {"cos": 1}, "range": RANGE | ranged}
    claimed = {"joint": joint, "states": [[states]], "codes": [[codes]], "margin": [[margin]]}
    return signed(top | {"layers": [layer], "automaton": automaton(delta, start), "claims": claimed})


def swap(K: int, i: int, j: int) -> Cert:
    return {"w": [(k == i) - (k == j) for k in range(K)], "c": 1}


def cycles(images: tuple[int, ...]) -> list[Cert]:
    """Swaps that make a permutation, the first one applied first."""
    left, found = [*images], list[Cert]()
    for i in range(len(left)):
        while left[i] != i:
            j = left[i]
            left[i], left[j] = left[j], j
            found.append(swap(len(left), i, j))
    return found


def clock(P: int, **ranged: Any) -> Cert:
    N = 2 * P
    one = head([[1] + [0] * (N - 1)], [[swap(N, i, i + 1) for i in reversed(range(N - 1))]], [[*range(N)]])
    one["labels"] = [*range(1, N), 0]
    return closure(one, [[(i + 1) % N] for i in range(N)], (N, N, N, 1), **ranged)


def dense_of(images: Any, n: int) -> Mat:
    return tuple(tuple(Fraction(int(i == k)) for i in images) for k in range(n))


def mul(a: Mat, b: Mat) -> Mat:
    columns = list(zip(*b, strict=True))
    pairs = [[zip(r, c, strict=True) for c in columns] for r in a]
    return tuple(tuple(sum((x * y for x, y in pair if x and y), Fraction(0)) for pair in line) for line in pairs)


def entries_of(factor: Cert, K: int) -> Mat:
    w, c = [Fraction(x) for x in factor["w"]], Fraction(factor["c"])
    gates = [Fraction(x) for x in factor.get("alpha", [1] * K)]
    return tuple(tuple((int(i == j) - c * w[i] * w[j]) * gates[j] for j in range(K)) for i in range(K))


Plan = Callable[[int, Mat], list[list[Cert]]]


def blocks(
    letters: list[Any], P: int, plan: Plan, select: list[Mat], h0: Mat, gamma: list[Any], machine: Cert, more: Cert
) -> Cert:
    """`letters` are maps (tuples of numbers) or matrices; more: tokens, points, first block, margin, range."""
    n, K = len(gamma), len(select[0][0])
    maps = more["points"] is not None
    mats: list[Mat] = [dense_of(range(n), n), *(dense_of(x, n) if maps else x for x in letters)]
    ids, fold, levels, codes = {mats[0]: 0}, dict[tuple[int, int], int](), [{0}], sorted({*more["tokens"]})
    named = [mats[0]]
    for _ in range(P):
        level = set[int]()
        for x, c in itertools.product(sorted(levels[-1]), codes):
            if c and (x, c) not in fold:
                y = mul(mats[c], named[x])
                if y not in ids:
                    ids[y] = len(named)
                    named.append(y)
                fold[x, c] = ids[y]
            level.add(fold[x, c] if c else x)
        levels.append(level)
    steps: list[list[Cert]] = [[]]
    turned = more.get("turned", False)
    picks, rhos = list[Any](), ids if turned else dict[Mat, int]()
    made: list[Mat] = [dense_of(range(K), K)]
    at: dict[str, int] = {"[]": 0}
    for half, x in sorted({(0, 0)} | {(half, x) for half in (0, 1) for x in levels[P]}):
        given_first: Any = more["first"] if (half, x) == (0, 0) else None
        chosen, names = list[int](), list[int]()
        for step in plan(half, named[x]) if given_first is None else given_first:
            if text(step) not in at:
                at[text(step)] = len(steps)
                steps.append(step)
                whole = made[0]
                for factor in step:
                    whole = mul(entries_of(factor, K), whole)
                made.append(whole)
            chosen.append(at[text(step)])
        chosen += [0] * (P - len(chosen))
        R = select[half]
        for step in reversed(chosen):
            names.append(rhos.setdefault(R, len(rhos)))
            named += [R] if turned and R not in named else []
            R = mul(R, made[step])
        picks.append([half, x, chosen, names[::-1]])
    queries, rows, listed = dict[tuple[Fraction, ...], int](), list[Any](), list(rhos)
    wanted = sorted({(v, p[3][r]) for r in range(P) for p in picks for v in levels[r + 1]})
    for x, m in enumerate(named if turned else []):
        for y in [mul(mats[c], m) for c in codes if c]:
            named += [y] if y not in ids else []
            ids.setdefault(y, len(ids))
        fold |= {(x, c): ids[mul(mats[c], m)] for c in codes if c}
    ahead = [mul((tuple(map(Fraction, gamma)),), m) for m in named]
    rows += [[x, queries.setdefault(row, len(queries))] for x, (row,) in enumerate(ahead if turned else [])]
    for v, rho in [] if turned else wanted:
        rows.append([v, rho, queries.setdefault(mul(ahead[v], listed[rho])[0], len(queries))])
    buffer = head([[0]], [[]] + [[{"w": [1], "c": 1, "b": [[c]]}] for c in range(len(letters) + 1)], [[1]])
    columns = numbers(zip(*h0, strict=True))
    given = [{"map": [*x]} if maps else numbers(x) for x in letters]
    entries = len(fold) + 2 * P * len(picks) + len(rows)
    return signed(
        {"format": "statetrack-certificate/1", "kind": "blocks", "range": RANGE | more.get("range", {}), "length": P}
        | {"clock": clock(P, **more.get("range", {})), "letters": given, "tokens": more["tokens"], "buffer": buffer}
        | {"fold": [[x, c, y] for (x, c), y in fold.items()], "accumulator": head(columns, steps, numbers(queries))}
        | {"select": [numbers(m) for m in select], "blocks": picks, "rows": rows, "row": [number(x) for x in gamma]}
        | {"points": more["points"], "automaton": machine}
        | ({"turned": True} if turned else {})
        | {"claims": {"products": len(named), "entries": entries, "margin": more.get("margin")}}
    )


def on_points(letters: list[tuple[int, ...]], start: tuple[int, ...], tokens: list[int]) -> tuple[Cert, Any]:
    """The automaton of tuples of points, and these tuples."""
    states, delta = [start], list[list[int]]()
    for state in states:
        delta.append([])
        for code in tokens:
            target = tuple(letters[code - 1][p] for p in state) if code else state
            states += [target] if target not in states else []
            delta[-1].append(states.index(target))
    return automaton(delta or [[]]), [[*state] for state in states]


def in_place(letters: list[Any], P: int, start: tuple[int, ...], tokens: list[int], plan: Plan, **more: Any) -> Cert:
    n = len(letters[0])
    machine, points = on_points(letters, start, tokens)
    eye = dense_of(range(n), n)
    settings = {"tokens": tokens, "points": points, "first": [], "margin": 1 if len(points) > 1 else None} | more
    return blocks(letters, P, plan, [eye, eye], dense_of(start, n), [*range(n)], machine, settings)


def images(m: Mat) -> tuple[int, ...]:
    return tuple(column.index(1) for column in zip(*m, strict=True))


def s3(tokens: tuple[int, ...] = (1, 2), **more: Any) -> Cert:
    plan: Plan = lambda half, m: [[x] for x in cycles(images(m))]  # noqa: E731
    return in_place([(1, 0, 2), (0, 2, 1)], 2, (0, 1, 2), [*tokens], plan, first=None, **more)


def merging() -> Cert:
    """(ab)*, factors of the specification's F3."""
    gone: dict[tuple[int, ...], Any] = {
        (2, 2, 2): [["-1/2", "-1/2", 1], [0, 0, 1]],
        (0, 2, 2): [[0, "-1/2", 1], [1, 0, 1]],
        (2, 1, 2): [["-1/2", 0, 1], [0, 1, 1]],
    }

    def plan(half: int, m: Mat) -> list[list[Cert]]:
        w, gates = gone[images(m)]
        return [[{"w": w, "c": 2, "alpha": [1, 1, -1]}], [{"w": [0, 0, 0], "c": 0, "alpha": gates}]]

    return in_place([(1, 2, 2), (2, 0, 2)], 2, (0,), [1, 2], plan)


def banks(n: int) -> list[Mat]:
    return [tuple(tuple(Fraction(int(j == i + n * half)) for j in range(2 * n)) for i in range(n)) for half in (0, 1)]


def placed(n: int, half: int, x: list[Any], y: list[Any], first: bool) -> Cert:
    """A factor with w = x on the source bank, y on the target bank `half`; the first one empties the target."""
    gates = [0] * n, [1] * n
    made = {"w": y + x if half == 0 else x + y, "alpha": gates[0] + gates[1] if half == 0 else gates[1] + gates[0]}
    return made if first else {"w": made["w"]}


def ping_pong(P: int = 2, letters: Any = ((1, 2, 2), (2, 0, 2)), tokens: tuple[int, ...] = (1, 2)) -> Cert:
    """F4, low gate 0. With an identity among the blocks the start lies in bank 1, else in bank 0."""
    n = len(letters[0])

    def plan(half: int, m: Mat) -> list[list[Cert]]:
        f, found = images(m), list[list[Cert]]()
        for p in sorted({*f}):
            x, y = [int(q == p) for q in f], [-int(q == p) for q in range(n)]
            found.append([placed(n, half, x, y, not found) | {"c": 1}])
        return found

    machine, points = on_points([*letters], (0,), [*tokens])
    full = n <= P
    h0: Mat = dense_of((n if full else 0,), 2 * n)
    more = {"tokens": [*tokens], "points": points, "first": None if full else [], "margin": 1, "range": {"low": 0}}
    if full:
        more["range"] = {"low": -1}
    return blocks([*letters], P, plan, banks(n), h0, [*range(n)], machine, more)


def rational_letters() -> list[Mat]:
    given = [[[1, 2], ["1/2", 1]], [[1, "1/3"], [0, -1]]]
    return [tuple(tuple(map(Fraction, row)) for row in m) for m in given]


def weighted_blocks() -> Cert:
    """F5 on a singular letter and one of order 2, so that a whole block may be the identity."""
    n, letters = 2, rational_letters()

    def inner(x: Any, y: Any) -> Fraction:
        return sum((a * b for a, b in zip(x, y, strict=True)), Fraction(0))

    def plan(half: int, m: Mat) -> list[list[Cert]]:
        us, vs = list[list[Fraction]](), list[list[Fraction]]()
        for j, column in enumerate(zip(*m, strict=True)):
            left = [*column]
            for u, v in zip(us, vs, strict=True):
                v[j] = inner(u, left) / inner(u, u)
                left = [x - v[j] * y for x, y in zip(left, u, strict=True)]
            if any(left):
                us.append(left)
                vs.append([Fraction(int(k == j)) for k in range(n)])
        found, done = list[list[Cert]](), list[list[Fraction]]()
        for u, v in zip(us, vs, strict=True):
            for k in done:
                v = [x - 2 * inner(k, v) / inner(k, k) * y for x, y in zip(v, k, strict=True)]
            done.append(v)
            c = 2 / inner(v, v)
            factor = placed(n, half, [*map(number, v)], [number(-x / c) for x in u], not found)
            found.append([factor | {"c": number(c)}])
        return found

    initial, final = [1, "1/2"], [2, -1]
    machine = {"alphabet": ["a", "b"], "initial": initial, "final": final, "letters": [numbers(m) for m in letters]}
    h0: Mat = tuple((Fraction(x),) for x in [0, 0, *initial])
    more = {"tokens": [1, 2], "points": None, "first": None}
    return blocks(letters, 2, plan, banks(n), h0, final, machine, more)


def linear() -> Cert:
    """Π (h1, h2, h3) = (h1, h2 + h3): the last coordinate moves to the second one."""
    given = [numbers(m) for m in rational_letters()]
    steps = [[{"dense": [[*m[0], m[0][1]], [*m[1], m[1][1]], [0, 0, 0]]}] for m in given]
    one = head([[1, 0, "1/2"]], steps, [[2, -1, -1]])
    machine = {"alphabet": ["a", "b"], "initial": [1, "1/2"], "final": [2, -1], "letters": given}
    top = {"format": "statetrack-certificate/1", "kind": "linear", "range": RANGE | {"dense": True}, "head": one}
    return signed(
        top | {"inputs": [[0, 0], [1, 0]], "select": [[1, 0, 0], [0, 1, 1]], "automaton": machine, "claims": {}}
    )


def parity() -> Cert:
    one = head([[1]], [[], [{"w": [1], "c": 2}]], [[1]])
    return closure(one, [[0, 1], [1, 0]], (2, 2, 2, 2))


def reset() -> Cert:
    """The last of two letters that set; a third one keeps."""
    steps = [[{"w": [1], "c": 1, "b": [[b]]}] for b in (1, 2)] + [[]]
    return closure(head([[0]], steps, [[1]], [1, 2, 0]), [[1, 2, s] for s in range(3)], (3, 3, 3, 1))


def window() -> Cert:
    """The last two letters of two, in one head (the specification's B2); state 0 at first."""
    steps = [[{"w": [1, 1], "c": "1/2", "alpha": [1, -1], "b": [[x, x]]}] for x in (1, 2)]
    pairs = [(0, 0), *((x, y) for y in (0, 1, 2) for x in (1, 2))]
    delta = [[pairs.index((x, pair[0])) for x in (1, 2)] for pair in pairs]
    found = [pairs.index(pair) for pair in [(1, 0), (2, 0), (1, 1), (2, 1), (1, 2), (2, 2)]]
    return closure(head([[0, 0]], steps, [[2, 1]], found), delta, (7, 7, 6, 1))


def floors() -> Cert:
    """h <- floor(h/2 + 2 bit): the last two bits."""
    steps = [[{"w": [0], "c": 0, "alpha": ["1/2"], "b": [[2 * bit]]}] for bit in (0, 1)]
    one = head([[0]], steps, [[1]], [0, 2, 1, 3], unit=1)
    ranged = {"target": "diag[0,1]", "gates": "channel", "low": 0, "beta_max": 0, "additive": "any"}
    return closure(one, [[s // 2, 2 + s // 2] for s in range(4)], (4, 4, 4, 1), **ranged)


def stack(parts: list[Cert], modules: list[Cert], answer: Cert, delta: list[list[int]], joint: int) -> Cert:
    top = {"format": "statetrack-certificate/1", "kind": "stack", "range": parts[0]["range"], "parts": parts}
    top |= {"modules": modules, "answer": answer, "automaton": automaton(delta), "claims": {"joint": joint}}
    return signed(top)


def module(part: int, reads: list[int], letters: Any, values: list[int], before: Any = None) -> Cert:
    return {"part": part, "reads": reads, "letters": letters, "values": values, "before": before}


def even_places() -> Cert:
    """The last bit at an even place: a parity told to flip, then a reset that reads it."""
    first = module(0, [], [[[0], 1], [[1], 1]], [0, 1], [[0, 0, 0], [0, 1, 1], [1, 1, 0], [1, 0, 1]])
    second = module(1, [0], [[[t, v], t if v else 2] for t in (0, 1) for v in (0, 1)], [0, 1, 2])
    states = [(0, 0), (1, 0), (0, 1), (0, 2), (1, 1), (1, 2)]
    delta = [[states.index((1 - v, 1 + t if v else x)) for t in (0, 1)] for v, x in states]
    table = [[[x, v], s] for s, (v, x) in enumerate(states) if s]
    return stack([parity(), reset()], [first, second], {"reads": [1, 0], "table": table}, delta, 6)


def by_sets() -> Cert:
    """The same network; a set is the states of one parity before, and one after, the token."""
    cert = even_places()
    states = [(0, 0), (1, 0), (0, 1), (0, 2), (1, 1), (1, 2)]
    letters = ([[[0, 0, t], 1] for t in (0, 1)], [[[v, 1 - v, t], t if v else 2] for v in (0, 1) for t in (0, 1)])
    narrow = ([[0, v, v] for v in (0, 1)], [[*pair, s] for s, pair in enumerate(states)])
    for one, told, table in zip(cert["modules"], letters, narrow, strict=True):
        del one["reads"]
        one |= {"letters": told, "narrow": table}
    del cert["answer"]
    return signed(cert | {"kind": "chain", "claims": {"triples": 6}})


def repeats() -> Cert:
    """How often, modulo 2, a token equals the one before it: the window's value is its last letter."""
    pairs = [(0, 0), *((x, y) for y in (0, 1, 2) for x in (1, 2))]
    delta = window()["automaton"]["delta"]
    before = {(x, delta[b][x], pairs[b][0]) for b in range(7) for x in (0, 1)}
    first = module(0, [], [[[t], t] for t in (0, 1)], [x for x, _ in pairs], sorted(map(list, before)))
    second = module(1, [0], [[[t, v], int(t + 1 == v)] for t in (0, 1) for v in (0, 1, 2)], [5, 3])
    states = [(0, 0), (1, 0), (2, 0), (1, 1), (2, 1)]
    moves = [[states.index((t + 1, (p + (t + 1 == x)) % 2)) for t in (0, 1)] for x, p in states]
    table = [[[x, [5, 3][p]], s] for s, (x, p) in enumerate(states) if x]
    return stack([window(), parity()], [first, second], {"reads": [0, 1], "table": table}, moves, 5)


def nested() -> Cert:
    """A stack as a part beside blocks for S3."""
    inner, group = repeats(), s3()
    moves, turns = inner["automaton"]["delta"], group["automaton"]["delta"]
    first = module(0, [], [[[t], t] for t in (0, 1)], [*range(5)])
    second = module(1, [], [[[t], t] for t in (0, 1)], [*range(6)])
    found, delta = [(0, 0)], list[list[int]]()
    for s, g in found:
        delta.append([])
        for t in (0, 1):
            target = moves[s][t], turns[g][t]
            found += [target] if target not in found else []
            delta[-1].append(found.index(target))
    table = [[[*pair], i] for i, pair in enumerate(found) if any(i in row for row in delta)]
    return stack([inner, group], [first, second], {"reads": [0, 1], "table": table}, delta, len(found))


def twice() -> Cert:
    """Two modules from one part with floors, the second one told the other bit."""
    one = [module(0, [], [[[t], t ^ flip] for t in (0, 1)], [*range(4)]) for flip in (0, 1)]
    found, delta = [(0, 0)], list[list[int]]()
    for a, b in found:
        delta.append([])
        for t in (0, 1):
            target = 2 * t + a // 2, 2 * (1 - t) + b // 2
            found += [target] if target not in found else []
            delta[-1].append(found.index(target))
    table = [[[*pair], i] for i, pair in enumerate(found) if any(i in row for row in delta)]
    return stack([floors()], one, {"reads": [0, 1], "table": table}, delta, len(found))


MAKERS: dict[str, Callable[[], Cert]] = {
    "S3": s3,
    "S3 turned": lambda: s3(turned=True),
    "S3 with identity, turned": lambda: s3((1, 2, 0), turned=True),
    "S3 with identity": lambda: s3((1, 2, 0)),
    "identities": lambda: s3((0,)),
    "(ab)* in place": merging,
    "(ab)* ping-pong": ping_pong,
    "swap ping-pong": lambda: ping_pong(2, ((1, 0),), (1, 0)),
    "one a block": lambda: in_place([(1, 0)], 1, (0,), [1], lambda _, m: [[x] for x in cycles(images(m))], first=None),
    "weighted": weighted_blocks,
    "linear": linear,
    "even places": even_places,
    "even places by sets": by_sets,
    "repeats": repeats,
    "nested": nested,
    "floors": floors,
    "twice": twice,
}


@cache
def made(name: str) -> str:
    return text(MAKERS[name]())


def make(name: str) -> Cert:
    return json.loads(made(name))


# ---- running networks, with nothing of the checkers -----------------------------------------------------------------


def rat(x: Any) -> Fraction:
    if isinstance(x, list):
        items: list[int] = x
        assert {*items[1::2]} <= {0}
        return Fraction(sum(items[2::2]), items[0])
    return Fraction(x)


class HeadRun:
    """One head: its matrix as columns."""

    def __init__(self, data: Cert) -> None:
        self.data, self.H = data, [[*map(rat, column)] for column in data["h0"]]

    def move(self, step: int) -> None:
        for factor in self.data["steps"][step]:
            extra = factor.get("b", [[0] * len(self.H[0])] * len(self.H))
            for j, h in enumerate(self.H):
                if "dense" in factor:
                    new = [sum(rat(a) * x for a, x in zip(row, h, strict=True)) for row in factor["dense"]]
                else:
                    w = [*map(rat, factor["w"])]
                    gated = [rat(a) * x for a, x in zip(factor.get("alpha", [1] * len(w)), h, strict=True)]
                    dot = rat(factor["c"]) * sum(a * x for a, x in zip(w, gated, strict=True))
                    new = [x - dot * a for a, x in zip(w, gated, strict=True)]
                self.H[j] = [Fraction(x) + rat(y) for x, y in zip(new, extra[j], strict=True)]
        if "unit" in self.data:
            u = rat(self.data["unit"])
            self.H = [[u * (x // u) for x in h] for h in self.H]

    def read(self, query: int) -> tuple[Fraction, ...]:
        q = [*map(rat, self.data["queries"][query])]
        return tuple(sum((a * x for a, x in zip(q, h, strict=True)), Fraction(0)) for h in self.H)


class ClosureRun:
    """One layer, one head, without the search: the codebook is filled by a search of its own."""

    def __init__(self, cert: Cert, books: bool = True) -> None:
        self.cert, (layer,) = cert, cert["layers"]
        (data,) = layer["heads"]
        self.inputs = {key[0]: pick for key, pick in layer["inputs"]}
        self.head, self.labels, self.emit = HeadRun(data), data["labels"], layer["emit"]
        self.book = dict[tuple[Fraction, ...], int]()
        queue = [copy.deepcopy(self.head.H)]
        for H in queue if books else ():
            for token in range(len(cert["automaton"]["alphabet"])):
                self.head.H = copy.deepcopy(H)
                self.token(token)
                queue += [self.head.H] if self.head.H not in queue else []
        self.head.H = queue[0]

    def token(self, token: int) -> int:
        step, query = self.inputs[token]
        self.head.move(step)
        code = self.book.setdefault(self.head.read(query), len(self.book))
        code = code if self.labels is None or len(self.labels) <= code else self.labels[code]
        return code if self.emit is None else next(s for codes, s in self.emit if codes == [code])


class BlocksRun:
    def __init__(self, cert: Cert) -> None:
        self.cert, self.P, self.t = cert, cert["length"], 0
        self.clock, self.accumulator = ClosureRun(cert["clock"]), HeadRun(cert["accumulator"])
        self.slots = [HeadRun(cert["buffer"]) for _ in range(2 * self.P)]
        self.fold = {(x, c): y for x, c, y in cert["fold"]}
        self.blocks = {(half, x): (s, rho) for half, x, s, rho in cert["blocks"]}
        self.rows = {tuple(key): query for *key, query in cert["rows"]}

    def product(self, codes: list[int], x: int = 0) -> int:
        for c in codes:
            x = self.fold[x, c] if c else x
        return x

    def row(self, token: int) -> tuple[Fraction, ...]:
        phi, P = self.clock.token(0), self.P
        self.t += 1
        at = (phi - 1) % (2 * P)
        for i, slot in enumerate(self.slots):
            slot.move(1 + self.cert["tokens"][token] if i == at else 0)
        codes = [int(slot.read(0)[0]) for slot in self.slots]
        half, r = at // P, at % P + 1
        other = codes[(1 - half) * P : (2 - half) * P]
        steps, rho = self.blocks[half, self.product(other)]
        self.accumulator.move(steps[r - 1])
        now, rest = codes[half * P : half * P + r], rho[r - 1]
        key = (self.product(now, rest),) if "turned" in self.cert else (self.product(now), rest)
        return self.accumulator.read(self.rows[key])

    def token(self, token: int) -> int:
        gamma, read = [*map(rat, self.cert["row"])], self.row(token)
        (state,) = [s for s, p in enumerate(self.cert["points"]) if tuple(gamma[i] for i in p) == read]
        return state


class StackRun:
    def __init__(self, cert: Cert) -> None:
        self.cert = cert
        self.nets = [RUNS[cert["parts"][m["part"]]["kind"]](cert["parts"][m["part"]]) for m in cert["modules"]]

    def token(self, token: int) -> int:
        before, after = list[Any](), list[int]()
        for net, m in zip(self.nets, self.cert["modules"], strict=True):
            key = [token, *(before[i] for i in m["reads"])]
            (letter,) = [x for k, x in m["letters"] if k == key]
            state = net.token(letter)
            found = [v for x, s, v in m["before"] or [] if (x, s) == (letter, state)]
            before.append(found[0] if found else None)
            after.append(m["values"][state])
        key = [after[i] for i in self.cert["answer"]["reads"]]
        (answer,) = [s for k, s in self.cert["answer"]["table"] if k == key]
        return answer


class ChainRun(StackRun):
    def token(self, token: int) -> int:
        p, q = 0, 0
        for net, m in zip(self.nets, self.cert["modules"], strict=True):
            (letter,) = [x for k, x in m["letters"] if k == [p, q, token]]
            state = net.token(letter)
            table = {(s, v): to for s, v, to in m["narrow"]}
            if m["before"] is not None:
                (value,) = [v for x, s, v in m["before"] if (x, s) == (letter, state)]
                p = table[p, value]
            q = table[q, m["values"][state]]
        return q


RUNS: dict[str, Any] = {"closure": ClosureRun, "blocks": BlocksRun, "stack": StackRun, "chain": ChainRun}


def certificates(value: Any) -> Iterator[Cert]:
    """All heads' owners: every certificate in this one."""
    if isinstance(value, dict) and "format" in value:
        yield value
        for part in [value.get("clock"), *value.get("parts", [])]:
            yield from certificates(part)


def in_range(cert: Cert) -> bool:
    good, rule = True, cert["range"]
    heads = [h for layer in cert.get("layers", []) for h in layer["heads"]]
    heads += [cert[key] for key in ("buffer", "accumulator", "head") if key in cert]
    good &= all(part["range"] == rule for part in certificates(cert))
    for step in [step for h in heads for step in h["steps"]]:
        good &= rule["factors"] is None or len(step) <= rule["factors"]
        for factor in step:
            b, w = [[*map(rat, x)] for x in factor.get("b", [])], [*map(rat, factor.get("w", []))]
            if "dense" in factor:
                good &= rule["dense"]
                continue
            gates, beta = [*map(rat, factor.get("alpha", [1]))], rat(factor["c"]) * sum(x * x for x in w)
            good &= all(rule["low"] <= g <= rule["high"] for g in gates)
            good &= {"one": {*gates} == {1}, "scalar": len({*gates}) == 1, "channel": True}[rule["gates"]]
            good &= rat(factor["c"]) >= 0 and (rule["beta_max"] is None or beta <= rat(rule["beta_max"]))
            for x in [x for x in b if any(x) and rule["additive"] != "any"]:
                pairs = itertools.product(range(len(w)), repeat=2)
                good &= rule["additive"] == "key" and beta > 0 and all(x[i] * w[j] == x[j] * w[i] for i, j in pairs)
    return good


def weighted_value(machine: Cert, word: list[int], n: int) -> Fraction:
    h = [*map(rat, machine["initial"])]
    for token in word:
        a = machine["letters"][token]
        full = [[*map(rat, row)] for row in a] if isinstance(a, list) else dense_of(a["map"], n)
        h = [sum((x * y for x, y in zip(row, h, strict=True)), Fraction(0)) for row in full]
    return sum((rat(x) * y for x, y in zip(machine["final"], h, strict=True)), Fraction(0))


def holds(cert: Cert, words: int = 12, length: int = 24) -> bool:
    """Whether the statement holds on random words, and the ranges and margins are right."""
    machine, rng = cert["automaton"], random.Random(3)
    good, kind = all(in_range(part) for part in certificates(cert)), cert["kind"]
    for _ in range(words if machine["alphabet"] else 0):
        word = [rng.randrange(len(machine["alphabet"])) for _ in range(rng.randrange(1, length))]
        if kind == "linear":
            one = HeadRun(cert["head"])
            for i, token in enumerate(word):
                one.move(cert["inputs"][token][0])
                good &= one.read(cert["inputs"][token][1]) == (weighted_value(machine, word[: i + 1], 2),)
        elif "initial" in machine:
            run = BlocksRun(cert)
            for i, token in enumerate(word):
                good &= run.row(token) == (weighted_value(machine, word[: i + 1], len(cert["row"])),)
        else:
            run, state = RUNS[kind](cert), machine["start"]
            for token in word:
                state = machine["delta"][state][token]
                good &= run.token(token) == state
    if kind == "blocks" and cert["points"]:
        rows = [[rat(cert["row"][p]) for p in state] for state in cert["points"]]
        gaps = [sum((x - y) ** 2 for x, y in zip(a, b, strict=True)) for a, b in itertools.combinations(rows, 2)]
        margin = cert["claims"]["margin"]
        good &= (margin is None) == (not gaps) and all(gap >= rat(margin) ** 2 > 0 for gap in gaps)
    for part in [part for part in certificates(cert) if part["kind"] == "closure"]:
        run, (margin,) = ClosureRun(part), part["claims"]["margin"][0]
        codes = [(run.labels[i] if run.labels else i, row) for row, i in run.book.items()]
        pairs = [(a, b) for (x, a), (y, b) in itertools.combinations(codes, 2) if x != y]
        gaps = [sum((x - y) ** 2 for x, y in zip(a, b, strict=True)) for a, b in pairs]
        good &= (margin is None) == (not gaps) and all(gap >= rat(margin) ** 2 > 0 for gap in gaps)
    return good


# ---- tests ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", MAKERS)
def test_a_true_claim_is_accepted_and_its_facts_are_named(name: str) -> None:
    cert = make(name)
    facts = verify(made(name), cert["digest"])
    machine = cert["automaton"]
    assert facts["digest"] == cert["digest"]
    assert (facts["kind"], facts["target"]) == (cert["kind"], cert["range"]["target"])
    assert (facts["symbols"], facts["joint"]) == (len(machine["alphabet"]), cert["claims"].get("joint", 0))
    assert facts["states"] == len(machine["states"] if "states" in machine else machine["final"])
    assert len(facts["heads"]) == len(facts["margins"])
    assert "non-empty" in facts["proved"]
    assert ("rounded down" in facts["proved"]) == (name in ("floors", "twice"))
    if cert["kind"] == "blocks":
        assert (facts["products"], facts["entries"]) == (cert["claims"]["products"], cert["claims"]["entries"])
        assert len(facts["heads"]) == 2 + 2 * cert["length"]
    assert holds(cert, 40, 40)
    for bad in ((made(name), "00"), (text(cert | {"digest": "00"}), None)):
        with pytest.raises(Refused, match="digest"):
            verify(*bad)


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    for key in value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        yield from places(value[key], (*path, key))


def at(value: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        value = value[key]
    return value


def replaced(cert: Cert, path: tuple[Any, ...], value: Any) -> Cert:
    mutant = copy.deepcopy(cert)
    at(mutant, path[:-1])[path[-1]] = value
    return mutant


def is_number(x: Any) -> bool:
    return type(x) is int or (type(x) is str and {*x} <= {*"-/0123456789"})


@pytest.mark.parametrize("name", MAKERS)
def test_each_changed_number_is_refused_or_states_another_true_claim(name: str) -> None:
    cert, rng, survivors = make(name), random.Random(5), list[tuple[Any, ...]]()
    found = [path for path in places(cert) if is_number(at(cert, path)) and path[-1] != "digest"]
    for path in rng.sample(found, min(len(found), 160)):
        x = Fraction(at(cert, path))
        for other in {*rng.sample([x + 1, x - 1, -x, 2 * x, x / 2, Fraction(0), Fraction(1)], 2)} - {x}:
            mutant = signed(replaced(cert, path, number(other)))
            try:
                verify(text(mutant))
            except Refused:
                continue
            assert holds(mutant), (path, other)
            survivors.append(path)
    assert len(survivors) < len(found) / 2, survivors


@pytest.mark.parametrize("name", MAKERS)
def test_damaged_certificates_raise_nothing_but_refused(name: str) -> None:
    cert, rng = make(name), random.Random(11)
    found = [path for path in places(cert) if path]
    values: list[Any] = [None, True, False, -1, 10**30, "", "x", "1/0", [], {}, [[]], [0], {"map": []}, [1, 0, 1]]
    for _ in range(150):
        mutant = copy.deepcopy(cert)
        for _ in range(rng.choice([1, 1, 1, 2])):
            path = rng.choice(found)
            try:
                parent = at(mutant, path[:-1])
                how = rng.choice(["value", "other", "delete", "repeat", "swap"])
                if how == "value":
                    parent[path[-1]] = rng.choice(values)
                elif how == "other":
                    parent[path[-1]] = copy.deepcopy(at(cert, rng.choice(found)))
                elif how == "delete":
                    del parent[path[-1]]
                elif isinstance(parent, list):
                    items: list[Any] = parent
                    index = path[-1]
                    items[index:] = [items[index], *items[index:]] if how == "repeat" else items[index:][::-1]
            except (LookupError, TypeError):
                continue
        mutant = signed(mutant)
        try:
            verify(text(mutant))
        except Refused:
            continue
        assert holds(mutant), text(mutant)


# certificate, path, JSON value, a part of the message
WRONG = """
S3 | length | true | length
S3 | length | 0 | length
S3 | length | 3 | clock
S3 | tokens | [true,2] | tokens
S3 | tokens | [1,3] | tokens
S3 | tokens | [1,-1] | tokens
S3 | letters.0 | {"map":[1,0,true]} | map
S3 | letters.0 | {"map":[1,0,3]} | map
S3 | letters.0 | [[0,1,0],[1,0,0],[0,0,1]] | points
S3 | fold.0.2 | 0 | one.matrix
S3 | fold.0.2 | -1 | fold
S3 | fold.0.2 | true | fold
S3 | fold.1 | [0,1,1] | once
S3 | blocks.0.0 | false | blocks
S3 | blocks.0.2 | [0] | block
S3 | blocks.0.3.0 | -1 | block
S3 | rows.0 | [0,0,-1] | rows
S3 | points.0 | [0,1] | points
S3 | points.1 | [0,1,2] | points.moved
S3 | claims.margin | null | margin
S3 | claims.margin | 2 | margin
S3 | claims.products | true | claims
S3 | buffer.steps.2 | [] | buffer
S3 | buffer.queries | [[1],[1]] | buffer
S3 | buffer.unit | 1 | head
S3 | accumulator.unit | 1 | head
S3 | accumulator.labels | [] | head
S3 | accumulator.derived | [[0,0,0]] | head
S3 | accumulator.steps.1.0.b | [[0,0,0],[0,0,0],[0,0,0]] | head
S3 | clock.kind | "span" | clock
S3 | clock.range.beta_max | 2 | clock
S3 | select | [[[1,0,0],[0,1,0],[0,0,1]]] | letters
S3 | automaton.alphabet | ["a","a"] | automaton
S3 | automaton.outputs.0 | 1 | automaton
S3 | range.dense | 0 | range
S3 | row | [] | row
weighted | points | [] | points
weighted | claims.margin | 1 | points
weighted | automaton.letters.0.0.0 | 2 | weighted
weighted | automaton.alphabet | ["a"] | .
weighted | automaton.initial | "1" | .
linear | head.unit | 1 | head
linear | select | {"map":[0,1]} | matrix
linear | claims | {"margin":null} | claims
linear | inputs.0 | [true,0] | inputs
linear | head.h0.0.1 | 1 | start
even places | modules.1.reads | [1] | reads
even places | modules.1.reads | [0,0] | reads
even places | modules.1.reads | [-1] | .
even places | modules.0.reads | [1] | reads
even places | modules.0.before | null | before
even places | modules.1.before | [] | before
even places | modules.0.before.0.2 | 1 | before
even places | modules.0.values | [0,0] | .
even places | modules.1.values | [0,1,true] | values
even places | modules.1.part | 0 | .
even places | modules.1.part | -1 | part
even places | modules.0.letters.0.0 | [true] | letters
even places | modules.0.letters.0.1 | 0 | .
even places | modules | [] | modules
even places | claims.joint | true | joint
even places | claims.joint | 7 | joint
even places | claims.joint | 5 | joint
even places | answer.table.0.1 | true | .
even places | parts.0.range.low | 0 | range
even places by sets | modules.0.reads | [] | keys
even places by sets | modules.0.letters.0.0 | [0,0] | letters
even places by sets | modules.0.letters.0.0 | [0,0,2] | letters
even places by sets | modules.0.letters.1.0 | [0,1,1] | letters
even places by sets | modules.1.letters.0.1 | 0 | answer
even places by sets | modules.0.narrow.1.2 | 0 | letters
even places by sets | modules.1.narrow.5.2 | 4 | answer
even places by sets | modules.1.narrow.5.2 | 6 | answer
even places by sets | modules.1.narrow.5.2 | -1 | narrow
even places by sets | modules.1.narrow.5 | [1,1,5] | once
even places by sets | modules.1.narrow.5 | [2,1,5] | .
even places by sets | modules.0.before | null | before
even places by sets | modules.1.before | [] | before
even places by sets | modules.1.narrow.0.2 | 3 | start
even places by sets | automaton.start | 1 | reachable
even places by sets | claims.triples | 5 | triples
even places by sets | claims | {} | triples
S3 turned | turned | false | turned
S3 turned | turned | 1 | turned
S3 turned | rows.1.1 | 0 | row
S3 turned | rows.0 | [0,0,0] | rows
S3 turned | fold.0.2 | 0 | one.matrix
S3 turned | blocks.0.3.0 | 5 | row.number
repeats | modules.0.values | [0,1,1,1,2,1,2] | .
repeats | modules.1.values | [5,5] | .
floors | layers.0.heads.0.unit | 0 | unit
floors | layers.0.heads.0.unit | -1 | unit
floors | layers.0.heads.0.unit | null | .
floors | layers.0.heads.0.unit | 2 | .
floors | layers.0.heads.0.derived | [[0,0,0]] | unit
"""


@pytest.mark.parametrize("line", WRONG.strip().split("\n"))
def test_a_wrong_entry_is_named(line: str) -> None:
    name, path, value, message = line.split(" | ")
    cert = make(name)
    *keys, last = [int(key) if key.isdigit() else key for key in path.split(".")]
    at(cert, tuple(keys))[last] = json.loads(value)
    with pytest.raises(Refused, match=message):
        verify(text(signed(cert)))


def test_inner_digests_are_checked() -> None:
    for name, path in (("S3", ("clock", "digest")), ("even places", ("parts", 1, "digest"))):
        cert = replaced(make(name), path, "00")
        body = {key: value for key, value in cert.items() if key != "digest"}
        canon = json.dumps(body, sort_keys=True, separators=(",", ":"))
        cert["digest"] = hashlib.sha256(canon.encode()).hexdigest()
        with pytest.raises(Refused, match="digest"):
            verify(text(cert))


def test_a_part_is_no_weighted_automaton_and_no_span() -> None:
    for name in ("weighted", "linear"):
        cert = make("even places")
        cert["parts"][1] = make(name)
        with pytest.raises(Refused, match="part"):
            verify(text(signed(cert)))


def test_the_first_block_may_not_differ_from_a_later_one_of_the_same_number() -> None:
    """Blocks of identities have x = 0 as well: keeping the state is wrong for them if banks alternate."""
    cert = make("swap ping-pong")
    entry = next(entry for entry in cert["blocks"] if entry[:2] == [0, 0])
    cert["accumulator"]["h0"] = [[1, 0, 0, 0]]
    entry[2] = [0, 0]
    with pytest.raises(Refused):
        verify(text(signed(cert)))


def test_an_empty_alphabet_is_accepted_and_an_unused_letter_too() -> None:
    cert = make("S3")
    still = cert["automaton"] | {"alphabet": [], "states": ["e"], "outputs": [True], "delta": [[]]}
    cert |= {"tokens": [], "automaton": still, "points": [[0, 1, 2]], "fold": [], "rows": []}
    cert["blocks"] = [entry for entry in cert["blocks"] if entry[:2] == [0, 0]]
    cert["claims"] = {"products": 1, "entries": 4, "margin": None}
    assert verify(text(signed(cert)))["symbols"] == 0
    cert = make("even places")
    cert |= {"automaton": still, "claims": {"joint": 1}, "answer": {"reads": [], "table": []}}
    for entry in cert["modules"]:
        entry["letters"] = []
    assert verify(text(signed(cert)))["joint"] == 1


def test_units_stand_only_in_closures_with_rational_entries() -> None:
    cert: Any = make("floors")
    cert |= {"kind": "span", "claims": {"margin": 1}, "readouts": [[0], [1], [2], [3]]}
    cert["layers"][0]["heads"][0]["labels"] = None
    with pytest.raises(Refused, match="network"):
        verify(text(signed(cert)))
    cert = make("floors") | {"field": {"cos": 5}}
    assert verify(text(signed(cert)))["joint"] == 4
    cert["layers"][0]["heads"][0]["steps"][1][0]["b"] = [[[1, 1, 2]]]
    with pytest.raises(Refused, match="unit"):
        verify(text(signed(cert)))
    cert = make("floors")
    del cert["layers"][0]["heads"][0]["unit"]
    with pytest.raises(Refused):
        verify(text(signed(cert)))


BAD = ["", "null", "[]", "{}", "[" * 100_000, '{"kind": "stack"}', '{"kind": {}}', '{"kind": ["blocks"]}', "1" * 5000]
WORSE = ['{"kind": "linear", "kind": "linear"}', '{"kind": 1.5}', '"\\ud800"', '{"kind":' * 100_000, '{"kind": "span"}']


@pytest.mark.parametrize("bad", [*BAD, *WORSE, *(made("S3")[:size] for size in range(1, len(made("S3")), 700))])
def test_texts_that_are_no_certificates_are_refused_in_one_line(bad: str) -> None:
    with pytest.raises(Refused) as info:
        verify(bad)
    assert "\n" not in str(info.value)


def test_deep_nesting_is_refused() -> None:
    cert = "null"
    for _ in range(400):
        cert = made("even places").replace('"parts": [', f'"parts": [{cert}, ')
        if len(cert) > 2_000_000:
            break
    with pytest.raises(Refused):
        verify(cert)


def s5() -> Cert:
    letters = list(itertools.permutations(range(5)))
    plan: Plan = lambda half, m: [[x] for x in cycles(images(m))]  # noqa: E731
    return in_place(letters[1:], 4, (0, 1, 2, 3, 4), [*range(120)], plan, first=None)


def test_all_letters_of_s5() -> None:
    cert = s5()
    facts = verify(text(cert))
    assert (len(cert["fold"]), len(cert["blocks"]), facts["products"], facts["states"]) == (14_280, 240, 120, 120)
    assert holds(cert, 3, 30)


@pytest.mark.parametrize("name", ["S3", "floors", "even places", "even places by sets"])
def test_the_four_files_run_alone(name: str, tmp_path: Path) -> None:
    for module_file in (checker.__file__, networks.__file__, readers.__file__, root_fields.__file__):
        shutil.copy(module_file, tmp_path)
    (tmp_path / "cert.json").write_text(made(name))
    for more, code in (([], 0), (["--expect", make(name)["digest"]], 0), (["--expect", "00"], 2)):
        command = [sys.executable, "-I", "networks.py", "cert.json", *more]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr.count("\n")) == (code, code // 2)
        assert ("after every" in done.stdout) == (code == 0)


def test_the_command_line_in_the_package(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cert.json").write_text(made("repeats"))
    for file, code in (("cert.json", 0), ("missing.json", 2)):
        monkeypatch.setattr(sys, "argv", ["networks", str(tmp_path / file)])
        assert networks.main() == code
        printed = capsys.readouterr()
        assert (printed.err.count("\n"), "proved: " in printed.out) == (code // 2, code == 0)
