"""The model type `ckda` for transformers: our language model with its loading, saving and generation.

    import statetrack
    from transformers import AutoModelForCausalLM
    model = AutoModelForCausalLM.from_pretrained(folder)

`import statetrack` has this module imported as soon as transformers' own model classes are; importing it registers the
type.

Main definitions: `CkdaForCausalLM`, `CkdaCache`.

References: docs/export.md; `statetrack.kernels.language_model`.
"""
# transformers is an extra, and only partly typed.
# pyright: reportMissingImports=false, reportUnknownVariableType=false, reportUnknownMemberType=false
# pyright: reportUntypedBaseClass=false, reportUnknownArgumentType=false

from __future__ import annotations

from typing import Any, cast

from torch import Tensor, nn
from torch.nn import functional
from transformers import AutoModelForCausalLM
from transformers.generation.utils import GenerationMixin
from transformers.modeling_outputs import CausalLMOutputWithPast
from transformers.modeling_utils import PreTrainedModel

from statetrack.errors import InvalidInput
from statetrack.kernels.language_model import LanguageModel
from statetrack.kernels.layer_parts import Cache

from .hf_config import CkdaConfig


class CkdaCache:
    """What a model goes on from: a cache a layer, and how many tokens it has seen."""

    def __init__(self, layers: tuple[Cache, ...], seen: int) -> None:
        self.layers, self.seen = layers, seen
        self.is_compileable = False

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """The number of tokens seen."""
        return self.seen

    def reorder_cache(self, beam_idx: Tensor) -> None:
        """Keep these sequences, in this order (beam search)."""
        self.layers = tuple({name: t.index_select(0, beam_idx) for name, t in c.items()} for c in self.layers)


class CkdaForCausalLM(PreTrainedModel, GenerationMixin):
    """A `LanguageModel` whose configuration is `config.model`; logits are those of the next token, or of the state."""

    config_class = CkdaConfig
    base_model_prefix = "model"
    main_input_name = "input_ids"
    _is_stateful = True

    def __init__(self, config: CkdaConfig) -> None:
        super().__init__(config)
        self.model = LanguageModel(config.language_model)
        if config.language_model.tie:
            self._tied_weights_keys = {"model.head.weight": "model.embedding.weight"}
        self.post_init()

    @classmethod
    def _supports_default_dynamic_cache(cls) -> bool:
        return False

    def _init_weights(self, module: nn.Module) -> None:
        """The modules start themselves; nothing is drawn anew."""

    def get_input_embeddings(self) -> nn.Module:
        """The embedding of tokens."""
        return cast(nn.Module, self.model.embedding)

    def set_input_embeddings(self, value: nn.Module) -> None:
        """Another embedding of tokens."""
        self.model.embedding = cast(nn.Embedding, value)

    def get_output_embeddings(self) -> nn.Module:
        """The head."""
        return self.model.head

    def set_output_embeddings(self, new_embeddings: nn.Module) -> None:
        """Another head."""
        self.model.head = cast(nn.Linear, new_embeddings)

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        past_key_values: CkdaCache | None = None,
        labels: Tensor | None = None,
        use_cache: bool | None = None,
        return_dict: bool | None = None,
        logits_to_keep: int = 0,
        **unused: Any,
    ) -> Any:
        """Logits [B, T, vocab] (of the last `logits_to_keep` tokens, 0 for all), loss of the next token, cache.

        Raises:
            InvalidInput: no input_ids, inputs_embeds in their place, or padding: sequences of one call are of one
                length.
        """
        if input_ids is None or unused.get("inputs_embeds") is not None:
            raise InvalidInput("ckda: expected input_ids [B, T]; inputs_embeds are not taken")
        if attention_mask is not None and not bool(attention_mask.all()):
            raise InvalidInput("ckda: attention_mask with zeros; sequences of a call must have one length")
        keep = bool(self.config.use_cache if use_cache is None else use_cache) and not self.training
        before = None if past_key_values is None else past_key_values.layers
        logits, after = self.model(input_ids, before)
        loss = None
        if labels is not None:
            loss = functional.cross_entropy(logits[:, :-1].flatten(0, 1).float(), labels[:, 1:].flatten())
        logits = logits[:, -logits_to_keep:] if logits_to_keep else logits
        seen = input_ids.shape[1] + (0 if past_key_values is None else past_key_values.seen)
        cache = CkdaCache(after, seen) if keep else None
        if return_dict is False:
            return tuple(x for x in (loss, logits, cache) if x is not None)
        return CausalLMOutputWithPast(loss=cast(Any, loss), logits=logits, past_key_values=cast(Any, cache))


AutoModelForCausalLM.register(CkdaConfig, CkdaForCausalLM, exist_ok=True)
