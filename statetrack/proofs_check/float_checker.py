"""Checks, in integers, that a weights file is right for ever in its number formats.

`python -m statetrack.proofs_check.float_checker FILE` reads a .safetensors file with a float proof. It needs Python's
standard library only and shares no code with the search: numbers are decoded from their bits, every number is an
integer times one power of two, and rounding is to nearest, ties to even, with subnormal numbers.

What is checked. (1) From the columns of the start, every float column listed with a label is reached, every image under
a listed move is listed with the next label, and no image depends on the order of the sum over K. (2) From the start's
labels and the automaton's start, for all joint states and letters: tables, routes and codes of the network, where a
head's code must be the same for every choice of float columns with its labels, and the answer must be the automaton's
state. By induction on the length every word is answered right, for ever.

Main definitions: `verify_bytes`, `Refused`.

References: docs/precision.md for the proof object, docs/weights.md for the file, kernels/README.md for the step.
"""

from __future__ import annotations

import json
import struct
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from pathlib import Path
from typing import Any

# Name in the file: bits of exponent and fraction. In F8_E4M3 the largest exponent holds numbers too.
_LAYOUT = {"F64": (11, 52), "F32": (8, 23), "BF16": (8, 7), "F16": (5, 10), "F8_E4M3": (4, 3), "F8_E5M2": (5, 2)}
# Format: precision, exponent of the smallest number, and the largest number's factor and exponent.
_FORMATS = {
    "float64": (53, -1074, (1 << 53) - 1, 971),
    "float32": (24, -149, (1 << 24) - 1, 104),
    "bfloat16": (8, -133, 255, 120),
    "float16": (11, -24, 2047, 5),
    "float8_e4m3fn": (4, -9, 14, 5),
    "float8_e5m2": (3, -16, 7, 13),
}
Column = tuple[int, ...]


class Refused(Exception):
    """The proof does not hold, or the file is not one; the message says where."""


@dataclass(frozen=True)
class Tensor:
    """A tensor: floats as integers at the arithmetic's scale, or plain integers."""

    shape: tuple[int, ...]
    values: Sequence[int]

    def at(self, *index: int) -> int:
        """One entry."""
        place = 0
        for i, n in zip(index, self.shape, strict=True):
            if not 0 <= i < n:
                raise Refused(f"index {index} in a table of shape {self.shape}")
            place = place * n + i
        return self.values[place]

    def row(self, *index: int) -> Column:
        """The entries along the last axis."""
        return tuple(self.at(*index, i) for i in range(self.shape[-1]))


class Arithmetic:
    """Numbers as integers times 2^-scale, and rounding to the arithmetic's format or the storage's."""

    def __init__(self, storage: str) -> None:
        self.name = "float64" if storage == "float64" else "float32"
        self.storage, self.digits, self.scale = storage, _FORMATS[self.name][0], -_FORMATS[self.name][1]

    def round(self, x: int, scale: int, form: str) -> int:
        """x·2^-scale, scale >= self.scale, rounded to a format, at the own scale."""
        precision, least, top, place = _FORMATS[form]
        shift = max(abs(x).bit_length() - scale - precision, least) + scale
        if shift > 0:
            whole, rest, half = abs(x) >> shift, abs(x) & ((1 << shift) - 1), 1 << (shift - 1)
            whole += rest > half or (rest == half and whole & 1 == 1)
            x = -(whole << shift) if x < 0 else whole << shift
        x = x >> (scale - self.scale) if scale >= self.scale else x << (self.scale - scale)
        if abs(x) > top << (place + self.scale):
            raise Refused("a number beyond the largest of its format")
        return x

    def times(self, x: int, y: int) -> int:
        """A rounded product."""
        return self.round(x * y, 2 * self.scale, self.name)

    def add(self, x: int, y: int) -> int:
        """A rounded sum."""
        return self.round(x + y, self.scale, self.name)

    def sums(self, terms: Sequence[int]) -> tuple[int, int, int]:
        """The sum from left to right, and bounds on the sum in every order."""
        total = terms[0]
        for x in terms[1:]:
            total = self.add(total, x)
        some = [abs(x) for x in terms if x]
        if len(some) <= 2 or self.exact_sums(some):
            return total, total, total
        middle, extra = sum(terms), (sum(some) * 2 * len(terms) >> self.digits) + 1
        return total, middle - extra, middle + extra

    def exact_sums(self, sizes: Sequence[int]) -> bool:
        """Whether all partial sums of these numbers (signs aside) are numbers of the arithmetic's format."""
        lowest = min((x & -x for x in sizes), default=1)
        return sum(sizes) <= lowest << self.digits


class HeadChecker:
    """One head: the tables of its steps, and the float columns that the proof lists for each label."""

    def __init__(self, file: WeightsFile, layer: int, head: int, proof: Mapping[str, Any], order: str) -> None:
        self.file, self.a, self.h, self.order = file, file.arithmetic, head, order
        self.t = {name: file.tensors[f"layers.{layer}.{name}"] for name in ("keys", "betas", "gates", "queries")}
        for name in ("values", "bias", "dense"):
            if f"layers.{layer}.{name}" in file.tensors:
                self.t[name] = file.tensors[f"layers.{layer}.{name}"]
        unit = file.tensors.get(f"layers.{layer}.unit")
        self.unit = 0 if unit is None else unit.values[head]
        self.state = file.tensors[f"layers.{layer}.state"]
        self.codebook = file.tensors[f"layers.{layer}.codebook.{head}"]
        self.labels = file.tensors[f"layers.{layer}.labels.{head}"].values
        self.size = self.state.shape[1]
        self.start = tuple(int(c) for c in proof["start"])
        if len(self.start) != self.state.shape[2]:
            raise Refused(f"layer {layer} head {head}: {len(self.start)} start labels")
        self.columns = {int(c): {file.column(row) for row in rows} for c, rows in proof["columns"]}
        self.moves = {(int(c), int(n)): int(d) for c, rows in proof["moves"] for n, d in rows}
        self.used: set[tuple[int, int]] = set()
        self.all_exact = True
        # Inputs with one query read alike: the first of them stands for all.
        first: dict[Column, int] = {}
        rows = [self.t["queries"].row(n, head) for n in range(self.t["queries"].shape[0])]
        self._asked = [first.setdefault(row, n) for n, row in enumerate(rows)]
        self._boxes: dict[tuple[int, int], tuple[int, int]] = {}
        self._codes: dict[tuple[tuple[int, ...], int], int] = {}

    def close(self) -> int:
        """Check (1) of the module; the number of float columns."""
        inputs: dict[int, list[int]] = {}
        for label, number in self.moves:
            inputs.setdefault(label, []).append(number)
        differ = "values" in self.t or "bias" in self.t
        found: set[tuple[int, int, Column]] = set()
        queue: list[tuple[int, int, Column]] = []
        for v, label in enumerate(self.start):
            stored = (self.a.round(self.state.at(self.h, i, v), self.a.scale, self.a.storage) for i in range(self.size))
            queue.append((v if differ else 0, label, tuple(stored)))
        found.update(queue)
        while queue:
            v, label, column = queue.pop()
            if column not in self.columns.get(label, ()):
                raise Refused(f"label {label}: a float column that is reached is not listed")
            for number in inputs.get(label, ()):
                image = (v, self.moves[label, number], self.step(number, column, v))
                if image not in found:
                    found.add(image)
                    queue.append(image)
        listed = {(c, row) for c, rows in self.columns.items() for row in rows}
        if listed != {(c, row) for _, c, row in found}:
            raise Refused("a float column is listed and never reached")
        return len(listed)

    def step(self, number: int, column: Column, v: int) -> Column:
        """The column after a token; Refused if it depends on the order of a sum."""
        if "dense" in self.t:
            return self._dense(number, column, v)
        for j in range(self.t["keys"].shape[2]):
            column = self._factor(number, column, v, j)
        if self.unit:
            # The floor of x / unit, times unit: exact where x is.
            column = tuple(self._store(x // self.unit * self.unit) for x in column)
        return column

    def _dense(self, number: int, column: Column, v: int) -> Column:
        found: list[int] = []
        if self.order != "recurrent" and any(x not in (0, 1 << self.a.scale) for x in map(abs, self.t["dense"].values)):
            raise Refused("a fused product that rounds")
        for i in range(self.size):
            row = self.t["dense"].row(number, self.h, i)
            ends = self.a.sums([self.a.times(m, x) for m, x in zip(row, column, strict=True)])
            if "bias" in self.t:
                added = self.t["bias"].at(number, self.h, 0, i, v)
                ends = tuple(self.a.add(x, added) for x in ends)
            found.append(self._agreed(ends))
        return tuple(found)

    def _factor(self, number: int, column: Column, v: int, j: int) -> Column:
        a, where = self.a, (number, self.h, j)
        key, gate, beta = self.t["keys"].row(*where), self.t["gates"].row(*where), self.t["betas"].at(*where)
        gated = [a.times(g, x) for g, x in zip(gate, column, strict=True)]
        terms = [a.times(k, x) for k, x in zip(key, gated, strict=True)]
        ends, found = a.sums(terms), list[int]()
        self._note_products([*zip(gate, column, strict=True), *zip(key, gated, strict=True)])
        for i in range(self.size):
            push = a.times(beta, key[i])
            after = [a.add(gated[i], -a.times(push, z)) for z in ends]
            added = [a.times(push, self.t["values"].at(*where, v))] if "values" in self.t else []
            added += [self.t["bias"].at(*where, i, v)] if "bias" in self.t else []
            for x in added:
                after = [a.add(y, x) for y in after]
            self._note_products([(beta, key[i]), (push, ends[0])])
            if self.order != "recurrent":
                after += self._fused(gated[i], push, key, gated, terms, added)
            found.append(after[0] if self.unit and len(set(after)) == 1 else self._agreed(after))
            self.all_exact &= found[-1] == gated[i] - (push * ends[0] >> a.scale) + sum(added)
        return tuple(found)

    def _fused(
        self, x: int, push: int, key: Column, gated: Sequence[int], terms: Sequence[int], added: Sequence[int]
    ) -> list[int]:
        """Bounds on the sum before storage when products are fused into sums or not; none if nothing rounds."""
        a = self.a
        z = sum(k * s for k, s in zip(key, gated, strict=True))
        whole = all((k * s) % (1 << a.scale) == 0 for k, s in zip(key, gated, strict=True))
        if whole and a.exact_sums([abs(t) for t in terms if t]):
            moved = push * (z >> a.scale)
            if moved % (1 << a.scale) == 0 and a.exact_sums([abs(y) for y in (x, moved >> a.scale, *added) if y]):
                return []
        size = abs(x) + (abs(push) * sum(abs(k * s) for k, s in zip(key, gated, strict=True)) >> (2 * a.scale))
        size += sum(map(abs, added)) + 1
        extra = (size * 2 * (len(key) + 8) >> a.digits) + (1 << 9)
        middle = x - (push * z >> (2 * a.scale)) + sum(added)
        return [middle - extra, middle + extra]

    def _note_products(self, pairs: Sequence[tuple[int, int]]) -> None:
        self.all_exact &= all(x * y == self.a.times(x, y) << self.a.scale for x, y in pairs)

    def _store(self, x: int) -> int:
        return self.a.round(x, self.a.scale, self.a.storage)

    def _agreed(self, ends: Sequence[int]) -> int:
        if self.unit:
            raise Refused("a floored head whose sum depends on its order")
        stored = {self._store(x) for x in ends}
        if len(stored) > 1:
            raise Refused("a stored number depends on the order of a sum")
        return stored.pop()

    def code(self, labels: tuple[int, ...], number: int) -> int:
        """The code of every choice of float columns with these labels; Refused if there are two."""
        number = self._asked[number]
        if (labels, number) not in self._codes:
            width = self.codebook.shape[1]
            box = [self._box(label, number) for label in labels[:width]]
            self._codes[labels, number] = self._decode(box)
        return self._codes[labels, number]

    def _box(self, label: int, number: int) -> tuple[int, int]:
        if (label, number) not in self._boxes:
            query = self.t["queries"].row(number, self.h)
            ends: list[int] = []
            for column in self.columns[label]:
                terms = [self.a.times(q, x) for q, x in zip(query, column, strict=True)]
                ends += self.a.sums(terms)
                if self.order != "recurrent":
                    loose = (sum(map(abs, terms)) * 2 * (len(terms) + 2) >> self.a.digits) + (1 << 9)
                    ends += [sum(terms) - loose, sum(terms) + loose]
            self._boxes[label, number] = min(ends), max(ends)
        return self._boxes[label, number]

    def _decode(self, box: Sequence[tuple[int, int]]) -> int:
        words = [self.codebook.row(c) for c in range(self.codebook.shape[0])]
        middle = [(low + high) // 2 for low, high in box]
        near = min(range(len(words)), key=lambda c: sum((x - y) ** 2 for x, y in zip(middle, words[c], strict=True)))
        own = words[near]
        for other, label in zip(words, self.labels, strict=True):
            if label == self.labels[near]:
                continue
            # The difference of squared distances is linear in the readout; the rest is the rounding of the squares.
            worst = sum(x * x - y * y for x, y in zip(own, other, strict=True))
            size = 0
            for (low, high), x, y in zip(box, own, other, strict=True):
                worst += max(2 * (y - x) * low, 2 * (y - x) * high)
                size += max(abs(low - x), abs(high - x)) ** 2 + max(abs(low - y), abs(high - y)) ** 2
            slack = (4 * (len(own) + 6) * size >> self.a.digits) + (4 * (len(own) + 1) << self.a.scale)
            if worst + slack >= 0:
                raise Refused("a choice of float columns is as near to another codeword")
        return self.labels[near]


class WeightsFile:
    """A .safetensors file: metadata, and tensors as integers."""

    def __init__(self, data: bytes) -> None:
        try:
            size = struct.unpack("<Q", data[:8])[0]
            header: dict[str, Any] = json.loads(data[8 : 8 + size])
            self.metadata: dict[str, str] = header.pop("__metadata__")
            self.proof: dict[str, Any] = json.loads(self.metadata["float_proof"])
            self.arithmetic = Arithmetic(self.metadata.get("state_dtype", self.metadata["dtype"]))
            body = data[8 + size :]
            self.tensors = {name: self._tensor(entry, body) for name, entry in header.items()}
        except (KeyError, ValueError, TypeError, struct.error) as error:
            raise Refused(f"no weights file with a float proof ({type(error).__name__}: {error})") from None

    def _tensor(self, entry: Mapping[str, Any], body: bytes) -> Tensor:
        raw, shape, kind = body[slice(*entry["data_offsets"])], tuple(entry["shape"]), str(entry["dtype"])
        width = 4 if kind == "I32" else (1 + sum(_LAYOUT[kind])) // 8
        if len(raw) != width * prod(shape):
            raise Refused("a tensor whose bytes do not fit its shape")
        parts = (raw[i : i + width] for i in range(0, len(raw), width))
        if kind == "I32":
            return Tensor(shape, [int.from_bytes(part, "little", signed=True) for part in parts])
        scale = self.arithmetic.scale
        exact = (decoded(int.from_bytes(part, "little"), kind, scale) for part in parts)
        # Tables in a wider format than the arithmetic would be rounded first.
        return Tensor(shape, [self.arithmetic.round(x, scale, self.arithmetic.name) for x in exact])

    def column(self, row: Sequence[str]) -> Column:
        """A float column written as hexadecimal numbers."""
        found: list[int] = []
        for text in row:
            top, bottom = float.fromhex(text).as_integer_ratio()
            if bottom.bit_length() - 1 > self.arithmetic.scale:
                raise Refused(f"{text}: no number of the format")
            found.append(top << (self.arithmetic.scale - bottom.bit_length() + 1))
        return tuple(found)

    def reads(self, name: str) -> tuple[int, ...]:
        """The registers that a table reads."""
        return tuple(self.tensors[name].values)


def decoded(bits: int, kind: str, scale: int) -> int:
    """The number with these bits, as an integer times 2^-scale."""
    exponents, fraction = _LAYOUT[kind]
    power, rest = bits >> fraction & ((1 << exponents) - 1), bits & ((1 << fraction) - 1)
    last = (1 << exponents) - 1
    if power == last and (kind != "F8_E4M3" or rest == (1 << fraction) - 1):
        raise Refused("a tensor holds what is no number")
    whole = rest + (1 << fraction) if power else rest
    shift = max(power, 1) - (last >> 1) - fraction + scale
    value = whole << shift if shift >= 0 else whole >> -shift
    if shift < 0 and value << -shift != whole:
        raise Refused("a tensor holds a number below the arithmetic's smallest")
    return -value if bits >> (exponents + fraction) else value


def verify_bytes(data: bytes) -> dict[str, Any]:
    """Check a weights file with a float proof; facts about what was proved. Raises Refused."""
    file = WeightsFile(data)
    try:
        return _verify(file)
    except (KeyError, IndexError, ValueError, TypeError) as error:
        raise Refused(f"the proof does not fit the file ({type(error).__name__}: {error})") from None


def _verify(file: WeightsFile) -> dict[str, Any]:
    proof, automaton = file.proof, json.loads(file.metadata["certificate"])["automaton"]
    order, storage = str(proof["order"]), file.arithmetic.storage
    if proof["format"] != "statetrack-float/1" or order not in ("recurrent", "fused"):
        raise Refused("another format or order of evaluation")
    if (proof["dtype"], proof["storage"], proof["tensors_sha256"]) != (
        file.metadata["dtype"],
        storage,
        file.metadata["tensors_sha256"],
    ):
        raise Refused("the proof is about other tensors or another number format")
    count = 1 + max(int(name.split(".")[1]) for name in file.tensors if name.startswith("layers."))
    parts = iter(proof["heads"])
    layers = [
        [HeadChecker(file, n, h, next(parts), order) for h in range(file.tensors[f"layers.{n}.queries"].shape[1])]
        for n in range(count)
    ]
    if next(parts, None) is not None:
        raise Refused("more heads in the proof than in the file")
    heads = [head for layer in layers for head in layer]
    columns = sum(head.close() for head in heads)
    joint = _follow_all(file, layers, automaton)
    if joint != proof["joint"]:
        raise Refused(f"{joint} joint states, the proof says {proof['joint']}")
    if any(head.used != set(head.moves) for head in heads):
        raise Refused("a move is listed and never made")
    single = all(len(rows) == 1 for head in heads for rows in head.columns.values())
    exact = single and all(head.all_exact for head in heads)
    if (proof["class"] == "E" and not exact) or (proof["class"] == "R" and not single):
        raise Refused(f"class {proof['class']!r}, which this is not")
    if proof["class"] not in ("E", "R", "C"):
        raise Refused(f"class {proof['class']!r}: know E, R, C")
    return {"storage": storage, "order": order, "class": proof["class"], "columns": columns, "joint": joint}


def _follow_all(file: WeightsFile, layers: list[list[HeadChecker]], automaton: Mapping[str, Any]) -> int:
    """Check (2) of the module; the number of joint states."""
    heads = [head for layer in layers for head in layer]
    start = (tuple(head.start for head in heads), int(automaton["start"]))
    seen, queue = {start}, [start]
    letters = len(automaton["alphabet"])
    for (labels, state), token in ((s, t) for s in queue for t in range(letters)):
        after, answer = _advance(file, layers, labels, token)
        expected = int(automaton["delta"][state][token])
        if answer != expected:
            raise Refused(f"automaton state {state}, letter {token}: answer {answer}, expected {expected}")
        if (after, expected) not in seen:
            seen.add((after, expected))
            queue.append((after, expected))
    return len(seen)


def _advance(
    file: WeightsFile, layers: list[list[HeadChecker]], labels: tuple[tuple[int, ...], ...], token: int
) -> tuple[tuple[tuple[int, ...], ...], int]:
    registers, after = [token], list[tuple[int, ...]]()
    for n, layer in enumerate(layers):
        _wires(file, f"layers.{n}.", registers)
        number = _look_up(file.tensors[f"layers.{n}.route"], [registers[i] for i in file.reads(f"layers.{n}.reads")])
        registers.append(number)
        codes: list[int] = []
        for head in layer:
            own = labels[len(after)]
            head.used.update(product(own, (number,)))
            moved = tuple(head.moves[c, number] for c in own)
            after.append(moved)
            codes.append(head.code(moved, number))
        emit = file.tensors.get(f"layers.{n}.emit")
        registers += codes if emit is None else [_look_up(emit, codes)]
    _wires(file, "answer.", registers)
    if "answer" in file.tensors:
        registers.append(_look_up(file.tensors["answer"], [registers[i] for i in file.reads("answer.reads")]))
    return tuple(after), registers[-1]


def _wires(file: WeightsFile, prefix: str, registers: list[int]) -> None:
    i = 0
    while f"{prefix}wires.{i}" in file.tensors:
        reads = file.reads(f"{prefix}wires.{i}.reads")
        registers.append(_look_up(file.tensors[f"{prefix}wires.{i}"], [registers[r] for r in reads]))
        i += 1


def _look_up(table: Tensor, index: Sequence[int]) -> int:
    found = table.at(*index) if index else table.values[0]
    if found < 0:
        raise Refused("a table without an entry where one is read")
    return found


if __name__ == "__main__":
    try:
        print(json.dumps({"accepted": True} | verify_bytes(Path(sys.argv[1]).read_bytes())))
    except Refused as error:
        sys.exit(f"not accepted: {error}")
