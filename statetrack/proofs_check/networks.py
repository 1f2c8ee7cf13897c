"""Check certificates of every kind (docs/certificate.md): checker.py's two, "blocks", "linear", "stack" and "chain".

It needs the standard library, checker.py, readers.py and root_fields.py: the package's or, for a copy outside it, those
in the same folder. A_w is the product of the letters of w, the newest on the left. All numbers of the three kinds are
rational. The point -1 is none: its column is 0, and its entry of γ.
*Theorem (blocks).* If `verify` accepts, then after every non-empty word the accumulator reads γ[points of the state
reached], different rows for different states; or, in the other form, the weighted automaton's value.
*Proof.* By its certificate the clock shows t mod 2P after t tokens, hence half and r. Time t writes slot (t-1) mod 2P
only. So at time t = bP + r, 1 <= r <= P, half is b mod 2, slots half·P, ..., half·P + r - 1 hold the codes of block b
so far, and the other half those of all of block b - 1, or zeros if b = 0. `fold` is defined where codes of C are
folded from 0 on; it leads from L_j to L_(j+1); and M of the fold is the product of the codes' matrices, as M_0 = I
and M_fold(x, c) = A_c M_x for every entry. Zeros fold to 0. So v is in L_r, and x is in L_P, or is 0 if b = 0: the
block and the row that are looked up are listed. Let H_t be the accumulator and S_t = A_(first t tokens)·start.
*Claim:* R_r H_(bP+r) = S_(bP) for r = 0..P and the R of block (b mod 2, x). At r = 0 this was checked if b = 0. If b
> 0, block b - 1 ended with R_P = its Π, so Π_(1-half) H_(bP) = S_((b-1)P), and x is in L_P, so R_0 = M_x Π_(1-half)
and R_0 H_(bP) = M_x S_((b-1)P) = S_(bP). For r > 0, R_r H_(bP+r) = R_r F_(s_r) H_(bP+r-1) = R_(r-1) H_(bP+r-1). As a
number ρ names one matrix, the query is γ M_v R_r and reads γ M_v S_(bP) = γ S_t. (Turned: ρ is the number of a product
and M_ρ = R_r; the codes of the block so far, folded from ρ on, lead to z with M_z = M_v R_r, and its query is γ M_z.)
(If 0 is in L_P, then (0, 0) serves block 0 and others, and is held to both conditions.) S_t has the columns e_point of
the state reached: so has the start, and each token's letter moves the columns of each state to those of the next.
Weighted: S_t = A_w·initial.
*Theorem (blocks, scaled).* After every non-empty word of at most T tokens the accumulator reads 2^-j γ[points of the
state reached], 0 <= j <= J; such rows of different states differ. *Proof.* As above, but R_0 = 2^-e M_x Π_(1-half) with
an e >= 0 of the block, so R_r H_(bP+r) = 2^-j S_(bP), j the sum of e over the blocks 1..b; b <= (T - 1)/P.
*Theorem (linear).* After every non-empty word the readout is the weighted automaton's value. *Proof.* Π h0 = initial
and Π F = A Π for each token, so Π h = A_w·initial, which the query final·Π multiplies by final.
*Theorem (stack).* After every non-empty word the answer is the automaton's state. *Proof.* The search follows the
values before the token, the letters looked up from them, and the values after: a function of letter and value, as
states of one value stay so. It refuses a wrong answer. By induction on time and modules the network sees the same: a
module is told that letter, so by its part's certificate (its word is not empty) it shows the state after it, and for
the modules after it `before` turns letter and state into the value before: all pairs are listed, each with one value.
*Theorem (chain).* After every non-empty word the answer is the automaton's state. *Proof.* For any values v_1..v_n let
c_0 = 0 and c_i = narrow_i(c_(i-1), v_i). *Claim:* after each word every (c_(i-1), v_i) is listed and c_n is the state.
For the empty word this was checked. Let d be the c of the values after one more token. (c_i, d_i, token) is among the
triples that module i + 1 is checked for, and for i = n among the last ones: (0, 0, token) was put in first; if the
triple of i - 1 is there, its letter is listed; (c_(i-1), v_i) is listed, so (d_(i-1), what v_i moves to) was looked up,
is listed, and the triple of i was put in. The last ones lead from states to successors, so d_n = delta(c_n, token). The
network sees the same, as in a stack: `before` and the state give both values, and these c and d.
If a clock or a part has heads with a unit, then the theorem is about that rounding arithmetic, as in checker.py.
"""

# pyright: basic
import hashlib
import json
import sys
from collections import defaultdict
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

if __package__:
    from statetrack.proofs_check import checker, readers
    from statetrack.proofs_check.root_fields import Rooted
else:  # the four files lie alone in one folder, which `python -I` does not search by itself
    sys.path.insert(0, str(Path(__file__).resolve().parent))
    import checker
    import readers
    from root_fields import Rooted

Row, Matrix = readers.Row, readers.Matrix
Refused, keys, need, below = checker.Refused, checker.keys, checker.need, checker.below
exact, letter, machine, matrix, names = readers.exact, readers.letter, readers.machine, readers.matrix, readers.names
natural, reads, row, same, sparse = readers.natural, readers.reads, readers.row, readers.same, readers.sparse
table, times, times_row, units = readers.table, readers.times, readers.times_row, readers.units


def verify(text: str, expect: str | None = None) -> dict[str, Any]:
    """What the certificate's text proves, as a few named facts. Raises Refused for everything that is no proof."""
    try:
        top: Any = json.loads(text, object_pairs_hook=checker.unique, parse_float=int, parse_constant=int)
        return checker.verify(text, expect, Rooted) if top["kind"] in ("closure", "span") else prove(top, expect)
    except (LookupError, TypeError, AttributeError, ArithmeticError, ValueError, RecursionError, MemoryError) as error:
        raise Refused("certificate", f"{type(error).__name__}: {error}", "the format of docs/certificate.md") from error


def prove(top: Any, expect: str | None = None) -> dict[str, Any]:
    """The facts of a certificate that has been read, be it the whole file or a part of another."""
    kind = top["kind"]
    if kind in ("closure", "span"):
        return checker.verify(json.dumps(top), expect, Rooted)
    fields = "clock length letters tokens buffer fold accumulator select blocks rows row points"
    kinds = {"blocks": (check_blocks, fields), "linear": (check_linear, "head inputs select")}
    kinds |= {"stack": (check_stack, "parts modules answer"), "chain": (check_chain, "parts modules")}
    check, fields = kinds[kind]
    keys(top, f"format kind range digest automaton claims {fields}", "scaled turned" * (kind == "blocks"))
    need(top["format"] == "statetrack-certificate/1", "format", top["format"])
    canon = json.dumps({k: v for k, v in top.items() if k != "digest"}, sort_keys=True, separators=(",", ":"))
    digest = hashlib.sha256(canon.encode()).hexdigest()
    need(digest == top["digest"] and expect in (None, digest), "digest", digest, expect or top["digest"])
    rule = keys(top["range"], "target gates low high beta_max factors additive dense")
    good = [type(rule[key]) for key in ("target", "low", "high", "dense")] == [str, int, int, bool]
    good = good and all(type(rule[key]) in (int, type(None)) for key in ("beta_max", "factors"))
    good = good and rule["gates"] in ("one", "scalar", "channel") and rule["additive"] in ("none", "key", "any")
    need(good, "range", rule)
    proved, facts = check(top, rule)
    proved += ", states being rounded down to units after every token" * ('"unit":' in canon)  # only a key reads so
    named = {"proved": f"after every non-empty word {proved}", "digest": digest, "kind": kind, "target": rule["target"]}
    return named | facts


class Head:
    """Start, steps and queries of a head over Q without unit, labels, derived steps and, unless affine, keys b."""

    def __init__(self, rule: Any, data: Any, affine: bool = False) -> None:
        good = all(type(data[key]) is list for key in ("h0", "steps", "queries", "derived"))
        good = good and "unit" not in data and data["labels"] is None and not data["derived"]
        good = good and (affine or not any("b" in factor for step in data["steps"] for factor in step))
        need(good, "head", data, "no unit, labels, derived steps, additive terms")
        head = checker.Head(checker.Field(1), rule, data | {"queries": []})
        self.K, self.V = head.K, head.V
        self.steps = [tuple(map(exact, step[: head.K])) for step in head.steps]
        self.queries = [row(query, self.K) for query in data["queries"]]
        self.start = tuple(map(exact, zip(*head.h0, strict=True)))[: head.K]


def weighted(value: Any) -> tuple[Matrix, Row, list[Matrix]]:
    """Initial column, final row and letters of a weighted automaton."""
    n, letters = len(keys(value, "alphabet initial final letters")["final"]), value["letters"]
    good = names(value["alphabet"]) and type(value["initial"]) is type(letters) is list
    need(good and len(letters) == len(value["alphabet"]), "weighted automaton", value, "a matrix for each symbol")
    return matrix([[x] for x in value["initial"]], n, 1), row(value["final"], n), [letter(x, n) for x in letters]


def check_clock(clock: Any, rule: Any, length: Any) -> dict[str, Any]:
    """The facts of a clock that shows t mod 2P after t tokens."""
    need(type(length) is int and length > 0, "length", length, "at least 1")
    need(clock["kind"] == "closure" and same(clock["range"], rule), "clock", clock["range"], "a closure, same range")
    facts, automaton = prove(clock), clock["automaton"]
    good = (facts["symbols"], facts["states"], automaton["start"]) == (1, 2 * length, 0)
    good = good and automaton["delta"] == [[(i + 1) % (2 * length)] for i in range(2 * length)]
    need(good, "clock", automaton, f"counting modulo {2 * length}")
    return facts


def check_buffer(data: Any, rule: Any, most: int) -> None:
    """Step 0 keeps the slot, step 1 + c makes it c."""
    head = Head(rule, data, affine=True)
    good = (head.K, head.V, head.start, head.queries) == (1, 1, ((),), [((0, 1),)])
    good = good and [len(step) for step in data["steps"]] == [0] + [1] * (most + 1)
    good = good and head.steps[1:] == [(sparse([(1, c)]),) for c in range(most + 1)]
    need(good, "buffer", data, f"steps that make 0..{most}")


class Fold:
    """The fold with the matrices M by product number, and the L_j; `letters` starts with the identity."""

    def __init__(self, fold: Any, letters: list[Matrix], codes: Sequence[int], length: int) -> None:
        self.listed, self.letters, self.codes = table(fold, 3, 2, "fold"), letters, codes
        need(natural([y for _, _, y in self.listed.values()]), "fold", fold, "integers from 0")
        self.products, self.levels, self.unused = {0: letters[0]}, [{0}], {*self.listed}
        for _ in range(length):
            self.levels.append({self.step(x, c) for x in self.levels[-1] for c in codes})

    def step(self, x: int, c: int) -> int:
        """Where a code leads from a product; one number has one matrix."""
        if c == 0:
            return x
        need((x, c) in self.listed, "fold", (x, c), "to be listed")
        y = self.listed[x, c][2]
        if (x, c) in self.unused:
            self.unused.remove((x, c))
            product = times(self.letters[c], self.products[x])
            need(self.products.setdefault(y, product) == product, "fold", (x, c, y), "one matrix for each number")
        return y

    def close(self) -> None:
        """Follow every product by every code."""
        queue, seen = [*self.products], {*self.products}
        for x in queue:
            fresh = {self.step(x, c) for c in self.codes} - seen
            seen |= fresh
            queue += fresh


def check_blocks(top: Any, rule: Any) -> tuple[str, dict[str, Any]]:
    """Clock, buffer, products, blocks, rows and the automaton."""
    P, tokens, n, automaton = top["length"], top["tokens"], len(top["row"]), top["automaton"]
    clock, head, gamma = check_clock(top["clock"], rule, P), Head(rule, top["accumulator"]), row(top["row"], n)
    need(type(top["letters"]) is type(top["select"]) is list and len(top["select"]) == 2, "letters, select", n, "lists")
    letters = [units(range(n), n), *(letter(value, n) for value in top["letters"])]
    need(below(tokens, *[len(letters)] * len(automaton["alphabet"])), "tokens", tokens, f"below {len(letters)}")
    T, J = map(keys(top.get("scaled", {"tokens": 1, "halvings": 0}), "tokens halvings").get, ("tokens", "halvings"))
    need(natural([T, J]) and T > 0 and J < 4_000, "scaled", (T, J), "tokens from 1 on, fewer than 4000 halvings")
    check_buffer(top["buffer"], rule, len(letters) - 1)
    fold = Fold(top["fold"], letters, sorted({*tokens}), P)
    actions, claims = [letters[code] for code in tokens], keys(top["claims"], "products entries margin")
    if "initial" in automaton:
        start, *rest = weighted(automaton)
        good = (head.V, len(start)) == (1, n) and rest == [gamma, actions] and "scaled" not in top
        need(good, "weighted automaton", automaton, "the row, the letters of the tokens, one column")
        need(top["points"] is claims["margin"] is None, "points and margin", claims["margin"], "null")
        states, margin, proved = n, None, "the readout is the weighted automaton's value"
    else:
        start, states, margin = check_points(top, actions, head.V, J)
        proved = "the readout is that of the automaton's state, which differs from those of the others"
    entries, halved = check_accumulator(top, head, gamma, fold, start)
    need(halved * ((T - 1) // P) == J, "halvings", J, halved * ((T - 1) // P))
    if "scaled" in top:
        proved = f"of up to {T} tokens {proved.replace('that', f'2^-j times that, j at most {J},', 1)}"
    found = {"products": len(fold.products), "entries": entries + len(top["fold"]), "margin": claims["margin"]}
    need(same(claims, found), "claims", claims, found)
    heads = [*clock["heads"], *[(1, 1)] * (2 * P), (head.K, head.V)]
    margins = [*clock["margins"], *[Fraction(1) if any(tokens) else None] * (2 * P), margin]
    facts = {"symbols": len(tokens), "states": states, "joint": 0, "heads": heads, "margins": margins}
    return proved, {"products": found["products"], "entries": found["entries"]} | facts


def check_points(top: Any, actions: Sequence[Matrix], V: int, J: int) -> tuple[Matrix, int, Fraction | None]:
    """The start of an automaton whose states are V points each, their number, and how far apart their rows are, which
    may be halved J times."""
    (_, start, delta), points, n, field = machine(top["automaton"]), top["points"], len(top["row"]), checker.Field(1)
    good = type(points) is list and len(points) == len(delta)
    good = good and all(below([x + 1 if type(x) is int else x for x in state], *[n + 1] * V) for state in points)
    need(good and all(type(value) is dict for value in top["letters"]), "points", points, f"{V} a state, and maps")
    columns = [units(state, n) for state in points]
    for s, targets in enumerate(delta):
        for token, target in enumerate(targets):
            need(times(actions[token], columns[s]) == columns[target], "points moved by token", (s, token), target)
    entries = [Fraction(checker.rational(x)) for x in [*top["row"], 0]]
    rows = [tuple([field.number(str(entries[x] / 2**j)) for x in state]) for j in range(J + 1) for state in points]
    margin = checker.apart(field, rows, [*range(len(delta))] * (J + 1), top["claims"]["margin"])
    return columns[start], len(delta), margin


def check_accumulator(top: Any, head: Head, gamma: Row, fold: Fold, start: Matrix) -> tuple[int, int]:
    """The number of entries of blocks and rows, and how often a block halves the state at most: every block keeps R
    times the state (scaled: up to that), every row is γ M_v R."""
    most, P, n, products, levels, known = 0, top["length"], len(start), fold.products, fold.levels, dict[Any, Matrix]()
    turned, whole = "turned" in top, levels[-1]
    need(top.get("turned", True) is True, "turned", top.get("turned"), "true or absent")
    named = products if turned else dict[int, Matrix]()
    select = [matrix(half, n, head.K) for half in top["select"]]
    blocks = table(top["blocks"], 4, 2, "blocks")
    wanted = {(half, x) for half in (0, 1) for x in whole} | {(0, 0)}
    need(blocks.keys() == wanted, "blocks", sorted(blocks.keys() ^ wanted)[:4], "each half and product once")
    for half, x, steps, rho in blocks.values():
        good = below(steps, *[len(head.steps)] * P) and natural(rho) and len(rho) == P
        need(good, "block", (steps, rho), f"{P} steps and row numbers")
        R = select[half]
        for step, name in zip(steps[::-1], rho[::-1], strict=True):
            need(named.setdefault(name, R) == R, "row number", name, "one matrix")
            R = known.get((name, step)) or known.setdefault((name, step), times(R, head.steps[step]))
        need((half, x) != (0, 0) or times(R, head.start) == start, "first block", (half, x), "the start")
        if x in whole:
            product, e = times(products[x], select[1 - half]), 0
            while product != R and "scaled" in top and e < 64:
                R, e = tuple([sparse([(i, 2 * y) for i, y in entries]) for entries in R]), e + 1
            need(product == R, "steps of block", (half, x), "its product")
            most = max(most, e)
    if turned:
        fold.close()
        wanted = {(z,) for z in products}
    else:
        places = [(levels[r + 1], {rho[r] for *_, rho in blocks.values()}) for r in range(P)]
        wanted = {(v, name) for level, met in places for v in level for name in met}
    need(not fold.unused, "fold", fold.unused, "no entry out of reach")
    rows = table(top["rows"], 3 - turned, 2 - turned, "rows")
    need(rows.keys() == wanted, "rows", sorted(rows.keys() ^ wanted)[:4], "each product and row number once")
    ahead = {v: times_row(gamma, products[v]) for v, *_ in wanted}
    for v, *name, query in rows.values():
        need(type(query) is int and 0 <= query < len(head.queries), "rows", query, "the number of a query")
        good = head.queries[query] == (times_row(ahead[v], named[name[0]]) if name else ahead[v])
        need(good, "row", (v, *name, query), "γ M_v R")
    return 2 * P * len(blocks) + len(rows), most


def check_linear(top: Any, rule: Any) -> tuple[str, dict[str, Any]]:
    """One head that carries a weighted automaton: Π h is the automaton's column."""
    head, (initial, final, letters) = Head(rule, top["head"]), weighted(top["automaton"])
    select, inputs = matrix(top["select"], len(initial), head.K), top["inputs"]
    need(type(inputs) is list and len(inputs) == len(letters) and same(top["claims"], {}), "inputs, claims", inputs)
    need(head.V == 1 and times(select, head.start) == initial, "start", head.V, "one column, the initial one")
    for token, pick in enumerate(inputs):
        need(below(pick, len(head.steps), len(head.queries)), "inputs", pick, "a step and a query")
        good = times(select, head.steps[pick[0]]) == times(letters[token], select)
        need(good and head.queries[pick[1]] == times_row(final, select), "inputs", pick, f"those of token {token}")
    facts = {"symbols": len(inputs), "states": len(initial), "joint": 0, "heads": [(head.K, 1)], "margins": [None]}
    return "the readout is the weighted automaton's value", facts


class Module:
    """Tables of one module: token and values read, or two sets and token, to letter, value and letter to value."""

    def __init__(self, data: Any, width: int, parts: Sequence[Any], read: bool) -> None:
        (letters, start, delta), values, self.reads = parts[data["part"]], data["values"], data.get("reads")
        self.letters = table(data["letters"], 2, 0, "letters")
        good = below([x for _, x in self.letters.values()], *[letters] * len(self.letters))
        good = good and all(len(key) == width for key in self.letters)
        need(good, "letters", data["letters"], f"keys of length {width}, {letters} letters")
        need(natural(values) and len(values) == len(delta), "values", values, f"{len(delta)} integers from 0")
        self.start, self.unused = values[start], {*self.letters}
        self.moves, before = dict[int, dict[int, int]]({b: {} for b in values}), set[tuple[int, int, int]]()
        for b, targets in zip(values, delta, strict=True):
            for x, target in enumerate(targets):
                need(self.moves[b].setdefault(x, values[target]) == values[target], "values", (b, x), "one to move to")
                before.add((x, target, b))
        need((data["before"] is not None) == read, "before", read, "a list if a module reads this one, else null")
        good = len({key[:2] for key in before}) == len(before)
        good = not read or (good and table(data["before"], 3, 3, "before").keys() == before)
        need(good, "before", data["before"], "a function, the value before for each letter and state after it")


def check_parts(top: Any, rule: Any) -> tuple[int, int, list[list[int]], list[Any], dict[str, Any]]:
    """The automaton, those of the parts, all of which are proved and used, and the facts of all heads."""
    (symbols, start, delta), proofs = machine(top["automaton"]), list[dict[str, Any]]()
    need(type(top["parts"]) is type(top["modules"]) is list and len(top["modules"]) > 0, "modules", "none", "a list")
    for part in top["parts"]:
        good = part["kind"] in ("closure", "blocks", "stack")
        good = good and not {"initial", "scaled"} & {*part, *part["automaton"]}
        need(good and same(part["range"], rule), "part", part["kind"], "closure, blocks or stack, of the same range")
        proofs.append(prove(part))
    used = [data["part"] for data in top["modules"]]
    need(natural(used) and {*used} == {*range(len(proofs))}, "parts", used, "all of them used")
    need(sum(len(proofs[i]["heads"]) for i in used) <= 1_000_000, "heads", "more", "at most 1000000")
    facts: dict[str, Any] = {"symbols": symbols, "states": len(delta)}
    facts |= {key: [value for i in used for value in proofs[i][key]] for key in ("heads", "margins")}
    return symbols, start, delta, [machine(part["automaton"]) for part in top["parts"]], facts


def check_chain(top: Any, rule: Any) -> tuple[str, dict[str, Any]]:
    """Parts, and module by module the triples of set before, set after and token that can be."""
    symbols, start, delta, parts, facts = check_parts(top, rule)
    met, at, count = {(0, 0, token) for token in range(symbols)}, 0, 0
    for i, data in enumerate(top["modules"], 1):
        module = Module(keys(data, "part letters values before narrow"), 3, parts, i < len(top["modules"]))
        values, narrow = defaultdict[int, list[int]](list), table(data["narrow"], 3, 2, "narrow")
        need(natural([to for *_, to in narrow.values()]), "narrow", i, "integers from 0")
        for above, value in narrow:
            values[above].append(value)
        need(module.letters.keys() == met, "letters", i, "each pair of sets and token that can be, and no other")
        at, count, triples = narrow[at, module.start][2], count + len(met), {*met}
        met.clear()
        for p, q, token in triples:
            moves, x = module.moves, module.letters[p, q, token][1]
            met.update([(narrow[p, v][2], narrow[q, moves[v][x]][2], token) for v in values[p]])
    need(at == start, "start", at, start)
    for p, q, token in met:
        need(p < len(delta) and q == delta[p][token], "answer", (p, q, token), "the automaton's next state")
    need(same(top["claims"], {"triples": count}), "triples", top["claims"], count)
    return "the answer is the automaton's state", facts | {"joint": 0, "triples": count}


def check_stack(top: Any, rule: Any) -> tuple[str, dict[str, Any]]:
    """Parts, modules, and the search over their values: module by module, the joint ones so far and those after."""
    symbols, start, delta, parts, facts = check_parts(top, rule)
    given = [keys(data, "part reads letters values before") for data in top["modules"]]
    read = {at for data in given for at in data["reads"]}
    modules = [Module(data, 1 + len(reads(data["reads"], at)), parts, at in read) for at, data in enumerate(given)]
    final = reads(keys(top["answer"], "reads table")["reads"], len(modules))
    answers = table(top["answer"]["table"], 2, 0, "answer")
    need(natural([state for _, state in answers.values()]), "answer", answers, "states")
    most, after = min(keys(top["claims"], "joint")["joint"], 5_000_000), [[0] * symbols]
    values: list[tuple[int, ...]] = [()]
    for module in modules:
        inputs = [[(token, *[row[i] for i in module.reads]) for token in range(symbols)] for row in values]
        told = [[module.letters[key][1] for key in row] for row in inputs]
        module.unused.difference_update(*inputs)
        joints, edges = checker.Numbers((0, module.start)), list[list[int]]()
        for at, value in joints.listed:
            moves = module.moves[value]
            edges.append([joints[to, moves[x]] for to, x in zip(after[at], told[at], strict=True)])
            need(len(joints) <= most, "joint states", len(joints), most)
        values, after = [(*values[at], value) for at, value in joints.listed], edges
    met = {to: tuple([values[to][i] for i in final]) for to in {to for row in after for to in row}}
    said = {to: answers[key][1] for to, key in met.items()}
    found = {(0, start), *said.items()}
    for at, state in found:
        need([said[to] for to in after[at]] == delta[state], "answer", values[at], delta[state])
    need(same(top["claims"], {"joint": len(found)}) and len(found) <= most, "joint states", len(found), most)
    need(not (answers.keys() - met.values() or any(m.unused for m in modules)), "letters or answers", "out of reach")
    return "the answer is the automaton's state", facts | {"joint": len(found)}


def main() -> int:
    """The command line of checker.py, for certificates of every kind."""
    return checker.main(verify)


if __name__ == "__main__":
    sys.exit(main())
