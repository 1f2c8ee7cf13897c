"""Models to compare with, by the libraries that keep them: torch's Transformer and GRU, and xLSTM's two blocks.

A baseline is a whole stack of layers, with norms and residuals of its own. All but the GRU keep their past inputs as
the cache and read them again: right, and slow for long generation.

Main definitions: `BaselineConfig`, `baseline`.

References: torch.nn.TransformerEncoder and GRU; the package xlstm (mLSTM, sLSTM).
"""
# torch is only partly typed, and xlstm is not.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportMissingImports=false
# ruff: noqa: F722

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence, pad_sequence

from statetrack.errors import InvalidInput, KernelUnavailable

from .layer_parts import Cache, check_input, is_whole, sequence_starts

if TYPE_CHECKING:
    from jaxtyping import Float, Int

BASELINES = ("transformer", "gru", "mlstm", "slstm")


@dataclass(frozen=True)
class BaselineConfig:
    """A baseline, in plain JSON values.

    Attributes:
        kind: "transformer" (causal, norms first, sinusoidal positions), "gru", "mlstm" or "slstm".
        width: model width, a multiple of `heads` (the GRU has none).
        compiled: sLSTM's CUDA code, compiled by nvcc where it runs, instead of its loop in torch.

    Raises:
        InvalidInput: whatever does not fit, all of it.
    """

    kind: str
    width: int
    heads: int = 4
    compiled: bool = False

    def __post_init__(self) -> None:
        faults = [] if self.kind in BASELINES else [f"kind {self.kind!r}, expected one of {', '.join(BASELINES)}"]
        if not is_whole(self.width, 1) or not is_whole(self.heads, 1):
            faults.append(f"width {self.width!r} and heads {self.heads!r}, expected integers from 1 on")
        elif self.kind != "gru" and self.width % self.heads:
            faults.append(f"width {self.width} is not a multiple of heads {self.heads}")
        elif self.kind == "transformer" and self.width % 2:
            faults.append(f"width {self.width}, expected an even one (sines and cosines)")
        if faults:
            raise InvalidInput(f"baseline: {'; '.join(faults)}")


def baseline(config: BaselineConfig, layers: int, mlp_ratio: float) -> nn.Module:
    """The stack of a configuration; `mlp_ratio` is for the transformer, which needs one, and sLSTM.

    Raises:
        InvalidInput: a transformer without an MLP.
        KernelUnavailable: mlstm or slstm without the package xlstm, or with one that is not known.
    """
    if config.kind == "gru":
        return Gru(config, layers)
    if config.kind == "transformer":
        return Transformer(config, layers, mlp_ratio)
    return XLstm(config, layers, mlp_ratio)


class Gru(nn.Module):
    """torch's GRU."""

    def __init__(self, config: BaselineConfig, layers: int) -> None:
        super().__init__()
        self.config = config
        self.gru = nn.GRU(config.width, config.width, layers, batch_first=True)

    def forward(
        self,
        x: Float[Tensor, "batch time width"],
        cache: tuple[Cache, ...] | None = None,
        cu_seqlens: Int[Tensor, " bound"] | None = None,
    ) -> tuple[Float[Tensor, "batch time width"], tuple[Cache, ...]]:
        """The outputs, and the states [sequences, layers, width] after them."""
        check_input(x, self.config.kind, self.config.width, cu_seqlens)
        sequences = len(x) if cu_seqlens is None else len(cu_seqlens) - 1
        state = x.new_zeros(sequences, self.gru.num_layers, x.shape[2]) if cache is None else cache[0]["state"]
        if not x.shape[1]:
            return x, ({"state": state},)
        if cu_seqlens is None:
            y, final = self.gru(x, state.transpose(0, 1).contiguous())
            return y, ({"state": final.transpose(0, 1)},)
        rows, lengths = _padded(x, cu_seqlens)
        some = lengths > 0
        packed = pack_padded_sequence(rows[some], lengths[some], batch_first=True, enforce_sorted=False)
        found, last = self.gru(packed, state[some].transpose(0, 1).contiguous())
        assert isinstance(found, PackedSequence)
        y = torch.zeros_like(rows)
        y[some] = pad_packed_sequence(found, batch_first=True, total_length=rows.shape[1])[0].to(y.dtype)
        final = state.clone()
        final[some] = last.transpose(0, 1).to(final.dtype)
        return _unpadded(y, lengths), ({"state": final},)


class _Rereading(nn.Module):
    """A causal stack whose cache is its past inputs [batch, time, width]."""

    def __init__(self, config: BaselineConfig) -> None:
        super().__init__()
        self.config = config

    def forward(
        self,
        x: Float[Tensor, "batch time width"],
        cache: tuple[Cache, ...] | None = None,
        cu_seqlens: Int[Tensor, " bound"] | None = None,
    ) -> tuple[Float[Tensor, "batch time width"], tuple[Cache, ...]]:
        """The outputs, and the inputs so far (none where cu_seqlens cuts the batch).

        Raises:
            InvalidInput: shapes that do not fit, a cache together with cu_seqlens.
        """
        check_input(x, self.config.kind, self.config.width, cu_seqlens)
        if cu_seqlens is not None:
            if cache:
                raise InvalidInput(f"{self.config.kind}: a cache and cu_seqlens together, expected one of them")
            rows, lengths = _padded(x, cu_seqlens)
            return _unpadded(self.read(rows), lengths), ()
        past = torch.cat([cache[0]["inputs"].to(x.dtype), x], 1) if cache else x
        return self.read(past)[:, past.shape[1] - x.shape[1] :], ({"inputs": past},)

    def read(self, x: Tensor) -> Tensor:
        """The outputs of whole sequences."""
        raise NotImplementedError


class Transformer(_Rereading):
    """torch's TransformerEncoder with a causal mask, norms first, and sinusoidal positions of any length."""

    def __init__(self, config: BaselineConfig, layers: int, mlp_ratio: float) -> None:
        super().__init__(config)
        inner = int(mlp_ratio * config.width)
        if inner < 1:
            raise InvalidInput(f"transformer: mlp_ratio {mlp_ratio}, expected one above 0 (its layers have an MLP)")
        layer = nn.TransformerEncoderLayer(
            config.width, config.heads, inner, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
        )
        norm = nn.LayerNorm(config.width)
        self.encoder = nn.TransformerEncoder(layer, layers, norm, enable_nested_tensor=False)
        # The library copies one layer, and with it its random numbers.
        for parameter in self.encoder.parameters():
            if parameter.ndim > 1:
                nn.init.xavier_uniform_(parameter)

    def read(self, x: Tensor) -> Tensor:
        """The outputs of whole sequences [batch, time, width]."""
        time, width = x.shape[1:]
        if not time:
            return x
        at = torch.arange(time, device=x.device)[:, None]
        rates = torch.exp(torch.arange(0, width, 2, device=x.device) * (-math.log(10_000.0) / width))
        positions = torch.stack([torch.sin(at * rates), torch.cos(at * rates)], 2).flatten(1)
        mask = nn.Transformer.generate_square_subsequent_mask(time, device=x.device, dtype=x.dtype)
        return self.encoder(x + positions.to(x.dtype), mask=mask, is_causal=True)


class XLstm(_Rereading):
    """xlstm's stack of mLSTM blocks, or of sLSTM blocks."""

    def __init__(self, config: BaselineConfig, layers: int, mlp_ratio: float) -> None:
        super().__init__(config)
        try:
            import xlstm
        except ImportError as error:
            raise KernelUnavailable(
                config.kind, "needs the package xlstm", "pip install 'statetrack[xlstm]'"
            ) from error
        if config.kind == "mlstm":
            block: Any = xlstm.mLSTMBlockConfig(mlstm=xlstm.mLSTMLayerConfig(num_heads=config.heads))
            blocks = {"mlstm_block": block}
        else:
            backend = "cuda" if config.compiled else "vanilla"
            cell = xlstm.sLSTMLayerConfig(num_heads=config.heads, backend=backend, dtype="float32")
            mlp = xlstm.FeedForwardConfig(proj_factor=mlp_ratio) if mlp_ratio else None
            blocks = {"slstm_block": xlstm.sLSTMBlockConfig(slstm=cell, feedforward=mlp)}
        options = xlstm.xLSTMBlockStackConfig(num_blocks=layers, embedding_dim=config.width, context_length=1, **blocks)
        self.stack = xlstm.xLSTMBlockStack(options)
        # A mask of its own length for every input: the stored one would set a longest length.
        masked = [module for module in self.stack.modules() if hasattr(module, "causal_mask")]
        if len(masked) != (layers if config.kind == "mlstm" else 0):
            raise KernelUnavailable(config.kind, "this version of xlstm masks otherwise", "install xlstm 2.0.6")
        for module in masked:
            module.causal_mask = None

    def read(self, x: Tensor) -> Tensor:
        """The outputs of whole sequences [batch, time, width]."""
        return self.stack(x) if x.shape[1] else x


def _padded(x: Tensor, cu_seqlens: Tensor) -> tuple[Tensor, Tensor]:
    """Sequences of a batch of one as rows [N, longest, width], and their lengths (on the CPU)."""
    sequence_starts(cu_seqlens, x.shape[1], x.device)
    lengths = cu_seqlens.cpu().long().diff()
    return pad_sequence(list(x[0].split(lengths.tolist())), batch_first=True), lengths


def _unpadded(rows: Tensor, lengths: Tensor) -> Tensor:
    return torch.cat([row[:length] for row, length in zip(rows, lengths.tolist(), strict=True)])[None]
