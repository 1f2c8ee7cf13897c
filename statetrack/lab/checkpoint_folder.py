"""A Hugging Face folder in memory, and what a user of one has to know about its ids.

Main definitions: `Checkpoint`, `facts_of`.

References: docs/export.md.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save as to_bytes

from statetrack.constructions.weights import Array, Weights, write_whole
from statetrack.errors import InvalidFile

from .readout_stream import Stream


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """A Hugging Face folder in memory: `config` and `facts` as JSON, `tensors` by their names in the model.

    `facts` (file statetrack.json) say how to use it: `start_ids` to put before every word, `first_symbol_id` of the
    `alphabet`'s symbols, `first_state_id` of the automaton's `states`.
    """

    config: dict[str, Any]
    tensors: dict[str, Array]
    facts: dict[str, Any]

    def save(self, folder: str | Path) -> None:
        """Write config.json, generation_config.json, model.safetensors, statetrack.json; InvalidFile if it cannot."""
        place = Path(folder)
        try:
            place.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InvalidFile(str(place), f"cannot be made ({error.strerror})", "give a folder to write to") from None
        generation = {"bos_token_id": 0, "eos_token_id": None, "pad_token_id": None, "do_sample": False}
        texts = {"config": self.config, "generation_config": generation, "statetrack": self.facts}
        for name, data in texts.items():
            write_whole(place / f"{name}.json", (json.dumps(data, indent=2) + "\n").encode())
        tensors = {name: np.ascontiguousarray(t) for name, t in self.tensors.items()}
        write_whole(place / "model.safetensors", to_bytes(tensors, {"format": "pt"}))


def facts_of(weights: Weights, stream: Stream, dtype: str) -> dict[str, Any]:
    """What statetrack.json says."""
    return {
        "format": "statetrack-export/1",
        "certificate_digest": weights.certificate["digest"],
        "start_ids": list(range(stream.starts)),
        "first_symbol_id": stream.starts,
        "alphabet": list(weights.dfa.alphabet),
        "first_state_id": stream.tokens,
        "states": stream.states,
        "start_state": int(weights.dfa.start),
        "margin": stream.margin,
        "blocks": stream.plan.blocks,
        "dtype": dtype,
    }
