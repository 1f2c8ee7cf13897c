"""The last step: an exact, certified program as tensors in a number format, saved and loaded.

Tensors stand in the layout of a recurrent layer with one row a *layer input*: keys, gates [I, H, J, K], betas
[I, H, J], queries [I, H, K], state [H, K, V], and values, bias or dense where the program has them. Square roots
are taken here and nowhere before: k = w/|w|, β = c (w·w).

Main definitions: `Weights`, `lower`, `load_weights`, `FORMATS`.

Main results: a file holds the certificate (which holds the exact program) and the tensors; `load_weights` checks the
digest of both and runs no code from the file, `lower` of the certified program reproduces the tensors bit for bit.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
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

from statetrack.errors import InvalidFile, InvalidInput
from statetrack.theory.arrays import Vector, dot
from statetrack.theory.automata import Dfa
from statetrack.theory.fields import Element

from .certificate import Certificate, digest_of
from .program import Dense, Factor, Head, Layer, LayerInput, Program
from .reading import automaton_of

Array = NDArray[Any]
FORMATS: Mapping[str, Any] = {"float64": np.float64, "float32": np.float32, "bfloat16": ml_dtypes.bfloat16}
_ON_DISK = {"F64": np.float64, "F32": np.float32, "BF16": ml_dtypes.bfloat16, "I32": np.int32}
VERSION = "statetrack-weights/1"


@dataclass(frozen=True, eq=False)
class Weights:
    """Tensors of every layer by name ("layers.0.keys", ...), their number format, and the certificate they come from.

    `certificate` is the JSON object; `dfa` its automaton. Names and shapes: see the module's docstring. Also
    "layers.l.route", which maps the token (first layer), or the input and symbol of the layer below, to the input;
    "layers.l.codebook.h" [C, V] and "layers.l.labels.h" [C], which decode head h; and "layers.l.emit", if present,
    which maps the codes of all heads to the symbol.
    """

    dtype: str
    tensors: Mapping[str, Array]
    certificate: Mapping[str, Any]
    dfa: Dfa

    @property
    def layers(self) -> int:
        """Number of layers."""
        return len(self.certificate["layers"])

    def save(self, path: str | Path) -> None:
        """Write one .safetensors file: tensors, certificate and digests. The file appears whole or not at all."""
        target = Path(path)
        metadata = {
            "format": VERSION,
            "dtype": self.dtype,
            "certificate": json.dumps(self.certificate, separators=(",", ":")),
            "tensors_sha256": tensors_digest(self.tensors),
        }
        write_whole(target, to_bytes({n: np.ascontiguousarray(t) for n, t in self.tensors.items()}, metadata))


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


def lower(program: Program, certificate: Certificate, dfa: Dfa, dtype: str = "float32") -> Weights:
    """The tensors of a closed program in a number format ("float64", "float32", "bfloat16").

    Every entry is within an ulp of the exact number (exact where the format has it); codebooks are kept in float64 for
    float64 and in float32 otherwise. Raises InvalidInput for an unknown format.
    """
    if dtype not in FORMATS:
        raise InvalidInput(f"number format {dtype!r}: know {', '.join(FORMATS)}")
    tensors: dict[str, Array] = {}
    below: list[LayerInput] = []
    shape = [len(program.alphabet)]
    for number, layer in enumerate(program.layers):
        made = _layer(layer, dtype) | {"route": _route(layer, below, shape)}
        tensors |= {f"layers.{number}.{name}": t for name, t in made.items()}
        below = sorted(layer.heads[0].choose.seen)
        shape = [len(below), 1 + _largest_symbol(layer)]
    return Weights(dtype, tensors, certificate.data, dfa)


def _layer(layer: Layer, dtype: str) -> dict[str, Array]:
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
        lowered = [_step(head, step, dense) for step in head.steps]
        queries = [[float(x) for x in q] for q in head.queries]
        for i, key in enumerate(inputs):
            step, query = head.choose.seen[key]
            out["queries"][i, h, : head.size] = queries[query]
            for name, array in lowered[step].items():
                place = (extra if name in extra else out)[name][i, h]
                place[tuple(slice(n) for n in array.shape)] = array
    out |= {name: array for name, array in extra.items() if array.any()}
    return {name: array.astype(kind) for name, array in out.items()} | _codes(layer, dtype)


def _route(layer: Layer, below: list[LayerInput], shape: list[int]) -> Array:
    """From the token (first layer), or the input and symbol of the layer below, to the input; -1 where none occurs."""
    route = np.full(shape, -1, dtype=np.int32)
    number = {key: i for i, key in enumerate(below)}
    for i, key in enumerate(sorted(layer.heads[0].choose.seen)):
        route[key if len(shape) == 1 else (number[key[:-1]], key[-1])] = i
    return route


def _codes(layer: Layer, dtype: str) -> dict[str, Array]:
    """Codebooks and labels of the heads, and the emit table."""
    tensors: dict[str, Array] = {}
    for h, head in enumerate(layer.heads):
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


def _step(head: Head, step: tuple[Factor | Dense, ...], dense: bool) -> dict[str, Array]:
    """The rows of one step: unit keys, β, gates, values or bias; or the dense matrix (of the whole step)."""
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


def _largest_symbol(layer: Layer) -> int:
    if layer.emit is not None:
        return max(layer.emit.seen.values(), default=-1)
    return max((layer.heads[0].codebook or {}).values(), default=-1)


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
        data = json.loads(metadata["certificate"])
        if digest_of(data) != data["digest"]:
            raise InvalidFile(name, "the certificate does not match its digest", again)
        if tensors_digest(tensors) != metadata["tensors_sha256"]:
            raise InvalidFile(name, "the tensors do not match their digest", again)
        return Weights(metadata["dtype"], tensors, data, automaton_of(data))
    except InvalidFile:
        raise
    except (SafetensorError, OSError) as error:
        raise InvalidFile(name, f"cannot be read as safetensors ({error})", again) from None
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise InvalidFile(name, f"its certificate is not one ({type(error).__name__}: {error})", again) from None


def _array(view: Mapping[str, Any]) -> Array:
    """One tensor from its bytes; numpy alone has no bfloat16."""
    return np.frombuffer(view["data"], dtype=_ON_DISK[view["dtype"]]).reshape(view["shape"])
