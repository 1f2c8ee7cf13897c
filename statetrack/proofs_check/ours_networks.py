"""Claims about parts of composed networks: clocks, buffers, windows, memories, registers, stacks, and their precision.

Main results: OURS-clock-rotation, OURS-clock-reflections, OURS-clock-rational, OURS-ring-buffer,
OURS-clock-buffer-accumulator, OURS-scaled-blocks, OURS-nilpotent-window, OURS-digit-window, OURS-reset-memory,
OURS-realisation-R1, OURS-stack, OURS-two-layers-S5, OURS-wfa-bits.

References: docs/constructions.md, docs/certificate.md.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from fractions import Fraction
from itertools import product

from statetrack.constructions.certificate import certify
from statetrack.constructions.clocks import STYLES, clock
from statetrack.constructions.compiler import compile_source
from statetrack.constructions.factorise import factor_map_to_bank, halvings, map_matrix
from statetrack.constructions.memories import memory_program
from statetrack.constructions.program import Factor, rank_one, step_map
from statetrack.constructions.reduction import best_cascade
from statetrack.constructions.registers import registers_move, registers_program
from statetrack.constructions.splitting import split_group, subgroup_chain
from statetrack.constructions.targets import TARGETS, target
from statetrack.constructions.weighted_plan import bits_per_token
from statetrack.theory.arrays import Matrix, Vector, add, identity, matmul, matrix, matvec, vector
from statetrack.theory.automata import Dfa, explored
from statetrack.theory.groups import named_group
from statetrack.theory.number_fields import rationals
from statetrack.theory.weighted import Wfa, from_matrices

from .ckda_multilayer import plain, random_dfa, small_wfa, through_kernels
from .claim import Trial, claim

Map = tuple[int, ...]
States = tuple[int, ...]
Q = rationals()


def _joined(x: States) -> str:
    return ",".join(map(str, x))


def _clocks(t: Trial, goals: Sequence[str], lengths: Sequence[int], wrong_by: int) -> None:
    for name in goals:
        for length in lengths:
            program, _ = clock(STYLES[name], length)
            _, dfa = clock(STYLES[name], length + wrong_by)
            closed, certificate = certify(program, dfa, target(name))
            t.certificate(certificate.data)
            t.equal(f"{name}, P = {length}: symbol after a period", closed.run("t" * 2 * length)[-1], "0")
            t.equal(f"{name}, P = {length}: joint states", certificate.joint, 2 * length)


@claim(
    "OURS-clock-rotation",
    "One layer counts time modulo 2P by a rotation, made of one factor with a negative gate or of two reflections, "
    "and one query tells all 2P times apart.",
    source="CKDA Thm. 5, docs/constructions.md",
    kinds="CL",
    control={"wrong_by": 1},
    hypotheses=("P ≥ 1",),
    figure="clock",
)
def rotating_clocks(t: Trial, wrong_by: int = 0) -> None:
    """For each P the closure of the clock against a counter, re-checked independently."""
    _clocks(t, ("ckda", "deltaproduct"), range(1, t.amount(8, 16, 24)), wrong_by)


@claim(
    "OURS-clock-reflections",
    "Two layers of reflections count time modulo 2P: a sign that flips, then a mirror at even and another at odd "
    "times.",
    source="CKDA Sec. 5 (Gated DeltaNet), docs/constructions.md",
    kinds="CL",
    control={"wrong_by": 1},
    hypotheses=("P ≥ 1",),
)
def reflecting_clocks(t: Trial, wrong_by: int = 0) -> None:
    """For each P the closure of the clock against a counter, re-checked independently."""
    _clocks(t, ("deltanet",), range(1, t.amount(8, 16, 24)), wrong_by)


@claim(
    "OURS-clock-rational",
    "A signed Householder matrix with rational key is of infinite order or of order 1, 2, 3, 4 or 6, and each occurs.",
    source="docs/constructions.md",
    kinds="E X",
    control={"sixth": (1, 1, 1, 2)},
    hypotheses=("β = 2", "gates ±1"),
)
def rational_clocks(t: Trial, sixth: tuple[int, ...] = (1, 1, 1, 3)) -> None:
    """The four keys; all small integer keys.

    Off the span of the key and its image the matrix is ±1, so at most one pair of eigenvalues is not real; it lies in a
    quadratic field, and φ(n) ≤ 2 leaves n = 1, 2, 3, 4, 6. A finite order is thus found among the first 12 powers.
    """
    given = {2: ((1,), (1,)), 3: ((1, 1, 1, 1), (1, 1, 1, -1)), 4: ((1, 1), (1, -1)), 6: (sixth, (1, 1, 1, -1))}
    for n, (key, signs) in given.items():
        t.equal(f"order for the key {key}", _order(key, signs), n)
    found = set[int | None]()
    for size in range(1, t.amount(4, 5)):
        for key in product(range(t.amount(3, 4)), repeat=size):
            for signs in product((1, -1), repeat=size):
                if any(key):
                    found.add(_order(key, signs))
                    t.count("keys")
    t.holds("orders are 1, 2, 3, 4, 6 or infinite", found <= {None, 1, 2, 3, 4, 6}, found)


def _order(key: Sequence[int], signs: Sequence[int]) -> int | None:
    """The order of the signed Householder matrix, None if it is not among the first 12 powers."""
    w = vector(Q, key)
    step = Factor(w, 2 / sum((x * x for x in w), Q.zero), vector(Q, signs)).matrix()
    power, one = step, identity(Q, len(w))
    for n in range(1, 13):
        if power == one:
            return n
        power = matmul(power, step)
    return None


def _kept(letters: Sequence[int], slots: int, addressed: int) -> list[Vector]:
    """The buffer after each token, by factors k = e_s, β = 1; token t goes to slot (t - 1) mod `addressed`."""
    one, state, found = identity(Q, slots), vector(Q, [0] * slots), list[Vector]()
    for time, letter in enumerate(letters):
        key = one[time % addressed]
        step = step_map(Q, (Factor(key, Q.one, None, rank_one(key, [letter + 1])),), slots, 1)
        state = matvec(step.matrix, state)
        state = state if step.offset is None else add((state,), step.offset)[0]
        found.append(state)
    return found


@claim(
    "OURS-ring-buffer",
    "N slots written in turn (k = e_s, β = 1) hold the last N tokens, and one number Σ slot·B^s tells them, B being "
    "the number of letters plus one.",
    source="CKDA Thm. 5, docs/constructions.md",
    kinds="E X P",
    control={"slots": 3},
    hypotheses=("a clock modulo N says which slot is next",),
)
def ring_buffer(t: Trial, slots: int = 4) -> None:
    """Exhaustive to length 6, random long words; the control has a slot less than it promises tokens."""
    words = [word for n in range(1, t.amount(6, 8)) for word in product(range(2), repeat=n)]
    words += [tuple(t.random.choices(range(4), k=t.amount(30, 300))) for _ in range(5)]
    for word in words:
        for time, held in enumerate(_kept(word, 4, slots), 1):
            wanted = [0] * 4
            for i in range(max(0, time - 4), time):
                wanted[i % 4] = word[i] + 1
            t.equal(f"slots after {word[:time]}", [str(x) for x in held], [str(x) for x in wanted])
    numbers = [sum((x * 3**s for s, x in enumerate(held)), Q.zero) for held in _kept((0, 1, 0, 0), 4, slots)]
    t.equal("the numbers of the worked example", numbers, [1, 7, 16, 43])


@claim(
    "OURS-clock-buffer-accumulator",
    "Clock, buffer and accumulator answer right after every token: F_P ... F_(r+1) and the letters of the current "
    "block complete what the accumulator, one block late, has done so far.",
    source="docs/certificate.md (the block lemma)",
    kinds="C X CL K",
    control={"letters": 2},
    hypotheses=("every word of P letters takes at most P factors",),
    figure="clock",
)
def block_lemma(t: Trial, letters: int = 1) -> None:
    """Two letters of S3, and an automaton that merges: all words of 5 (10) letters; the control answers late."""
    for source, goal in (("(1 2 3);(1 2)", "ckda"), ("[ab]*aba[ab]*", "ckda-wide")):
        made = compile_source(source, goal, construction="blocks")
        t.certificate(made.certificate.data)
        dfa = made.automaton
        for word in product(dfa.alphabet[-2:], repeat=t.amount(5, 10)):
            wanted = dfa.run(word)
            t.equal(f"answers to {' '.join(word)}", made.run(word)[letters - 1 :], wanted[: len(word) - letters + 1])
    through_kernels(t, "(1 2 3);(1 2)", "ckda", construction="blocks")


@claim(
    "OURS-scaled-blocks",
    "With β ≤ 2 every map is carried from bank to bank up to a factor 2^-e, 4^e at least the largest number of points "
    "with one image. Blocks of such factors answer right as long as the powers of 1/2 in a readout are told apart.",
    source="docs/constructions.md",
    kinds="E C X",
    control={"less": 1},
    hypotheses=("no more tokens than the certificate says",),
)
def scaled_blocks(t: Trial, less: int = 0) -> None:
    """All maps of up to 3 (4) points, and an automaton on words of its length; the control halves once less."""
    for n in range(1, t.amount(4, 5)):
        for f in product(range(n), repeat=n):
            e = max(halvings(f) - less, 0)
            factors = factor_map_to_bank(Q, f, 1, gates=True, halved=e)
            carried = step_map(Q, tuple(factors), 2 * n, 1).matrix[n:]
            wanted = tuple((*(x / 2**e for x in row), *(Q.zero,) * n) for row in map_matrix(Q, f))
            t.equal(f"product for {f}", plain(carried), plain(wanted))
            t.holds(f"β for {f}", all(g.beta <= 2 for g in factors))
    for goal in ("ckda", "kda", "deltanet"):
        made = compile_source("(a|b)*a(a|b)", goal, scaled=40)
        t.certificate(made.certificate.data)
        for word in (t.random.choices("ab", k=40) for _ in range(t.amount(10, 100))):
            t.equal(f"answers to {' '.join(word)}", made.run(word), made.automaton.run(word))


def _power(a: Matrix, n: int) -> Matrix:
    result = identity(Q, len(a))
    for _ in range(n):
        result = matmul(result, a)
    return result


@claim(
    "OURS-nilpotent-window",
    "One head keeps exactly the last two tokens (gates ≥ 0) or the last three (a negative gate), finitely many "
    "states, and no head (I - β k kᵀ) Diag(α), whatever its size, keeps more.",
    source="docs/constructions.md",
    kinds="E P CL K",
    control={"last_gate": 1},
    hypotheses=("exact arithmetic", "β ≥ 0", "the same matrix at every token"),
    proves=True,
)
def nilpotent_windows(t: Trial, last_gate: int = 0) -> None:
    """The three windows; and the limit.

    Let the matrix be nilpotent. A gate that is not 0 and occurs twice is an eigenvalue, so the m gates that are not 0
    differ; det(x - A) = x^m there means β k_i² = α_i^(m-1) / Π_{j≠i} (α_i - α_j), checked as an identity for m ≤ 4. All
    these are ≥ 0 only for m ≤ 2 (checked for all numbers of positive and negative gates up to 9: only the signs count,
    and of two positive or two negative gates next to each other one gets the wrong sign). Zero gates add one step.
    """
    half = Fraction(1, 2)
    for size, c, gates in ((2, half, (1, -1)), (2, Fraction(1), (1, 0)), (3, half, (1, -1, last_gate))):
        a = Factor(vector(Q, [1] * size), Q(c), vector(Q, gates)).matrix()
        steps = 3 if size == 3 else 2
        t.equal(f"power {steps} for gates {gates}", plain(_power(a, steps)), [["0"] * size] * size)
        t.holds(f"power {steps - 1} is not 0", _power(a, steps - 1) != matrix(Q, [[0] * size] * size))
    for m in range(1, 5):
        for _ in range(t.amount(8, 80)):
            gates = [Fraction(x, 7) for x in t.random.sample([x for x in range(-9, 10) if x], m)]
            squares = [_square(gates, i) for i in range(m)]
            similar = [[Q((i == j) - squares[j]) * Q(gates[j]) for j in range(m)] for i in range(m)]
            t.equal(f"nilpotent for {gates}", plain(_power(tuple(map(tuple, similar)), m)), [["0"] * m] * m)
    for plus, minus in product(range(10), repeat=2):
        gates = [Fraction(x) for x in (*range(plus, 0, -1), *range(-1, -minus - 1, -1))]
        possible = all(_square(gates, i) >= 0 for i in range(plus + minus))
        t.equal(f"{plus} positive and {minus} negative gates", possible, plus <= 1 and minus <= 1)
    for source, goal in (("[ab]*a[ab]", "kda"), ("[ab]*a[ab]{2}", "ckda"), ("[ab]*a[ab]", "deltaproduct")):
        t.certificate(compile_source(source, goal, construction="window").certificate.data)
    through_kernels(t, "[ab]*a[ab]{2}", "ckda", construction="window")


def _square(gates: Sequence[Fraction], i: int) -> Fraction:
    """β k_i² for which distinct gates make a nilpotent matrix."""
    others = math.prod((gates[i] - g for j, g in enumerate(gates) if j != i), start=Fraction(1))
    return gates[i] ** (len(gates) - 1) / others


@claim(
    "OURS-digit-window",
    "In arithmetic that rounds down one number keeps the last k tokens, for every k, with a gate 1/B or β = 1 - 1/B.",
    source="docs/constructions.md",
    kinds="X P CL K",
    control={"base": 2},
    hypotheses=("the state is rounded down to integers after each token", "codes are less than B"),
)
def digit_window(t: Trial, base: int = 4) -> None:
    """h <- floor(h/B) + code·B^(k-1) for three letters of codes 1 to 3; certificates for k-definite languages."""
    for length in range(1, t.amount(4, 6)):
        top = base ** (length - 1)
        for word in product((1, 2, 3), repeat=length + 2):
            h = 0
            for code in word:
                h = math.floor(Fraction(h, base) + code * top)
            digits = [h // base**i % base for i in range(length)]
            t.equal(f"the last {length} of {word}", digits, list(word[-length:]))
    for goal in ("diag[0,1]", "deltanet[0,1]", "kda[0,1]"):
        for length in range(1, t.amount(4, 8)):
            source = f"[ab]*a[ab]{{{length}}}"
            t.certificate(compile_source(source, goal, construction="window").certificate.data)
    through_kernels(t, "[ab]*a[ab]{3}", "diag[0,1]", construction="window")


@claim(
    "OURS-reset-memory",
    "Every architecture here keeps the last two values of a register that is reset at times and held at others: one "
    "layer with gates, two reflections or rounding down, two layers of single reflections.",
    source="docs/constructions.md",
    kinds="CL",
    control={"held": False},
    hypotheses=("the targets with one digit round down",),
)
def reset_memories(t: Trial, held: bool = True) -> None:
    """Certificates on all targets for one and two values; the control expects to hold what it shifts."""
    for name in TARGETS:
        for orders, values in (((0, 1, 3), 2), ((0, 2, 3), 1), ((0, 1, 2, 6), 2)):
            if name == "unconstrained":
                continue

            def move(letter: int, past: States, orders: Map = orders) -> States:
                order = orders[letter]
                return (*past[1:], order - 1) if order else past if held else (*past[1:], past[-1])

            dfa = explored(range(len(orders)), (1,) * values, move, _joined)
            program = memory_program(name, dfa, orders)
            closed, certificate = certify(program, dfa, target(name))
            t.certificate(certificate.data)
            t.equal(f"layers on {name}", closed.depth, 1 + (values == 2 and "reflect" in _kind(name)))


def _kind(name: str) -> str:
    return "reflect" if name.removesuffix("-wide") in ("deltanet", "gdn") else "other"


@claim(
    "OURS-realisation-R1",
    "A permutation-reset component of m points is one layer of at most 2m + 1 reflections and projections a token "
    "that shows the state, and the state before a reset: exact, norm at most 1, as many states as the automaton "
    "has.",
    source="docs/constructions.md; Grazzi Thm. 4 (repaired)",
    kinds="CL P",
    control={"shown": 1},
)
def registers(t: Trial, shown: int = 2) -> None:
    """Random components of up to 4 points; the control has the register of the state only."""
    for _ in range(t.amount(12, 100)):
        m = t.random.randint(2, 4)
        actions = [tuple(t.random.sample(range(m), m)), (t.random.randrange(m),) * m]
        actions += [(t.random.randrange(m),) * m if t.random.random() < 0.5 else tuple(range(m))]
        dfa = explored(actions, (-1, 0), registers_move, _joined)
        one = explored(actions, (0,), registers_move, _joined)
        program = registers_program(dfa if shown == 2 else one, actions, 0)
        closed, certificate = certify(program, dfa, target("deltaproduct"))
        t.certificate(certificate.data)
        t.equal("states", certificate.joint, len(dfa.states))
        t.holds("factors", closed.factors_per_token <= 2 * m + 1, closed.factors_per_token)


@claim(
    "OURS-stack",
    "A reduced permutation-reset cascade is a stack of networks with certificates of their own, exact and with "
    "finitely many states, on every architecture with β ≤ 2, and where groups are missing for automata without "
    "groups.",
    source="docs/certificate.md (stacks); Krohn and Rhodes",
    kinds="C CL X K",
    control={"late": True},
    figure="cascade",
)
def stacks(t: Trial, late: bool = False) -> None:
    """Known and random automata; the control compares with the automaton a letter late."""
    known = ("[ab]*aba[ab]*", "[ab]*a[ab]", "(a(ab)*b)*")
    cases = [(s, goal) for s in known for goal in ("deltaproduct", "ckda", "kda", "deltanet", "diag[0,1]")]
    for source, goal in cases[:: t.amount(2, 1)]:
        _stack(t, source, goal, late)
    for _ in range(t.amount(4, 60)):
        dfa = random_dfa(t.random, t.random.randint(3, 4))
        if len(dfa.states) > 2 and not dfa.is_permutation():
            t.holds("fewer layers than states", best_cascade(dfa).cascade.levels < len(dfa.states))
            _stack(t, dfa, t.random.choice(("deltaproduct", "ckda", "kda")), late)
    through_kernels(t, "[ab]*aba[ab]*", "kda", construction="cascade")


def _stack(t: Trial, source: str | Dfa, goal: str, late: bool) -> None:
    made = compile_source(source, goal, construction="cascade")
    t.certificate(made.certificate.data)
    dfa = made.automaton
    for word in product(dfa.alphabet, repeat=4):
        got, wanted = made.run(word), dfa.run(word)
        t.equal(f"{source} on {goal}, {word}", got, (*wanted[1:], wanted[-1]) if late else wanted)


@claim(
    "OURS-two-layers-S5",
    "S5 with all its 120 letters is tracked by two layers of Complex KDA with β ≤ 2, for words of every length.",
    source="docs/constructions.md; CKDA Thm. 4 says that one layer is not enough",
    kinds="C CL K",
    control={"middle": 12},
)
def two_layers(t: Trial, middle: int = 60) -> None:
    """The cosets of A5 and then A5: the cascade for all 120 letters; the network and its certificate.

    The cascade in every budget; the network of S5 in all but the fast one, which has that of S4. The control goes over
    the subgroup of 12 elements: ten cosets are no sign.
    """
    group = named_group("S5")
    whole, *rest = subgroup_chain(group.permutation(g) for g in range(group.order))
    chain = (whole, next(h for h in rest if len(h) == middle), rest[-1])
    cascade = split_group(group, range(group.order), chain)
    t.equal("sizes of the components", [c.size for c in cascade.components], [2, 60])
    for x, letter in product(cascade.reachable(), range(group.order)):
        if t.budget != "fast" or t.random.random() < 0.1:
            state = cascade.dfa.delta[cascade.state(x), letter]
            t.equal(f"letter {letter} at {x}", cascade.state(cascade.step(x, letter)), int(state))
    name, size = ("S4", 3) if t.budget == "fast" else ("S5", 4)
    made = compile_source(name, "ckda", construction="two-steps")
    t.certificate(made.certificate.data)
    t.equal("layers and sizes", made.dims, ((1,), (size,)))
    t.equal("letters", len(made.automaton.alphabet), 24 if name == "S4" else 120)
    t.holds("β at most 2", made.program.beta_max <= 2)
    through_kernels(t, name, "ckda", construction="two-steps")


@claim(
    "OURS-wfa-bits",
    "The accumulator of a weighted automaton holds states whose numerators and denominators grow by at most log2 D "
    "+ log2 G bits a token, D the common denominator of the letters and G the largest row sum of D·|entries|.",
    source="docs/constructions.md; CKDA Thm. 5 (polynomial precision)",
    kinds="E P",
    control={"share": Fraction(1, 2)},
)
def weighted_bits(t: Trial, share: Fraction = Fraction(1)) -> None:
    """D^t times the state is an integer vector of at most G^t times the start's size; measured at ends of blocks."""
    draw: random.Random = t.random
    given = [from_matrices("a", [1], {"a": [[Fraction(3, 2)]]}, [1])]
    for wfa in given + [small_wfa(draw, draw.randint(1, 3)) for _ in range(t.amount(4, 40))]:
        made = compile_source(wfa, "ckda-wide")
        t.certificate(made.certificate.data)
        length, small = int(made.certificate.data["length"]), made.automaton
        assert isinstance(small, Wfa)
        n, per_token = small.size, bits_per_token(small) * share
        start = sum(x.numerator.bit_length() + x.denominator.bit_length() for x in small.initial)
        for time, (_, _, state) in enumerate(made.program.runner.last_head(draw.choices(wfa.alphabet, k=40)), 1):
            if time % length == 0:
                bank = state[n:] if time // length % 2 else state[:n]
                exact = [x.as_fraction() or Fraction(0) for x in bank]
                bits = max(math.log2(max(abs(x.numerator), 1)) + math.log2(x.denominator) for x in exact)
                t.holds(f"bits after {time} tokens", bits <= time * per_token + start, bits)
