"""The results of the atlas as the report and the picture show them.

Main definitions: `AtlasRow`, `atlas_rows`, `counts`.

References: `benchmarks/atlas.py` writes the data; docs/atlas.md.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from functools import cache
from importlib.resources import files


@dataclass(frozen=True)
class AtlasRow:
    """One group: its place in the small-groups library, structure, verdict, and what proves it.

    `dims` are the sizes of the heads, `states` how many hidden states each reaches, `joint` what the last search went
    through, `decoder` entries of all tables.
    `bijective`: whether hidden states and elements can correspond one to one.
    """

    order: int
    number: int
    structure: str
    verdict: str
    construction: str = ""
    dims: str = ""
    states: str = ""
    joint: int | None = None
    decoder: int | None = None
    bijective: bool | None = None
    law: str = ""
    witness: str = ""

    @property
    def heads(self) -> int:
        """How many heads."""
        return len(self.dims.split())

    @property
    def kind(self) -> str:
        """planar, larger heads, no, or unknown."""
        if self.verdict != "YES":
            return self.verdict.lower()
        return "planar" if self.construction == "planar heads" else "larger heads"


@cache
def atlas_rows() -> tuple[AtlasRow, ...]:
    """All groups of order up to 60, by order and number."""
    text = files("statetrack.proofs_check").joinpath("atlas_results.json").read_text(encoding="utf-8")
    return tuple(AtlasRow(**row) for row in json.loads(text))


def counts() -> dict[str, int]:
    """How many of each verdict."""
    return dict(Counter(row.verdict for row in atlas_rows()))
