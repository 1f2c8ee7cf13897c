"""The configuration of the model type `ckda` for transformers; importing this module registers it.

Main definitions: `CkdaConfig`.

References: docs/export.md.
"""
# transformers is an extra, and only partly typed.
# pyright: reportMissingImports=false, reportUnknownVariableType=false, reportUnknownMemberType=false
# pyright: reportUntypedBaseClass=false, reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, ClassVar

from transformers.configuration_utils import PreTrainedConfig
from transformers.models.auto.configuration_auto import AutoConfig

from statetrack.kernels.language_model import ModelConfig
from statetrack.kernels.layer_parts import LayerConfig


class CkdaConfig(PreTrainedConfig):
    """`model`: the fields of a `statetrack.kernels.language_model.ModelConfig` with tokens in, as JSON has them.

    Raises:
        InvalidInput: fields that are not known or do not fit.
    """

    model_type = "ckda"
    keys_to_ignore_at_inference: ClassVar[list[str]] = ["past_key_values"]

    def __init__(self, model: Mapping[str, Any] | None = None, **options: Any) -> None:
        default = ModelConfig(LayerConfig("ckda", 64), layers=2, vocab=256, mlp_ratio=4.0)
        made = default if model is None else ModelConfig.of(model)
        self.model: dict[str, Any] = asdict(made)
        self.vocab_size = made.vocab
        self.hidden_size = made.layer.width
        self.num_hidden_layers = made.layers
        self.use_cache = bool(options.pop("use_cache", True))
        rest: dict[str, Any] = {name: value for name, value in options.items() if name not in _OWN}
        rest["tie_word_embeddings"] = made.tie
        super().__init__(**rest)

    @property
    def language_model(self) -> ModelConfig:
        """The configuration of the modules."""
        return ModelConfig.of(self.model)


# What `model` says is not taken from anywhere else.
_OWN = ("vocab_size", "hidden_size", "num_hidden_layers", "tie_word_embeddings")
AutoConfig.register("ckda", CkdaConfig, exist_ok=True)
