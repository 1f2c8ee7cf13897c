"""The last step: an exact, certified program as tensors in a number format, saved and loaded.

Tensors stand in the layout of a recurrent layer with one row a *layer input*: keys, gates [I, H, J, K], betas
[I, H, J], queries [I, H, K], state [H, K, V], and values, bias or dense where the program has them. Square roots
are taken here and nowhere before: k = w/|w|, β = c (w·w). By the rule "dyadic" keys have other lengths, see
`constructions.dyadic_keys`.

Main definitions: `Weights`, `lower`, `load_weights`, `FORMATS`.

Main results: a file holds the certificate (which holds the exact program) and the tensors; `load_weights` checks the
digest of both and runs no code from the file, `lower` of the certified program reproduces the tensors bit for bit.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import ml_dtypes
import numpy as np
import safetensors
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save as to_bytes

from statetrack.errors import BudgetExceeded, InvalidFile, InvalidInput
from statetrack.theory.arrays import Vector, dot
from statetrack.theory.automata import Dfa
from statetrack.theory.fields import Element
from statetrack.theory.number_formats import number_format
from statetrack.theory.weighted import Wfa

from .certificate import Certificate, digest_of
from .dyadic_keys import KEY_RULES, dyadic_key
from .program import Dense, Factor, Head, Layer, Program, head_orbit
from .reading import any_automaton

Array = NDArray[Any]
FORMATS: Mapping[str, Any] = {
    "float64": np.float64,
    "float32": np.float32,
    "bfloat16": ml_dtypes.bfloat16,
    "float16": np.float16,
    "float8_e4m3fn": ml_dtypes.float8_e4m3fn,
    "float8_e5m2": ml_dtypes.float8_e5m2,
}
_ON_DISK = {
    "F64": np.float64,
    "F32": np.float32,
    "BF16": ml_dtypes.bfloat16,
    "F16": np.float16,
    "F8_E4M3": ml_dtypes.float8_e4m3fn,
    "F8_E5M2": ml_dtypes.float8_e5m2,
    "I32": np.int32,
}
VERSION = "statetrack-weights/2"
_MOST_ENTRIES = 1 << 27
# Powers of two kept free below the smallest number of a state that shrinks, for what rounds on the way to a readout.
_GUARD = 8


@dataclass(frozen=True, eq=False)
class Weights:
    """Tensors of every layer by name ("layers.0.keys", ...), their number format, and the certificate they come from.

    `certificate` is the JSON object; `automaton` what it tracks. Names and shapes: docs/weights.md. `state_dtype` is
    the format of the state if it is another than that of the tables; `float_proof` the proof that these numbers are
    right for ever (docs/precision.md), if there is one; `keys` the rule for the lengths of keys ("unit" or "dyadic").
    """

    dtype: str
    tensors: Mapping[str, Array]
    certificate: Mapping[str, Any]
    automaton: Dfa | Wfa
    state_dtype: str | None = None
    float_proof: Mapping[str, Any] | None = None
    keys: str = "unit"

    @property
    def storage(self) -> str:
        """The number format of the state."""
        return self.state_dtype or self.dtype

    @property
    def is_weighted(self) -> bool:
        """Whether they compute a weighted automaton's values rather than states."""
        return isinstance(self.automaton, Wfa)

    @property
    def dfa(self) -> Dfa:
        """The automaton; InvalidInput for weights of a weighted one."""
        if isinstance(self.automaton, Wfa):
            raise InvalidInput("these weights compute a weighted automaton, which has no states to compare")
        return self.automaton

    def save(self, path: str | Path) -> None:
        """Write one .safetensors file: tensors, certificate and digests. The file appears whole or not at all."""
        write_whole(Path(path), self.to_bytes())

    def to_bytes(self) -> bytes:
        """The content of the .safetensors file."""
        metadata = {
            "format": VERSION,
            "dtype": self.dtype,
            "certificate": json.dumps(self.certificate, separators=(",", ":")),
            "tensors_sha256": tensors_digest(self.tensors),
        }
        if self.state_dtype is not None:
            metadata["state_dtype"] = self.state_dtype
        if self.float_proof is not None:
            metadata["float_proof"] = json.dumps(self.float_proof, separators=(",", ":"))
        if self.keys != "unit":
            metadata["keys"] = self.keys
        return to_bytes({n: np.ascontiguousarray(t) for n, t in self.tensors.items()}, metadata)


def write_whole(path: Path, data: bytes) -> None:
    """Write a file whole or not at all; InvalidFile if the path is no ordinary file or its folder takes none."""
    if not path.name or (path.exists() and not path.is_file()):
        raise InvalidFile(str(path), "is not an ordinary file", "give the path of a file to write")
    partial = path.with_name(path.name + ".part")
    try:
        partial.write_bytes(data)
        partial.replace(path)
    except OSError as error:
        with suppress(OSError):
            partial.unlink(missing_ok=True)
        reason = f"cannot be written ({error.strerror})"
        raise InvalidFile(str(path), reason, "give a path in a folder that exists") from None


def tensors_digest(tensors: Mapping[str, Array]) -> str:
    """SHA-256 over names, types, shapes and bytes, names sorted."""
    total = hashlib.sha256()
    for name in sorted(tensors):
        t = np.ascontiguousarray(tensors[name])
        total.update(f"{name}:{t.dtype}:{t.shape};".encode())
        total.update(t.tobytes())
    return total.hexdigest()


def lower(
    program: Program, certificate: Certificate, automaton: Dfa | Wfa, dtype: str = "float32", keys: str = "unit"
) -> Weights:
    """The tensors of a closed program in a number format (a name of `FORMATS`).

    Every entry is within an ulp of the exact number (exact where the format has it); codebooks are kept in float64 for
    float64 and in float32 otherwise. With `keys` "dyadic" keys without an additive term have the length for which
    β k kᵀ comes nearest. Raises InvalidInput for an unknown format or rule.
    """
    if dtype not in FORMATS:
        raise InvalidInput(f"number format {dtype!r}: know {', '.join(FORMATS)}")
    if keys not in KEY_RULES:
        raise InvalidInput(f"rule for keys {keys!r}: know {', '.join(KEY_RULES)}")
    _check_floors(program, dtype)
    if "scaled" in certificate.data:
        _check_halvings(certificate.data, dtype)
    wiring = _Wiring(len(program.alphabet))
    for number, (layer, reads) in enumerate(zip(program.layers, program.reads, strict=True)):
        prefix = f"layers.{number}."
        for table in layer.wires:
            wiring.wire(prefix, table.reads, table.entries.seen)
        wiring.tensors |= {prefix + name: t for name, t in _layer(layer, dtype, not program.outputs, keys).items()}
        wiring.layer(prefix, layer, reads)
    wiring.answer(program)
    return Weights(dtype, wiring.tensors, certificate.data, automaton, keys=keys)


def _check_floors(program: Program, dtype: str) -> None:
    """Refuse a format that does not hold every state of a head that rounds down: there a rounding would be wrong."""
    for layer in program.layers:
        for head in layer.heads:
            if head.unit is not None:
                orbit = head_orbit(head, max_states=1_000_000)
                orbit.close()
                exact = orbit.columns.to_floats()
                if (exact.astype(FORMATS[dtype]).astype(np.float64) != exact).any():
                    held = f"states up to {np.abs(exact).max():.0f} of a head that rounds down"
                    raise InvalidInput(f"number format {dtype}: does not hold {held}; give --dtype float32 or float64")


def _check_halvings(data: Mapping[str, Any], dtype: str) -> None:
    """Refuse a format for whose numbers the smallest state, or the square of the smallest readout, is too small."""
    form, asked = number_format(dtype), data["scaled"]
    states, readouts = (1 - used.least - used.precision for used in (form, form.arithmetic))
    most = max(min(states, readouts // 2) - _GUARD, 0)
    if asked["halvings"] > most:
        blocks = (asked["tokens"] - 1) // data["length"]
        tokens = data["length"] * (1 + most // (asked["halvings"] // blocks))
        held = f"words of {asked['tokens']:,} tokens halve the state {asked['halvings']:,} times, it holds {most}"
        raise InvalidInput(f"number format {dtype}: {held}; give --scaled {tokens} at most, or --dtype float64")


class _Wiring:
    """Registers of a weights file (docs/weights.md): tables of one or two of them, longer keys in several steps."""

    def __init__(self, tokens: int) -> None:
        self.tensors: dict[str, Array] = {}
        self._number, self._sizes = [0], [tokens]
        self._wires = 0

    def wire(self, prefix: str, reads: Sequence[int], entries: Mapping[tuple[int, ...], int]) -> None:
        """A register of the program."""
        self._number.append(self._table(prefix, [self._number[i] for i in reads], entries))

    def layer(self, prefix: str, layer: Layer, reads: Sequence[int]) -> None:
        """The layer's input and its outputs."""
        inputs = {key: i for i, key in enumerate(sorted(layer.heads[0].choose.seen))}
        registers, keys = self._short(prefix, [self._number[i] for i in reads], inputs)
        self._write(prefix, "reads", "route", registers, keys)
        self._sizes.append(len(inputs))
        if layer.emit is not None:
            outputs = [list(layer.emit.seen.values())]
        else:
            outputs = [list((head.codebook or {}).values()) for head in layer.heads]
        for symbols in outputs:
            self._number.append(len(self._sizes))
            self._sizes.append(1 + max(symbols, default=-1))
        self._wires = 0

    def answer(self, program: Program) -> None:
        """The tables after the last layer; the last of them is the answer."""
        for table in program.answer[:-1]:
            self.wire("answer.", table.reads, table.entries.seen)
        for table in program.answer[-1:]:
            reads = [self._number[i] for i in table.reads]
            self._write("answer", ".reads", "", *self._short("answer.", reads, table.entries.seen))

    def _table(self, prefix: str, reads: list[int], entries: Mapping[tuple[int, ...], int]) -> int:
        reads, entries = self._short(prefix, reads, entries)
        name = f"{prefix}wires.{self._wires}"
        self._write(name, ".reads", "", reads, entries)
        self._wires += 1
        self._sizes.append(1 + max(entries.values(), default=-1))
        return len(self._sizes) - 1

    def _short(
        self, prefix: str, reads: list[int], entries: Mapping[tuple[int, ...], int]
    ) -> tuple[list[int], Mapping[tuple[int, ...], int]]:
        """The same table with one or two registers read; the first two of more become one register first."""
        if not reads:
            return [0], {(t,): value for value in entries.values() for t in range(self._sizes[0])}
        while len(reads) > 2:
            pairs = {pair: i for i, pair in enumerate(dict.fromkeys(key[:2] for key in entries))}
            reads = [self._table(prefix, reads[:2], pairs), *reads[2:]]
            entries = {(pairs[key[:2]], *key[2:]): value for key, value in entries.items()}
        return reads, entries

    def _write(
        self, prefix: str, reads: str, name: str, registers: list[int], entries: Mapping[tuple[int, ...], int]
    ) -> None:
        shape = [self._sizes[i] for i in registers]
        if math.prod(shape) > _MOST_ENTRIES:
            raise BudgetExceeded("entries in one look-up table", _MOST_ENTRIES, "--target, or a smaller automaton")
        table = np.full(shape, -1, dtype=np.int32)
        # Some tables are written for more values than their registers can take.
        for key, value in entries.items():
            if all(k < n for k, n in zip(key, shape, strict=True)):
                table[key] = value
        self.tensors[prefix + name] = table
        self.tensors[prefix + reads] = np.array(registers, dtype=np.int32)


def _layer(layer: Layer, dtype: str, weighted: bool, keys: str) -> dict[str, Array]:
    """All tensors of one layer; heads are padded with zeros to the largest K, V and J."""
    heads = layer.heads
    inputs = sorted(heads[0].choose.seen)
    rows, cols = max(h.size for h in heads), max(h.width for h in heads)
    depth = max((len(step) for h in heads for step in h.steps), default=0)
    shape, kind = (len(inputs), len(heads)), FORMATS[dtype]
    dense = any(isinstance(f, Dense) for h in heads for s in h.steps for f in s)
    out: dict[str, Array] = {"queries": np.zeros((*shape, rows)), "state": np.zeros((len(heads), rows, cols))}
    if dense:
        depth = 0
        out["dense"] = np.zeros((*shape, rows, rows))
        out["dense"][:] = np.eye(rows)
    out |= {
        "keys": np.zeros((*shape, depth, rows)),
        "betas": np.zeros((*shape, depth)),
        "gates": np.ones((*shape, depth, rows)),
    }
    extra = {"values": np.zeros((*shape, depth, cols)), "bias": np.zeros((*shape, max(depth, int(dense)), rows, cols))}
    for h, head in enumerate(heads):
        out["state"][h, : head.size, : head.width] = np.array([[float(x) for x in column] for column in head.h0]).T
        lowered = [_step(head, step, dense, dtype, keys) for step in head.steps]
        queries = [[float(x) for x in q] for q in head.queries]
        for i, key in enumerate(inputs):
            step, query = head.choose.seen[key]
            out["queries"][i, h, : head.size] = queries[query]
            for name, array in lowered[step].items():
                place = (extra if name in extra else out)[name][i, h]
                place[tuple(slice(n) for n in array.shape)] = array
    out |= {name: array for name, array in extra.items() if array.any()}
    return {name: array.astype(kind) for name, array in out.items()} | _codes(layer, dtype, weighted)


def _codes(layer: Layer, dtype: str, weighted: bool) -> dict[str, Array]:
    """Codebooks and labels of the heads, and the emit table."""
    tensors: dict[str, Array] = {}
    if any(head.unit is not None for head in layer.heads):
        tensors["unit"] = np.array([float(head.unit or 0) for head in layer.heads])
    for h, head in enumerate(layer.heads):
        if head.codebook is None and weighted:
            continue
        book = head.codebook or {}
        codewords = np.array([[float(x) for x in readout] for readout in book]).reshape(len(book), head.width)
        tensors[f"codebook.{h}"] = codewords.astype(np.float64 if dtype == "float64" else np.float32)
        tensors[f"labels.{h}"] = np.array(list(book.values()), dtype=np.int32)
    if layer.emit is not None:
        sizes = [1 + max((codes[h] for codes in layer.emit.seen), default=-1) for h in range(len(layer.heads))]
        tensors["emit"] = np.full(sizes, -1, dtype=np.int32)
        for codes, symbol in layer.emit.seen.items():
            tensors["emit"][codes] = symbol
    return tensors


def _step(head: Head, step: tuple[Factor | Dense, ...], dense: bool, dtype: str, rule: str) -> dict[str, Array]:
    """The rows of one step: keys, β, gates, values or bias; or the dense matrix (of the whole step)."""
    if dense:
        move = head.maps[head.steps.index(step)]
        made: dict[str, Array] = {"dense": np.array([[float(x) for x in row] for row in move.matrix])}
        if move.offset is not None:
            made["bias"] = np.array([[[float(x) for x in column] for column in move.offset]]).transpose(0, 2, 1)
        return made
    count = len(step)
    keys, betas, gates = np.zeros((count, head.size)), np.zeros(count), np.ones((count, head.size))
    values, bias = np.zeros((count, head.width)), np.zeros((count, head.size, head.width))
    for j, factor in enumerate(step):
        assert isinstance(factor, Factor)
        square = dot(factor.w, factor.w)
        if not factor.c.is_zero():
            keys[j] = np.array([float(x) for x in factor.w]) / math.sqrt(float(square))
            betas[j] = float(factor.c * square)
        if factor.alpha is not None:
            gates[j] = [float(x) for x in factor.alpha]
        if factor.b is not None:
            along = None if factor.c.is_zero() else _multiples(factor.w, factor.b)
            if along is None:
                bias[j] = np.array([[float(x) for x in column] for column in factor.b]).T
            else:
                # b = β k v with β k = c |w| w, so v = multiple / (c |w|).
                values[j] = [float(m / factor.c) / math.sqrt(float(square)) for m in along]
        if rule == "dyadic" and not factor.c.is_zero() and not values[j].any():
            keys[j], betas[j] = dyadic_key(factor.w, factor.c, FORMATS[dtype], number_format(dtype).precision)
    made = {"keys": keys, "betas": betas, "gates": gates}
    return made | ({"values": values} if values.any() else {}) | ({"bias": bias} if bias.any() else {})


def _multiples(w: Vector, columns: tuple[Vector, ...]) -> list[Element] | None:
    """The numbers m_j with column j = m_j w, or None if there are none."""
    i = next(i for i, x in enumerate(w) if not x.is_zero())
    found: list[Element] = []
    for column in columns:
        m = column[i] / w[i]
        if any(x != m * y for x, y in zip(column, w, strict=True)):
            return None
        found.append(m)
    return found


def load_weights(path: str | Path) -> Weights:
    """Read a file that `Weights.save` wrote; InvalidFile for anything else and for a file that was changed."""
    name = str(path)
    again = "build the file again"
    if not Path(path).is_file():
        raise InvalidFile(name, "no such file", "give a .safetensors file written by 'statetrack build'")
    try:
        with cast(Any, safe_open)(name, framework="numpy") as file:
            metadata: dict[str, str] = dict(file.metadata() or {})
        if metadata.get("format") != VERSION:
            raise InvalidFile(name, "not a statetrack weights file", "give one written by 'statetrack build'")
        views: list[tuple[str, Any]] = list(cast(Any, safetensors).deserialize(Path(path).read_bytes()))
        tensors = {key: _array(view) for key, view in views}
        state_dtype = metadata.get("state_dtype")
        for used in (metadata["dtype"], state_dtype or metadata["dtype"]):
            if used not in FORMATS:
                raise InvalidFile(name, f"number format {used!r} is not known", again)
        data = json.loads(metadata["certificate"])
        if digest_of(data) != data["digest"]:
            raise InvalidFile(name, "the certificate does not match its digest", again)
        if tensors_digest(tensors) != metadata["tensors_sha256"]:
            raise InvalidFile(name, "the tensors do not match their digest", again)
        proof = json.loads(metadata["float_proof"]) if "float_proof" in metadata else None
        if proof is not None and not _is_about(proof, metadata, data):
            raise InvalidFile(name, "its float proof is not one about this file", again)
        rule = metadata.get("keys", "unit")
        if rule not in KEY_RULES:
            raise InvalidFile(name, f"rule for keys {rule!r} is not known", again)
        return Weights(metadata["dtype"], tensors, data, any_automaton(data), state_dtype, proof, rule)
    except InvalidFile:
        raise
    except (SafetensorError, OSError) as error:
        raise InvalidFile(name, f"cannot be read as safetensors ({error})", again) from None
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise InvalidFile(name, f"its certificate is not one ({type(error).__name__}: {error})", again) from None


def _is_about(proof: Any, metadata: Mapping[str, str], certificate: Mapping[str, Any]) -> bool:
    """Whether it is a float proof that names these tensors, formats and certificate; the checker says if it holds."""
    stated = {
        "dtype": metadata["dtype"],
        "storage": metadata.get("state_dtype", metadata["dtype"]),
        "tensors_sha256": metadata["tensors_sha256"],
        "certificate": certificate["digest"],
    }
    known = {key: proof.get(key) for key in stated}
    return known == stated and {"class", "heads", "order"} <= proof.keys() and bool(proof["heads"])


def _array(view: Mapping[str, Any]) -> Array:
    """One tensor from its bytes; numpy alone has no bfloat16."""
    return np.frombuffer(view["data"], dtype=_ON_DISK[view["dtype"]]).reshape(view["shape"])
