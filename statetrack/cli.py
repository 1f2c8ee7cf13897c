"""The command line: speaks for all rooms, computes nothing.

Every command prints tables for people and, with --json, the same facts for programs. A user's mistake is one line on
standard error and exit code 2, never a traceback. `run` exits with 1 if it found wrong states.

Main definitions: `app`, `main`.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from statetrack.commands import figure, verify
from statetrack.errors import InvalidFile, InvalidInput, StatetrackError
from statetrack.examine import audit, conform
from statetrack.export_commands import export
from statetrack.group_commands import groups
from statetrack.guards import bounded, check_format, check_outputs, is_folder, is_json, read_text, readable
from statetrack.learn_commands import learn
from statetrack.precise import Columns, Dtype, Fused, Precision, Scaled, in_precision, one_source, past_horizon
from statetrack.printing import (
    build_facts,
    fail,
    forgive_encoding,
    progress_line,
    run_facts,
    say,
    say_explanation,
    say_rows,
    value_facts,
    weight_facts,
)

app = typer.Typer(
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Explicit linear-RNN weights that track automata and groups, with certificates for words of every length.",
)

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a table.")]
Built = Annotated[Path, typer.Argument(help="Weights file written by build.")]
Source = Annotated[
    str,
    typer.Argument(
        help="Group name (A5, Z2xS3), permutations '(1 2 3);(1 2)', regular expression, or automaton file (build: "
        "or a folder of them); "
        "a prefix group:, perm:, regex: or file: settles which."
    ),
]
Letters = Annotated[
    str | None,
    typer.Option(
        help="Letters of a regular expression, in order: 01, 'a b' or a JSON list (default: the letters in it)."
    ),
]
Word = Annotated[
    str | None,
    typer.Option(
        help="A word: a JSON list of strings (unless '[' is a symbol) or symbols apart by ';' (unless ';' is one); "
        "else the characters as they stand, blanks too, if all symbols are one character; else symbols apart by blanks."
    ),
]
Labels = Annotated[str, typer.Option(help="A group's alphabet: all elements or generators.")]
Missing = Annotated[str, typer.Option(help="Absent edges of a file: error, sink or stay.")]
Semiring = Annotated[str | None, typer.Option(help="Of AT&T text: real (weighted) or boolean.")]
Symbols = Annotated[Path | None, typer.Option(help="Symbol table of AT&T text.")]
Whole = Annotated[bool, typer.Option("--token", help="A JFLAP read of several letters is one symbol.")]
States = Annotated[int, typer.Option(min=1, help="Budget of hidden and automaton states.")]
Order = Annotated[int, typer.Option(min=1, help="Budget of group elements.")]
Device = Annotated[str, typer.Option(help="auto (cuda if there is one, else cpu), cpu, cuda or cuda:N.")]
Recipe = Annotated[str | None, typer.Option(help="Insist on one construction, for instance quaternion.")]
Monoid = Annotated[int, typer.Option(min=1, help="Budget of transition monoid elements looked at.")]
Cascade = Annotated[int, typer.Option(min=1, help="Budget of chains of tiles and of component states of a cascade.")]
Seconds = Annotated[float | None, typer.Option(min=0.001, help="Stop the build after so many seconds.")]
Memory = Annotated[int | None, typer.Option(min=1, help="Most memory the build may add to the program's own, in MB.")]


Output = Annotated[
    Path | None,
    typer.Option(
        "--output",
        "-o",
        help="Weights file to write (.safetensors); for a folder of automata a folder, default DIR/statetrack-TARGET.",
    ),
]
Scheduler = Annotated[
    str | None,
    typer.Option(help="Send a folder's jobs to this Dask scheduler (tcp://HOST:PORT); needs statetrack[cluster]."),
]


def _version(wanted: bool) -> None:
    if wanted:
        from statetrack import __version__

        print(f"statetrack {__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def start(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_version, help="Show the version and exit.")
    ] = False,
) -> None:
    """Without a command: the help, and the exit code of a mistake."""
    del version
    if context.invoked_subcommand is None:
        print(context.get_help())
        raise typer.Exit(2)


def _options(
    letters: str,
    alphabet: str | None,
    missing: str,
    semiring: str | None,
    symbols: Path | None,
    token: bool,
    *budgets: Any,
) -> Any:
    """How the command line says to read a source; budgets: states, order, monoid, seconds, memory, cascade."""
    from statetrack.constructions.source import Options, parse_alphabet

    named = None if alphabet is None else parse_alphabet(alphabet)
    states, order, monoid, seconds, memory, cascade = budgets
    table = None if symbols is None else str(symbols)
    return Options(letters, missing, token, states, order, named, monoid, seconds, memory, semiring, table, cascade)


@app.command()
def build(
    source: Source,
    target: Annotated[str, typer.Option("--target", "-t", help="Architecture; see 'statetrack targets'.")] = "ckda",
    output: Output = None,
    certificate: Annotated[Path | None, typer.Option(help="Also write the certificate as JSON.")] = None,
    dtype: Dtype = "float32",
    precision: Precision = None,
    fused: Fused = False,
    max_columns: Columns = 20_000,
    letters: Labels = "all",
    alphabet: Letters = None,
    missing: Missing = "error",
    semiring: Semiring = None,
    symbols: Symbols = None,
    token: Whole = False,
    max_dim: Annotated[int | None, typer.Option(min=1, help="Largest state size K of a head.")] = None,
    max_factors: Annotated[int | None, typer.Option(min=0, help="Most factors a token.")] = None,
    construction: Recipe = None,
    scaled: Scaled = None,
    proof: Annotated[str, typer.Option(help="closure, or span (linear readouts).")] = "closure",
    max_states: States = 1_000_000,
    max_order: Order = 100_000,
    max_monoid: Monoid = 20_000,
    max_cascade: Cascade = 100_000,
    max_seconds: Seconds = None,
    max_memory: Memory = None,
    check: Annotated[bool, typer.Option(help="Also run the independent checker before anything is written.")] = True,
    jobs: Annotated[int | None, typer.Option(min=1, help="Processes for a folder of automata (default 1).")] = None,
    scheduler: Scheduler = None,
    recursive: Annotated[bool, typer.Option("--recursive", help="Folders inside the folder too.")] = False,
    retry: Annotated[bool, typer.Option("--retry", help="Try failed jobs of a folder again.")] = False,
    as_json: Json = False,
) -> None:
    """Build proven weights for SOURCE on a target architecture."""
    from statetrack import api

    check_format(dtype)
    budgets = (max_states, max_order, max_monoid, max_seconds, max_memory, max_cascade)
    options = _options(letters, alphabet, missing, semiring, symbols, token, *budgets)
    limits: dict[str, Any] = {"max_dim": max_dim, "max_factors": max_factors, "construction": construction}
    limits |= {"proof": proof, "check": check} | one_source(scaled, source, precision, proof)
    if is_folder(source):
        if certificate is not None or alphabet is not None or precision is not None:
            raise InvalidInput("--certificate, --alphabet and --precision are for one source, not for a folder")
        limits |= {"dtype": dtype, "jobs": jobs, "scheduler": scheduler, "recursive": recursive, "retry": retry}
        _folder(Path(source.removeprefix("file:")), target, output, as_json, options=options, **limits)
        return
    if jobs is not None or scheduler is not None or recursive or retry:
        raise InvalidInput(f"--jobs, --scheduler, --recursive and --retry are for a folder; {source!r} is none")
    check_outputs(source, output, certificate)
    started = time.perf_counter()
    with bounded(options.max_seconds, options.max_memory):
        with progress_line("joint states", None) as update:
            made = api.build_with(source, target, options, **limits, progress=update)
        made, weights, more = in_precision(made, dtype, precision, fused, max_columns, **limits)
        facts = build_facts(made, weights, check) | more
    for path, save in ((output, weights.save), (certificate, made.certificate.save)):
        if path is not None:
            save(path)
    facts["seconds"] = round(time.perf_counter() - started, 3)
    say(facts | {"output": None if output is None else str(output)}, as_json)


def _folder(folder: Path, target: str, output: Path | None, as_json: bool, **how: Any) -> None:
    """Build a folder of automata; exit code 1 if some have no verdict."""
    from statetrack.batch import automaton_files, batch

    goal = output or folder / f"statetrack-{target}"
    files = automaton_files(folder, recursive=how["recursive"], output=goal)
    with progress_line("automata", len(files)) as update:
        done = batch(folder, target, goal, **how, progress=update)
    if as_json:
        say(done.to_json(), True)
    else:
        say_rows(done.rows(), False)
    if done.exit_code:
        raise typer.Exit(done.exit_code)


@app.command()
def explain(
    source: Source,
    target: Annotated[
        list[str] | None, typer.Option("--target", "-t", help="Only this architecture (several times for several).")
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Every architecture (the default).")] = False,
    draw: Annotated[
        Path | None, typer.Option(help="Write the cascade of the automaton: .svg, .pdf, .png or .dot.")
    ] = None,
    letters: Labels = "all",
    alphabet: Letters = None,
    missing: Missing = "error",
    semiring: Semiring = None,
    symbols: Symbols = None,
    token: Whole = False,
    max_states: States = 1_000_000,
    max_order: Order = 100_000,
    max_monoid: Monoid = 20_000,
    max_cascade: Cascade = 100_000,
    max_seconds: Seconds = None,
    max_memory: Memory = None,
    as_json: Json = False,
) -> None:
    """Say for each architecture whether it can track SOURCE: how, with which proof, or why not."""
    from statetrack.constructions.explain import describe
    from statetrack.constructions.explain import explain as rows_of
    from statetrack.constructions.source import resolve_any

    if is_folder(source):
        raise InvalidInput(f"source {source!r}: is a folder; explain takes one automaton (build takes a folder)")
    if every and target:
        raise InvalidInput("explain: give --target or --all, not both")
    budgets = (max_states, max_order, max_monoid, max_seconds, max_memory, max_cascade)
    options = _options(letters, alphabet, missing, semiring, symbols, token, *budgets)
    if draw is not None:
        check_outputs(source, draw, None, flag="--draw")
    with bounded(max_seconds, max_memory), progress_line("targets", None) as update:
        resolved = resolve_any(source, options)
        facts = describe(resolved, options)
        rows = rows_of(resolved, target or None, options=options, progress=update)
        if draw is not None:
            facts["picture"] = _draw(resolved, draw)
    say_explanation(facts, rows, as_json)


def _draw(resolved: Any, path: Path) -> str:
    from statetrack.constructions.reduction import best_cascade
    from statetrack.constructions.source import WeightedSource
    from statetrack.figures.cascades import draw_cascade

    if isinstance(resolved, WeightedSource):
        raise InvalidInput("a weighted automaton has no cascade to draw; leave out --draw")
    found = best_cascade(resolved.dfa)
    draw_cascade(found.cascade, path, title=f"{resolved.name}: {found.name}, {found.cascade.levels} layers")
    return str(path)


@app.command(name="check")
def check_file(
    file: Annotated[Path, typer.Argument(help="Weights file, or a certificate as JSON; its first bytes tell which.")],
    expect: Annotated[str | None, typer.Option(help="Digest that the certificate must have.")] = None,
    as_json: Json = False,
) -> None:
    """Check FILE: its certificate with the independent checker, its tensors against the certified program."""
    from statetrack import api
    from statetrack.constructions.targets import check_named_range
    from statetrack.errors import CertificateFailed
    from statetrack.proofs_check import networks

    started = time.perf_counter()
    if is_json(file):
        try:
            text = read_text(file)
            found = networks.verify(text, expect)
            check_named_range(json.loads(text)["range"])
        except networks.Refused as error:
            raise InvalidFile(str(file), f"not accepted: {error}", "give a certificate that holds") from None
        tensors = "none in this file"
    else:
        with readable(file):
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
    say(facts | ({"for_ever": found["for_ever"]} if "for_ever" in found else {}), as_json)


@app.command()
def run(
    file: Built,
    word: Word = None,
    random: Annotated[int, typer.Option(min=0, help="Number of uniform random words.")] = 0,
    length: Annotated[int, typer.Option(min=0, help="Length of the random words.")] = 4096,
    seed: Annotated[int, typer.Option(help="Seed of the random words.")] = 0,
    dtype: Annotated[str | None, typer.Option(help="Number format to run in (default: the file's).")] = None,
    device: Device = "auto",
    executor: Annotated[str, typer.Option(help="auto, triton or reference.")] = "auto",
    renormalise: Annotated[
        int | None, typer.Option(min=1, help="Replace the state every so many tokens by a fresh one.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Run the weights in FILE through a kernel; compare every state with the automaton's, or values with exact ones."""
    from statetrack import api
    from statetrack.constructions.source import parse_word

    if (word is None) == (random == 0):
        raise InvalidInput("run: give --word W or --random N, one of them")
    if executor not in ("auto", "triton", "reference"):
        raise InvalidInput(f"executor {executor!r}: know auto, triton, reference")
    if dtype is not None:
        check_format(dtype)
    place = api.device_of(device)
    with readable(file):
        weights = api.load(file)
        if dtype is not None and dtype != weights.dtype:
            weights = weights.in_format(dtype)
        symbols = None if word is None else parse_word(word, weights.automaton.alphabet)
        started = time.perf_counter()
        facts: dict[str, Any] = {} if symbols is not None else {"words": random, "length": length, "seed": seed}
        how: dict[str, Any] = {"device": place, "executor": executor}
        if weights.is_weighted and renormalise is not None:
            raise InvalidInput("--renormalise: a weighted automaton has no states to go back to")
        if weights.is_weighted:
            facts |= value_facts(weights, symbols, random, length, seed, how)
            wrong = 0
        else:
            trace = _run(weights, symbols, random, length, seed, how | {"renormalise": renormalise})
            horizon = weights.horizon(renormalise)
            facts |= run_facts(trace, weights, symbols, horizon)
            facts |= past_horizon(horizon, length if symbols is None else len(symbols))
            wrong = trace.wrong
    say(facts | {"seconds": round(time.perf_counter() - started, 3)}, as_json)
    if "refuted" in facts:
        fail(facts["refuted"])
    if wrong:
        raise typer.Exit(1)


def _run(weights: Any, word: tuple[str, ...] | None, random: int, length: int, seed: int, how: dict[str, Any]) -> Any:
    with progress_line("tokens", None if word is not None else random * length) as update:
        return weights.run(
            None if word is None else [word],
            random=random,
            length=0 if word is not None else length,
            seed=seed,
            **how,
            progress=update,
        )


@app.command()
def show(file: Built, as_json: Json = False) -> None:
    """Show what a weights file holds: layers, sizes, factors a token, field, margins and what is proved."""
    from statetrack import api

    with readable(file):
        facts = weight_facts(api.load(file)) | {"checked": "not here; 'statetrack check' does"}
    say(facts, as_json)


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
    say_rows(rows, as_json)


app.add_typer(groups, name="groups")
app.command()(verify)
app.command()(figure)
app.command()(conform)
app.command()(audit)
app.command()(learn)
app.command()(export)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    forgive_encoding()
    try:
        code = app(args=None if arguments is None else list(arguments), standalone_mode=False)
        return code if isinstance(code, int) else 0
    except StatetrackError as error:
        return fail(str(error))
    except KeyboardInterrupt:
        fail("stopped")
        return 130
    except (OverflowError, RecursionError, RuntimeError, OSError) as error:
        return fail(
            f"{type(error).__name__}: {str(error)[:200]}; give smaller numbers, or a device and folder that exist"
        )
    except MemoryError:
        return fail("out of memory; lower --max-states or the number of words")
    except Exception as error:
        if hasattr(error, "format_message"):
            shown = str(error.format_message())  # pyright: ignore[reportAttributeAccessIssue,reportUnknownMemberType,reportUnknownArgumentType]
            return fail(f"{' '.join(shown.split())}; see 'statetrack --help'") if shown else 2
        if type(error).__name__ in ("Exit", "Abort"):
            return int(getattr(error, "exit_code", 1))
        raise


if __name__ == "__main__":
    sys.exit(main())
