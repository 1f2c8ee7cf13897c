"""Clock, buffer, accumulator: layers that track any permutation automaton with β <= 2, and any automaton with more.

Time is cut into blocks of P tokens. A clock counts time modulo 2P: one layer of rotations, or two layers of reflections
where a factor has no negative gates. The next layer keeps the last 2P tokens in 2P slots. The last layer applies,
during a block, the P factors of the *previous* block's map, one a token, and its query completes what the block so far
still lacks: the factors to come, then the letters of the current block.

Main definitions: `clocked_blocks`, `factor_map`, `block_maps`.

Main results: claims OURS-clock-buffer-accumulator and its parts. A map of n points is a product of at most
max(2, n - 1) factors (I - c w wᵀ) Diag(α) with gates in {-1, 0, 1}; a permutation of points minus cycles with β = 2.

References: CKDA Thm. 5 (the period is twice the block length, as one block is written while the other is read).
"""

from __future__ import annotations

from collections.abc import Sequence

from statetrack.theory.arrays import Matrix, Vector, identity, matmul, matrix, vector
from statetrack.theory.fields import Field
from statetrack.theory.number_fields import RealCyclotomic, rationals
from statetrack.theory.rotations import angle_field, planar_key, planar_reflection, planar_rotation

from .margins import centred_ramp, dihedral_query
from .program import Factor, Head, Layer, LayerInput, Lookup, Numbering, Program, Readout, Step, rank_one, step_map
from .source import Source
from .trackers import point_columns, point_maps, swaps

Map = tuple[int, ...]
_LONGEST_BLOCK = 12
_MOST_MAPS = 5_000
_MOST_POINTS = 64
_MOST_JOINT = 5_000_000


def map_matrix(field: Field, f: Map) -> Matrix:
    """The 0/1 matrix with M e_j = e_f(j)."""
    return matrix(field, ((int(f[j] == i) for j in range(len(f))) for i in range(len(f))))


def factor_map(field: Field, f: Map) -> Step:
    """Factors, first applied first, whose product is the matrix of the map f.

    Each set of points with one image is merged into a representative x: w = e_x - (1/2) 1_J, c = 2, gate -1 at x adds
    the others J to x and leaves garbage on J, which zero gates of the next factor erase. Then representatives are
    permuted to their images by swaps. β = 2 + |J|/2 for a merge, 2 for a swap. Source: CKDA Thm. 5 (β > 2).
    """
    n = len(f)
    cyclic = set(f)
    while (image := {f[i] for i in cyclic}) != cyclic:
        cyclic = image
    chosen = {f[i]: i for i in reversed(range(n))} | {f[i]: i for i in cyclic}
    merges = [(x, [i for i in range(n) if f[i] == y and i != x]) for y, x in sorted(chosen.items())]
    factors: list[Factor] = []
    dirty: list[int] = []
    for x, others in merges:
        if others:
            w = vector(field, (field(int(i == x)) - (field.one / 2 if i in others else 0) for i in range(n)))
            gates = vector(field, (-1 if i == x else int(i not in dirty) for i in range(n)))
            factors.append(Factor(w, field(2), gates))
            dirty = others
    rest = swaps(field, _closed({x: y for y, x in chosen.items()}, n))
    clean = vector(field, (int(i not in dirty) for i in range(n)))
    if dirty and rest:
        rest[0] = Factor(rest[0].w, rest[0].c, clean)
    elif dirty:
        rest = [Factor(vector(field, [0] * n), field.zero, clean)]
    return (*factors, *rest)


def _closed(partial: dict[int, int], n: int) -> Map:
    """The permutation that extends a partial injection by closing each of its paths to a cycle."""
    complete = dict(partial)
    for start in range(n):
        if start not in partial.values():
            end = start
            while end in partial:
                end = partial[end]
            complete[end] = start
    return tuple(complete[i] for i in range(n))


def block_maps(letters: Sequence[Map], field: Field) -> list[list[Map]] | None:
    """The maps of all words of length 1, 2, ..., P for the least P such that those of length P take at most P factors.

    None if that is past the budgets (blocks of 12 letters, 5,000 maps).
    """
    levels = [list(dict.fromkeys(letters))]
    while len(levels) <= _LONGEST_BLOCK and len(levels[-1]) <= _MOST_MAPS:
        if all(len(factor_map(field, f)) <= len(levels) for f in levels[-1]):
            return levels
        levels.append(list(dict.fromkeys(tuple(g[i] for i in f) for f in levels[-1] for g in levels[0])))
    return None


def clocked_blocks(source: Source, *, merging: bool = False, gates: bool = True) -> Program | None:
    """The clock, buffer and accumulator program over the field of the clock: three layers, four without `gates`.

    None if one layer does, if letters merge states and `merging` is not asked for, or if blocks or the number of joint
    states that a proof by closure would visit are past the budgets.
    """
    letters = point_maps(source)
    if not letters or len(letters[0]) > _MOST_POINTS or not (merging or source.dfa.is_permutation()):
        return None
    levels = block_maps(letters, rationals())
    if levels is None or len(levels) == 1:
        return None
    length, base = len(levels), len(levels[0]) + 1
    if base ** (2 * length) * len(source.dfa.states) > _MOST_JOINT * 2 ** (2 * length):
        return None
    field = angle_field(2 * length)
    codes = [levels[0].index(f) + 1 for f in letters]
    buffer, contents = _buffer(field, 2 * length, codes)
    accumulator = _accumulator(source, field, levels, contents)
    clock = (_rotation_clock(field, 2 * length),) if gates else _reflection_clock(field, length)
    layers = tuple(Layer((head,)) for head in (*clock, buffer, accumulator))
    dfa = source.dfa
    return Program(field, dfa.alphabet, layers, dfa.outputs, dfa.outputs[dfa.start])


def _rotation_clock(field: RealCyclotomic, period: int) -> Head:
    """Rotation by 2π/period at every token; the code is the time modulo the period."""
    turn: Step = (Factor(planar_key(field, 1, period), field(2), vector(field, (1, -1))),)
    codebook = {planar_rotation(field, t, period)[0]: t % period for t in range(1, period + 1)}
    return Head(identity(field, 2), (turn,), (vector(field, (1, 0)),), Lookup(lambda key: (0, 0)), codebook)


def _reflection_clock(field: RealCyclotomic, m: int) -> tuple[Head, Head]:
    """Period 2m by reflections: a sign flips each token; then H(0) at odd and H(2π/m) at even times."""
    one = vector(field, (1,))
    flip: Step = (Factor(one, field(2)),)
    signs = Head((one,), (flip,), (one,), Lookup(lambda key: (0, 0)), {(field(1),): 0, (field(-1),): 1})
    mirrors: tuple[Step, ...] = tuple((Factor(planar_key(field, k, m), field(2)),) for k in (1, 0))
    query = dihedral_query(field, m)
    codebook: dict[Readout, int] = {}
    state = identity(field, 2)
    for t in range(1, 2 * m + 1):
        state = matmul(planar_reflection(field, 1 - t % 2, m), state)
        codebook[matmul((query,), state)[0]] = t % (2 * m)
    return signs, Head(identity(field, 2), mirrors, (query,), Lookup(lambda key: (key[1], 0)), codebook)


def _buffer(field: Field, slots: int, codes: Sequence[int]) -> tuple[Head, Numbering]:
    """A ring of slots: at time t slot (t - 1) mod slots takes the token's code; read as digits of one number."""
    base = max(codes) + 1
    one = identity(field, slots)
    order = [(s, code) for s in range(slots) for code in sorted(set(codes))]
    steps = tuple((Factor(one[s], field.one, None, rank_one(one[s], [code])),) for s, code in order)

    def choose(key: LayerInput) -> tuple[int, int]:
        token, phase = key[0], key[-1]
        return order.index(((phase - 1) % slots, codes[token])), 0

    contents = Numbering()
    query = vector(field, (base**s for s in range(slots)))
    return Head((vector(field, [0] * slots),), steps, (query,), Lookup(choose), contents), contents


def _accumulator(source: Source, field: Field, levels: list[list[Map]], contents: Numbering) -> Head:
    """The third layer: at position r of a block, factor r of the previous block's map, and the completing query."""
    length, letters = len(levels), levels[0]
    n, base = len(letters[0]), len(letters) + 1
    still, ramp = tuple(range(n)), centred_ramp(field, n)
    blocks = {f: _padded(factor_map(field, f), length) for f in [still, *levels[-1]]}
    steps = {step: i for i, step in enumerate(dict.fromkeys(step for block in blocks.values() for step in block))}
    rows: dict[tuple[Map, Map, int], Vector] = {}
    for done, block in blocks.items():
        tail = identity(field, n)
        for r in range(length, 0, -1):
            for now in levels[r - 1]:
                rows[done, now, r] = matmul((ramp,), matmul(map_matrix(field, now), tail))[0]
            tail = matmul(tail, step_map(field, block[r - 1], n, 1).matrix)
    queries = {row: i for i, row in enumerate(dict.fromkeys(rows.values()))}

    def choose(key: LayerInput) -> tuple[int, int]:
        phase, code = key[-2:]
        number = contents.readout(code)[0].as_fraction()
        assert number is not None
        slots = [int(number) // base**s % base for s in range(2 * length)]
        half, place = divmod((phase - 1) % (2 * length), length)
        current = slots[half * length : half * length + place + 1]
        previous = slots[(1 - half) * length : (2 - half) * length]
        done = _composed(letters, previous, n) if all(previous) else still
        row = rows[done, _composed(letters, current, n), place + 1]
        return steps[blocks[done][place]], queries[row]

    return Head(point_columns(source, field, n), tuple(steps), tuple(queries), Lookup(choose))


def _padded(factors: Step, length: int) -> tuple[Step, ...]:
    """One factor a token; identities at the end."""
    return tuple((factor,) for factor in factors) + ((),) * (length - len(factors))


def _composed(letters: Sequence[Map], word: Sequence[int], n: int) -> Map:
    """The map of a word of codes, first letter first."""
    f = tuple(range(n))
    for code in word:
        f = tuple(letters[code - 1][i] for i in f)
    return f
