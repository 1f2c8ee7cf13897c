"""Claims about composed networks: clock, buffer and accumulator; resets; two layers for S5.

Main results: OURS-clock-buffer-accumulator, OURS-reset-memory, OURS-two-layers-S5.
"""

from __future__ import annotations

from statetrack.constructions.assembly import Part
from statetrack.constructions.blocks import STYLES, clock
from statetrack.constructions.certificate import certify
from statetrack.constructions.compiler import compile_source
from statetrack.constructions.targets import target

from .claim import Trial, claim


@claim(
    "OURS-clock",
    "A rotation by 2π/2P, or a sign and two mirrors, counts time modulo 2P with every readout different.",
    source="CKDA Thm. 5, docs/constructions.md",
    kinds="CL",
    control={"wrong_by": 1},
    hypotheses=("P ≥ 1",),
)
def clocks(t: Trial, wrong_by: int = 0) -> None:
    """For each architecture and P: the closure of the clock against a counter, re-checked independently."""
    for name in ("ckda", "deltanet", "deltaproduct"):
        for length in range(1, t.amount(6, 12, 24)):
            program, _ = clock(STYLES[name], length)
            _, dfa = clock(STYLES[name], length + wrong_by)
            closed, certificate = certify(program, dfa, target(name))
            t.certificate(certificate.data)
            part = Part(closed, certificate.data, dfa)
            t.equal(f"{name}, P = {length}", part.program.run("t" * 2 * length)[-1], "0")


@claim(
    "OURS-two-layers-S5",
    "S5 with all its 120 letters is tracked by two layers of Complex KDA with β ≤ 2, for words of every length.",
    source="docs/constructions.md; CKDA Thm. 4 says that one layer is not enough",
    kinds="C CL",
    control={"layers": 1},
    proves=True,
)
def two_layers(t: Trial, layers: int = 2) -> None:
    """A sign, then the quaternions of A5; certificates of both parts and of the stack."""
    made = compile_source("S5", "ckda", construction="two-steps")
    t.certificate(made.certificate.data)
    t.equal("layers", made.layers, layers)
    t.equal("symbols", len(made.source.dfa.alphabet), 120)  # pyright: ignore[reportAttributeAccessIssue]
    t.holds("β at most 2", made.program.beta_max <= 2)
    word = t.random.choices(made.automaton.alphabet, k=t.amount(100, 1000))
    t.equal("a random word", made.run(word), made.source.dfa.run(word))  # pyright: ignore[reportAttributeAccessIssue]
