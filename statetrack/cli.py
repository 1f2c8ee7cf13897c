"""The command line: speaks for all rooms, computes nothing.

Every command prints tables for people and, with --json, the same facts for programs. A user's mistake is one line on
standard error and exit code 2, never a traceback. `run` exits with 1 if it found wrong states.

Main definitions: `app`, `main`.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, cast

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from statetrack.errors import InvalidInput, StatetrackError

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="Explicit linear-RNN weights that track automata and groups, with certificates for words of every length.",
)

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a table.")]
Source = Annotated[
    str,
    typer.Argument(
        help="Group name (A5, Z2xS3), permutations '(1 2 3);(1 2)', regular expression, or automaton file; "
        "a prefix group:, perm:, regex: or file: settles which."
    ),
]


@app.command()
def build(
    source: Source,
    target: Annotated[str, typer.Option("--target", "-t", help="Architecture; see 'statetrack targets'.")] = "ckda",
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Weights file to write (.safetensors).")] = None,
    certificate: Annotated[Path | None, typer.Option(help="Also write the certificate as JSON.")] = None,
    dtype: Annotated[str, typer.Option(help="Number format: float64, float32, bfloat16.")] = "float32",
    letters: Annotated[str, typer.Option(help="A group's alphabet: all elements or generators.")] = "all",
    missing: Annotated[str, typer.Option(help="Absent edges of a file: error, sink or stay.")] = "error",
    token: Annotated[bool, typer.Option(help="A JFLAP read of several letters is one symbol.")] = False,
    max_dim: Annotated[int | None, typer.Option(min=1, help="Largest state size K of a head.")] = None,
    max_factors: Annotated[int | None, typer.Option(min=0, help="Most factors a token.")] = None,
    construction: Annotated[
        str | None, typer.Option(help="Insist on one construction, for instance quaternion.")
    ] = None,
    proof: Annotated[str, typer.Option(help="closure, or span (linear readouts).")] = "closure",
    max_states: Annotated[int, typer.Option(min=1, help="Budget of hidden and automaton states.")] = 1_000_000,
    max_order: Annotated[int, typer.Option(min=1, help="Budget of group elements.")] = 100_000,
    check: Annotated[bool, typer.Option(help="Also run the independent checker before anything is written.")] = True,
    as_json: Json = False,
) -> None:
    """Build proven weights for SOURCE on a target architecture."""
    from statetrack import api

    if proof not in ("closure", "span"):
        raise InvalidInput(f"proof {proof!r}: know closure, span")
    started = time.perf_counter()
    with _progress("joint states", None) as update:
        made = api.build(
            source,
            target,
            letters=letters,
            missing=missing,
            token=token,
            max_dim=max_dim,
            max_factors=max_factors,
            construction=construction,
            proof=proof,
            max_states=max_states,
            max_order=max_order,
            check=check,
            progress=update,
        )
    weights = made.weights(dtype)
    if output is not None:
        weights.save(output)
    if certificate is not None:
        _written(certificate, made.certificate.text() + "\n")
    facts = _facts(weights)
    facts |= {
        "source": made.source.name,
        "construction": made.plan.construction,
        "theorem": made.plan.theorem,
        "beta_max": float(made.program.beta_max),
        "unit_margin": None if made.margin is None else made.margin.unit,
        "margin_squared": None if made.margin is None else str(made.margin.squared),
        "checked": "search and independent checker" if check else "search only",
        "seconds": round(time.perf_counter() - started, 3),
        "output": None if output is None else str(output),
    }
    _say(facts, as_json)


@app.command(name="check")
def check_file(
    file: Annotated[Path, typer.Argument(help="Weights file, or a certificate as JSON.")],
    expect: Annotated[str | None, typer.Option(help="Digest that the certificate must have.")] = None,
    as_json: Json = False,
) -> None:
    """Check FILE: its certificate with the independent checker, its tensors against the certified program."""
    from statetrack import api
    from statetrack.constructions.targets import check_named_range
    from statetrack.errors import CertificateFailed
    from statetrack.proofs_check import checker

    started = time.perf_counter()
    if file.suffix == ".json":
        try:
            text = _text(file)
            found = checker.verify(text, expect)
            check_named_range(json.loads(text)["range"])
        except checker.Refused as error:
            raise CertificateFailed(f"file {file}", str(error), "a certificate that holds") from None
        tensors = "none in this file"
    else:
        found = api.check(file)
        tensors = "equal to the certified program, bit for bit"
        if expect is not None and found["digest"] != expect:
            raise CertificateFailed(f"file {file}, digest", found["digest"], expect)
    facts = {
        "accepted": True,
        "digest": found["digest"],
        "kind": found["kind"],
        "proved": found["proved"],
        "target": found["target"],
        "symbols": found["symbols"],
        "states": found["states"],
        "joint_states": found["joint"],
        "tensors": tensors,
        "seconds": round(time.perf_counter() - started, 3),
    }
    _say(facts, as_json)


@app.command()
def run(
    file: Annotated[Path, typer.Argument(help="Weights file written by build.")],
    word: Annotated[
        str | None, typer.Option(help="A word: characters, symbols apart by ';' or blanks, or a JSON list.")
    ] = None,
    random: Annotated[int, typer.Option(help="Number of uniform random words.")] = 0,
    length: Annotated[int, typer.Option(help="Length of the random words.")] = 4096,
    seed: Annotated[int, typer.Option(help="Seed of the random words.")] = 0,
    dtype: Annotated[str | None, typer.Option(help="Number format to run in (default: the file's).")] = None,
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    executor: Annotated[str, typer.Option(help="auto, triton or reference.")] = "auto",
    as_json: Json = False,
) -> None:
    """Run the weights in FILE through a kernel and compare every state with the automaton's."""
    from statetrack import api
    from statetrack.constructions.source import parse_word

    if (word is None) == (random == 0):
        raise InvalidInput("run: give --word W or --random N, one of them")
    if executor not in ("auto", "triton", "reference"):
        raise InvalidInput(f"executor {executor!r}: know auto, triton, reference")
    weights = api.load(file)
    if dtype is not None and dtype != weights.dtype:
        weights = weights.in_format(dtype)
    symbols = None if word is None else parse_word(word, weights.dfa.alphabet)
    started = time.perf_counter()
    with _progress("tokens", None if symbols is not None else random * length) as update:
        trace = weights.run(
            None if symbols is None else [symbols],
            random=random,
            length=0 if symbols is not None else length,
            seed=seed,
            device=device,
            executor=executor,
            progress=update,
        )
    facts: dict[str, Any] = {}
    if symbols is not None and trace.answers is not None:
        states = [int(q) for q in trace.answers[0]] if symbols else []
        facts["outputs"] = [weights.dfa.outputs[q] if q >= 0 else None for q in states]
        facts["states"] = [weights.dfa.states[q] if q >= 0 else None for q in states]
    else:
        facts |= {"words": random, "length": length, "seed": seed}
    horizon = weights.horizon()
    facts |= {
        "tokens": trace.tokens,
        "wrong": trace.wrong,
        "first_wrong": trace.first_wrong,
        "wrong_words": trace.wrong_words,
        "executor": trace.executor,
        "proved_length": _number(horizon),
        "seconds": round(time.perf_counter() - started, 3),
    }
    _say(facts, as_json)
    if trace.wrong:
        raise typer.Exit(1)


@app.command()
def show(file: Annotated[Path, typer.Argument(help="Weights file written by build.")], as_json: Json = False) -> None:
    """Show what a weights file holds: layers, sizes, factors a token, field, margins and what is proved."""
    from statetrack import api

    _say(_facts(api.load(file)), as_json)


@app.command()
def targets(as_json: Json = False) -> None:
    """List the architectures that programs are built for."""
    from statetrack.constructions.targets import TARGETS

    rows = [
        {
            "target": t.name,
            "gates": "dense" if t.dense else f"{t.gates} [{t.low}, {t.high}]" if t.gates != "one" else "1",
            "beta": "any" if t.beta_max is None else f"[0, {t.beta_max}]",
            "factors": "any" if t.factors is None else t.factors,
            "additive": t.additive,
            "what": t.description,
        }
        for t in TARGETS.values()
    ]
    _list(rows, as_json)


@app.command()
def groups(as_json: Json = False) -> None:
    """List the group names that SOURCE can be."""
    from statetrack.theory.groups import NAMED

    rows = [{"name": text.split(":")[0], "what": text.split(": ", 1)[1]} for text in NAMED.values()]
    rows.append({"name": "GxH", "what": "direct product of named groups, for instance Z2xS3"})
    rows.append(
        {"name": "(1 2 3);(1 2)", "what": "the group that permutations in cycle notation generate, points from 1"}
    )
    _list(rows, as_json)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    try:
        code = app(args=None if arguments is None else list(arguments), standalone_mode=False)
        return code if isinstance(code, int) else 0
    except StatetrackError as error:
        return _fail(str(error))
    except KeyboardInterrupt:
        _fail("stopped")
        return 130
    except (OverflowError, RecursionError, RuntimeError, OSError) as error:
        return _fail(
            f"{type(error).__name__}: {str(error)[:200]}; give smaller numbers, or a device and folder that exist"
        )
    except MemoryError:
        return _fail("out of memory; lower --max-states or the number of words")
    except Exception as error:
        if hasattr(error, "format_message"):
            shown = str(error.format_message())  # pyright: ignore[reportAttributeAccessIssue,reportUnknownMemberType,reportUnknownArgumentType]
            return _fail(f"{' '.join(shown.split())}; see 'statetrack --help'") if shown else 2
        if type(error).__name__ in ("Exit", "Abort"):
            return int(getattr(error, "exit_code", 1))
        raise


def _fail(line: str) -> int:
    print("statetrack:", *line.split(), file=sys.stderr)
    return 2


def _facts(weights: Any) -> dict[str, Any]:
    """What a weights file says of itself."""
    data = weights.certificate
    heads = [list(layer["heads"]) for layer in data["layers"]]
    claims = data["claims"]
    horizon = weights.horizon()
    proof = (
        f"closure of {claims['joint']:,} joint states: right after every non-empty word"
        if data["kind"] == "closure"
        else "linear span: the readout is a function of the automaton's state after every word"
    )
    return {
        "target": data["range"]["target"],
        "symbols": len(weights.dfa.alphabet),
        "states": len(weights.dfa.states),
        "layers": len(heads),
        "dims": [[len(head["h0"][0]) for head in layer] for layer in heads],
        "columns": [[len(head["h0"]) for head in layer] for layer in heads],
        "factors_per_token": max((len(step) for layer in heads for head in layer for step in head["steps"]), default=0),
        "field": _field(data["field"]),
        "margins": claims["margin"],
        "proof": proof,
        "digest": data["digest"],
        "dtype": weights.dtype,
        "proved_length": _number(horizon),
    }


def _field(data: dict[str, Any]) -> str:
    from statetrack.theory.number_fields import field_from_json

    return str(field_from_json(data))


def _number(horizon: float) -> int | str:
    return "every length" if horizon == float("inf") else int(horizon)


_NAMES = {
    "factors_per_token": "factors a token",
    "beta_max": "largest β",
    "unit_margin": "margin (unit query)",
    "margin_squared": "margin², exact",
    "margins": "margin at least",
    "proved_length": "right in this format up to",
    "joint_states": "joint states",
    "first_wrong": "first wrong at token",
    "wrong_words": "words with a wrong state",
    "wrong": "wrong states",
    "dims": "state sizes K",
    "columns": "state columns V",
    "dtype": "number format",
}


def _say(facts: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print(json.dumps(facts, ensure_ascii=False))
        return
    table = Table(show_header=False, box=None, pad_edge=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for key, value in facts.items():
        table.add_row(_NAMES.get(key, key.replace("_", " ")), _shown(key, value))
    _console().print(table)


def _shown(key: str, value: Any) -> str:
    if value is None:
        return "-"
    if key == "proved_length":
        return value if isinstance(value, str) else f"{value:,} tokens" if value else "no bound of this kind"
    if key in ("dims", "columns", "margins"):
        rows: list[Any] = cast("list[Any]", value) if isinstance(value, list) else [value]
        return "; ".join(
            ", ".join(map(_decimal, cast("list[Any]", r))) if isinstance(r, list) else _decimal(r) for r in rows
        )
    if isinstance(value, list):
        return " ".join(str(x) for x in cast("list[Any]", value))
    return (
        f"{value:,}"
        if isinstance(value, int) and not isinstance(value, bool)
        else f"{value:.6g}"
        if isinstance(value, float)
        else str(value)
    )


def _decimal(x: Any) -> str:
    from fractions import Fraction

    return "-" if x is None else f"{float(Fraction(x)):.6g}"


def _list(rows: list[dict[str, Any]], as_json: bool) -> None:
    if as_json:
        print(json.dumps(rows, ensure_ascii=False))
        return
    table = Table(box=None, pad_edge=False)
    for name in rows[0]:
        table.add_column(name)
    for row in rows:
        table.add_row(*(str(x) for x in row.values()))
    _console().print(table)


def _console() -> Console:
    """A terminal's own width; wide enough for a digest in a pipe."""
    return Console(highlight=False) if sys.stdout.isatty() else Console(highlight=False, width=140)


def _text(file: Path) -> str:
    from statetrack.errors import InvalidFile

    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidFile(
            str(file), f"cannot be read ({error})", "give a certificate written by build --certificate"
        ) from None


def _written(file: Path, text: str) -> None:
    from statetrack.constructions.weights import write_whole

    write_whole(file, text.encode())


@contextmanager
def _progress(what: str, total: int | None) -> Generator[Callable[[int], None] | None, None, None]:
    """A progress line on standard error if it is a terminal."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield None
        return
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(what, total=total)
        yield lambda done: bar.update(task, completed=done)


if __name__ == "__main__":
    sys.exit(main())
