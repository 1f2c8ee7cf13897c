"""The commands about groups: their names, and whether one layer tracks one; `cli.py` puts them beside the others.

Main definitions: `groups` (the command group).
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from statetrack.errors import InvalidInput, NoConstruction
from statetrack.printing import say, say_rows

if TYPE_CHECKING:
    from statetrack.constructions.atlas import Decision
    from statetrack.constructions.certificate import Certificate
    from statetrack.theory.finite_group import NamedTable

Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
Spec = Annotated[
    str,
    typer.Argument(
        help="Group name (A5, Z2xQ8), permutations '(1 2 3);(1 2)', 'SmallGroup(48, 29)' (past order 60 it asks GAP), "
        "or a JSON file with a multiplication table or generators."
    ),
]

groups = typer.Typer(help="List the group names that SOURCE can be; decide whether one layer tracks a group.")


@groups.callback(invoke_without_command=True)
def listed(context: typer.Context, as_json: Json = False) -> None:
    """List the group names that SOURCE can be; 'decide' says whether one layer tracks a group."""
    if context.invoked_subcommand is not None:
        return
    from statetrack.theory.groups import NAMED

    rows = [{"name": text.split(":")[0], "what": text.split(": ", 1)[1]} for text in NAMED.values()]
    rows.append({"name": "GxH", "what": "direct product of named groups, for instance Z2xS3"})
    rows.append(
        {"name": "(1 2 3);(1 2)", "what": "the group that permutations in cycle notation generate, points from 1"}
    )
    say_rows(rows, as_json)


@groups.command()
def decide(
    spec: Spec,
    letters: Annotated[str, typer.Option(help="Letters of the tracker: all elements or generators.")] = "all",
    certificate: Annotated[Path | None, typer.Option(help="Write the tracker's certificate as JSON.")] = None,
    max_order: Annotated[int, typer.Option(min=1, help="Budget of group elements.")] = 400,
    as_json: Json = False,
) -> None:
    """Decide whether one Complex KDA layer tracks a group: YES with a checked tracker, NO with a witness, or UNKNOWN.

    Exit code 0 for YES and NO, 1 for UNKNOWN.
    """
    from statetrack.constructions.atlas import decide as decision_of
    from statetrack.constructions.atlas import is_realisable
    from statetrack.theory.finite_group import read_group

    if letters not in ("all", "generators"):
        raise InvalidInput(f"letters {letters!r}: choose all or generators")
    started = time.perf_counter()
    named = read_group(spec, max_order=max_order)
    found = decision_of(named.table)
    facts: dict[str, Any] = {"group": named.table.name, "order": named.table.order, "verdict": found.word}
    if found.verdict:
        facts["bijective_decoder"] = {True: "possible", False: "impossible", None: "unknown"}[
            is_realisable(named.table)
        ]
        facts |= _tracker_facts(found, named, letters, certificate)
    elif certificate is not None:
        why = found.word if found.witness is None else f"law {found.witness.law} fails"
        raise NoConstruction(spec, "ckda, one layer", why, "leave out --certificate")
    if found.witness is not None:
        facts |= _witness_facts(found, named)
    if found.verdict is None:
        facts["tried"] = "; ".join(found.tried)
    facts["seconds"] = round(time.perf_counter() - started, 3)
    say(facts, as_json)
    if found.verdict is None:
        raise typer.Exit(1)


def _tracker_facts(found: Decision, named: NamedTable, letters: str, path: Path | None) -> dict[str, Any]:
    from statetrack.constructions.atlas import built, source_of
    from statetrack.constructions.multihead import decoder_sizes, head_states
    from statetrack.constructions.targets import target
    from statetrack.proofs_check import networks
    from statetrack.theory.finite_group import generating_set

    chosen = range(named.table.order) if letters == "all" else generating_set(named.table) or (0,)
    assert found.tracker is not None
    program, proof = built(found, source_of(named.table, named.labels, tuple(chosen)), target("ckda"))
    accepted = networks.verify(proof.text())
    if path is not None:
        _save(proof, path)
    return {
        "construction": found.tracker.how,
        "layers": program.depth,
        "heads": len(program.dims[0]),
        "dims": [list(row) for row in program.dims],
        "factors_per_token": program.factors_per_token,
        "proof": proof.kind,
        "states_of_heads": head_states(proof.data),
        "joint_states": proof.joint,
        "decoder_entries": decoder_sizes(proof.data),
        "proved": accepted["proved"],
        "digest": proof.digest,
        "certificate": None if path is None else str(path),
    }


def _save(proof: Certificate, path: Path) -> None:
    if not path.parent.is_dir():
        raise InvalidInput(f"certificate {path}: no folder {path.parent}")
    proof.save(path)


def _witness_facts(found: Decision, named: NamedTable) -> dict[str, Any]:
    from statetrack.proofs_check.witness import verify_witness

    witness = found.witness
    assert witness is not None
    table: list[list[int]] = named.table.table.tolist()
    return {
        "law": witness.law,
        "reason": witness.reason,
        "theorem": witness.theorem,
        "witness": witness.describe(named.labels),
        "elements": {name: named.labels[g] for name, g in witness.elements},
        "checked": verify_witness(table, witness.to_json()),
    }
