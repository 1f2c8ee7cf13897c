"""Every automaton of the test data on every target: what is built, what is refused, and what the refusals show.

A network that is built counts only if the independent checker accepts its certificate, and if exact runs and float64
runs of the kernels are right on the listed words and on random ones. A refusal counts only if its witness word moves
the states that it names in a cycle of a length that the target cannot have, and these states are told apart by words.
Both are checked against the automaton, walked here edge by edge.
"""
# torch is only partly typed.
# pyright: basic

from __future__ import annotations

import argparse
import json
import math
import platform
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

import statetrack as st
from statetrack.api import Compiled
from statetrack.constructions.refutations import period_witness
from statetrack.constructions.source import Source, resolve_any
from statetrack.constructions.targets import TARGETS
from statetrack.errors import BudgetExceeded, NoConstruction, NotExpressible
from statetrack.guards import bounded
from statetrack.proofs_check import networks
from statetrack.theory.automata import Dfa, minimise, reachable
from statetrack.theory.formats import read_automaton
from statetrack.theory.regex import parse_regex
from statetrack.theory.weighted import Wfa, from_matrices_dict

DATA = Path(__file__).parents[1] / "tests" / "data"
Word = tuple[str, ...]
# Targets that cannot have every period of a word's cycles: none but 1, or powers of two only.
APERIODIC = frozenset({"diag[0,1]", "deltanet[0,1]", "gdn[0,1]", "kda[0,1]"})
TWO_PERIODIC = frozenset({"diag[-1,1]"})


@dataclass(frozen=True)
class Case:
    """An automaton with listed words and what is to be said after them."""

    name: str
    automaton: Dfa | Wfa
    words: tuple[tuple[Word, Any], ...] = ()


@dataclass(frozen=True)
class Verdict:
    """What came of one automaton on one target: built, refused, none, budget, or WRONG; `why` says more."""

    case: str
    target: str
    result: str
    why: str = ""
    construction: str = ""
    dims: tuple[tuple[int, ...], ...] = ()
    seconds: dict[str, float] = field(default_factory=dict[str, float])

    def cell(self) -> str:
        """A few words for a table."""
        if self.result != "built":
            return f"{self.result}: {self.why}"[:60]
        sizes = sum(map(sum, self.dims))
        return f"{self.construction}, {len(self.dims)} layers, K {sizes}, {self.seconds['build']:.2g} s"


def cases() -> list[Case]:
    """All automata of the test data, small ones first."""
    found = [Case(path.stem, read_automaton(path)) for path in sorted((DATA / "automata").glob("*.json"))]
    found += map(_case, sorted((DATA / "cases").glob("*.json")))
    return sorted(found, key=lambda case: size(case.automaton))


def size(automaton: Dfa | Wfa) -> int:
    return automaton.size if isinstance(automaton, Wfa) else len(automaton.states)


def _case(path: Path) -> Case:
    data = json.loads(path.read_text(encoding="utf-8"))
    given, words = data["input"], list[tuple[Word, Any]]()
    if data["kind"] == "wfa":
        automaton: Dfa | Wfa = from_matrices_dict(given)
    elif data["kind"] == "regex":
        automaton = parse_regex(given["regex"], given["alphabet"])
    else:
        automaton = read_automaton(path, missing="sink")
    for entry in data["words"]:
        said = entry.get("accept", entry.get("weight"))
        # Rejected words with foreign symbols are no words of the network.
        if set(entry["w"]) <= set(automaton.alphabet):
            words.append((tuple(entry["w"]), str(entry["output"]) if said is None else said))
    return Case(data["id"], automaton, tuple(words))


def walk(dfa: Dfa, word: Iterable[str]) -> list[Any]:
    """What the automaton says after each symbol."""
    edges, state, said = dfa.delta.tolist(), dfa.start, list[Any]()
    number = {symbol: i for i, symbol in enumerate(dfa.alphabet)}
    for symbol in word:
        state = edges[state][number[symbol]]
        said.append(dfa.outputs[state])
    return said


def judge(
    case: Case,
    goal: str,
    *,
    seconds: float | None,
    words: Sequence[Word],
    kernels: bool = True,
    max_monoid: int = 20_000,
) -> Verdict:
    """Build, check and run one automaton on one target; every exception that is not a stated refusal is WRONG.

    `seconds` bound build and check by the clock; what is told is processor time.
    """
    told, started = dict[str, float](), time.process_time()
    verdict = partial(Verdict, case.name, goal, seconds=told)
    try:
        with bounded(seconds, 8_000 if seconds else None):
            made = st.build(case.automaton, goal, check=False, max_monoid=max_monoid)
            told["build"] = time.process_time() - started
            facts = networks.verify(made.certificate.text(), made.certificate.digest)
            told["check"] = time.process_time() - started - told["build"]
        faults = _faults(made, case, words, facts, kernels=kernels)
        told["run"] = time.process_time() - started - told["build"] - told["check"]
    except NotExpressible as error:
        why = _refusal(case, goal, error, max_monoid)
        return verdict("WRONG" if why else "refused", why or error.witness.rpartition(" with ")[2])
    except (BudgetExceeded, NoConstruction) as error:
        told["build"] = time.process_time() - started
        none = isinstance(error, NoConstruction)
        return verdict("none" if none else "budget", error.reason if none else str(error))
    except Exception as error:
        return verdict("WRONG", f"{type(error).__name__}: {error}")
    if faults:
        return verdict("WRONG", "; ".join(faults[:3]))
    return verdict("built", "", made.plan.construction, made.dims)


def _faults(made: Compiled, case: Case, words: Sequence[Word], facts: dict[str, Any], *, kernels: bool) -> list[str]:
    """What is not as it should be in exact runs and in float64 runs of a network."""
    faults = list[str]()
    if facts["target"] != made.target.name or not facts["proved"].startswith("after every non-empty word"):
        faults.append(f"the checker proves {facts}")
    if isinstance(case.automaton, Wfa):
        return faults + _weighted_faults(made, case, case.automaton, words, kernels=kernels)
    for word in words:
        if [*made.run(word)] != walk(case.automaton, word):
            faults.append(f"exact run of {word[:20]}")
    for word, said in case.words:
        if word and made.run(word)[-1] != said:
            faults.append(f"exact run of the listed {word[:20]}")
    if kernels and (words or case.words):
        weights = made.weights("float64")
        every = [*words, *(word for word, _ in case.words)]
        trace = weights.run(every)
        answers = trace.answers.tolist() if trace.answers is not None else []
        states = [[weights.dfa.outputs[q] for q in row[: len(word)]] for row, word in zip(answers, every, strict=True)]
        if trace.wrong or states != [walk(case.automaton, word) for word in every]:
            faults.append(f"float64 run: {trace.wrong} wrong answers, first at {trace.first_wrong}")
    return faults


def _weighted_faults(made: Compiled, case: Case, wfa: Wfa, words: Sequence[Word], *, kernels: bool) -> list[str]:
    every = [*words, *(word for word, _ in case.words)]
    faults = [f"exact run of {word[:20]}" for word in every if made.run(word) != wfa.run(word)]
    faults += [f"the listed {word}" for word, said in case.words if word and made.run(word)[-1] != said]
    if kernels:
        for word, got in zip(every, made.weights("float64").values(every), strict=True):
            exact = map(float, wfa.run(word))
            if not all(math.isclose(x, y, rel_tol=1e-9, abs_tol=1e-9) for x, y in zip(got, exact, strict=True)):
                faults.append(f"float64 values of {word[:20]}")
    return faults


def _refusal(case: Case, goal: str, error: NotExpressible, max_monoid: int) -> str:
    """What is wrong with a refusal; "" if its witness shows what it says."""
    source = resolve_any(case.automaton)
    if not isinstance(source, Source) or goal not in APERIODIC | TWO_PERIODIC:
        return f"refused without cause: {error}"
    dfa = source.dfa
    found = period_witness(source, allow_two=goal in TWO_PERIODIC, max_monoid=max_monoid)
    if found is None:
        return "no witness"
    period = len(found.states)
    if period < 2 or (goal in TWO_PERIODIC and period & (period - 1) == 0):
        return f"period {period} is none that {goal} lacks"
    names = [dfa.alphabet[s] for s in found.word]
    shown = f"the word '{' '.join(names[:12])}{' ...' if len(names) > 12 else ''}' moves"
    if shown not in error.witness or f"with period {period}" not in error.witness:
        return f"the message tells another witness: {error.witness}"
    edges = dfa.delta.tolist()
    for at, after in zip(found.states, (*found.states[1:], found.states[0]), strict=True):
        for symbol in found.word:
            at = edges[at][symbol]
        if at != after:
            return f"the word {names} does not lead along {found.states}"
    if len(set(found.states)) < period or not all(_differ(dfa, found.states[0], q) for q in found.states[1:]):
        return f"the states {found.states} are not all different"
    return ""


def _differ(dfa: Dfa, p: int, q: int) -> bool:
    """Whether some word tells the states apart."""
    edges, seen, queue = dfa.delta.tolist(), {(p, q)}, [(p, q)]
    for p, q in queue:
        if dfa.outputs[p] != dfa.outputs[q]:
            return True
        fresh = {*zip(edges[p], edges[q], strict=True)} - seen
        seen |= fresh
        queue += fresh
    return False


def random_dfa(seed: int, number: int) -> Dfa:
    """Minimal automaton number `number` of a seed, of 2 to 8 states; one in fifty may have a single state."""
    draw = random.Random(f"{seed} {number}")
    while True:
        n, letters = draw.randint(2, 8), draw.randint(1, 3)
        table = np.array([_letter(draw, n) for _ in range(letters)], dtype=np.int32).reshape(letters, n).T
        said = tuple(draw.random() < 0.5 for _ in range(n))
        dfa = minimise(reachable(Dfa(tuple("abc"[:letters]), tuple(f"q{i}" for i in range(n)), 0, table, said)))
        if len(dfa.states) > 1 or number % 50 == 0:
            return dfa


def _letter(draw: random.Random, n: int) -> list[int]:
    kind = draw.choice(("any", "any", "any", "permutation", "constant", "few"))
    if kind == "permutation":
        return draw.sample(range(n), n)
    if kind == "constant":
        return [draw.randrange(n)] * n
    if kind == "few":
        moved = set(draw.sample(range(n), 2))
        return [draw.randrange(n) if q in moved else q for q in range(n)]
    return [draw.randrange(n) for _ in range(n)]


def some_words(name: str, alphabet: Sequence[str], lengths: Sequence[int]) -> list[Word]:
    """Random words that depend on the name only."""
    draw = random.Random(name)
    return [tuple(draw.choices(alphabet, k=n)) for n in lengths] if alphabet else []


def _job(asked: tuple[Case, str, float]) -> Verdict:
    import torch

    torch.set_num_threads(1)
    case, goal, seconds = asked
    return judge(case, goal, seconds=seconds, words=some_words(case.name, case.automaton.alphabet, (1, 20, 20, 200)))


def main() -> None:
    from report import save

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu", help="name in the file name of the results")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=120.0, help="most for building and checking one network")
    parser.add_argument("--count", type=int, help="automata of this many only, small ones first")
    parser.add_argument("--journal", type=Path, default=Path(tempfile.gettempdir()) / "statetrack-every-target.jsonl")
    options = parser.parse_args()
    found = dict[tuple[str, str], Verdict]()
    if options.journal.exists():
        lines = options.journal.read_text(encoding="utf-8").splitlines()
        found = {(v.case, v.target): v for v in (Verdict(**json.loads(line)) for line in lines)}
    every = cases()
    asked = [
        (c, goal, options.seconds) for c in every[: options.count] for goal in TARGETS if (c.name, goal) not in found
    ]
    pool = get_context("spawn").Pool(options.jobs, maxtasksperchild=50)
    with pool, options.journal.open("a", encoding="utf-8") as journal:
        for verdict in pool.imap_unordered(_job, asked):
            found[verdict.case, verdict.target] = verdict
            journal.write(json.dumps(asdict(verdict)) + "\n")
            journal.flush()
            print(
                f"{len(found)}/{len(every) * len(TARGETS)} {verdict.case} {verdict.target} {verdict.cell()}",
                file=sys.stderr,
            )
    save("every-target", options.device, _table(every, found), f"{platform.machine()}, {options.device}")
    wrong = [v for v in found.values() if v.result == "WRONG"]
    print(Counter(v.result for v in found.values()), *wrong, sep="\n")
    sys.exit(bool(wrong))


def _table(every: Sequence[Case], found: dict[tuple[str, str], Verdict]) -> list[dict[str, Any]]:
    return [
        {"automaton": c.name, "states": size(c.automaton), "symbols": len(c.automaton.alphabet)}
        | {goal: found[c.name, goal].cell() if (c.name, goal) in found else "not run" for goal in TARGETS}
        for c in every
    ]


if __name__ == "__main__":
    main()
