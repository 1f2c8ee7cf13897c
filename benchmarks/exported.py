"""Exported programs in the libraries that load them: wrong states, the first of them, keys that do not fit.

    python benchmarks/exported.py --device h200

Every case is built, exported for each model of flash-linear-attention and for our type `ckda`, loaded by
`AutoModelForCausalLM.from_pretrained`, and run on random words; the states that its logits name are compared with the
automaton's. Needs transformers and, for flash-linear-attention, a CUDA device; `--place cpu` runs `ckda` only, but with
TRITON_INTERPRET=1 set every model, for some ten tokens a second. What a model cannot express is a row with the refusal;
a row that fails holds its error and does not stop the others. Kernels run in one configuration each, which takes
seconds a model where autotuning takes minutes; `--tune` tunes them.
"""
# torch and transformers are only partly typed.
# pyright: basic

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch
from report import save
from tuning import TUNED, one_configuration

import statetrack as st
from statetrack.lab.ckda_checkpoint import ckda_checkpoint
from statetrack.lab.fla_checkpoint import FLA_MODELS, fla_checkpoint

SWAPS = "perm:(1 2);(2 3);(3 4);(4 5)"
# name: source, options of build, targets; each model gets the program of the first target that it can express.
CASES: dict[str, tuple[str, dict[str, Any], tuple[str, ...]]] = {
    "parity": ("regex:(b*ab*a)*b*", {}, ("ckda", "deltanet")),
    "(ab)*": ("regex:(ab)*", {}, ("ckda", "kda", "deltaproduct", "deltanet")),
    "S3": ("S3", {}, ("ckda", "deltaproduct", "deltanet")),
    "S3 by permutations": ("S3", {"construction": "permutation"}, ("deltaproduct",)),
    "(ab)* by a cascade": ("regex:(ab)*", {}, ("deltanet",)),
    "contains aba": ("regex:(a|b)*aba(a|b)*", {}, ("kda", "deltanet")),
    "Z60": ("Z60", {}, ("ckda", "deltaproduct", "deltanet")),
    "A5": ("A5", {}, ("ckda", "deltaproduct")),
    "A5 by permutations": ("A5", {"construction": "permutation"}, ("deltaproduct",)),
    "A5 by blocks": ("A5", {"letters": "generators"}, ("deltanet",)),
    "S5": ("S5", {}, ("ckda", "deltaproduct", "deltanet")),
    "S5, neighbour swaps": (SWAPS, {"letters": "generators"}, ("ckda", "deltanet")),
}
FORMATS = ("float32", "bfloat16")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="h200", help="name in the results' file names")
    parser.add_argument("--place", default="cuda" if torch.cuda.is_available() else "cpu", help="torch device")
    parser.add_argument("--words", type=int, default=16)
    parser.add_argument("--length", type=int, default=10_000)
    parser.add_argument("--only", nargs="+", default=list(CASES), help="cases")
    parser.add_argument("--models", nargs="+", default=[*FLA_MODELS, "ckda"])
    parser.add_argument("--tune", action="store_true", help="autotune the kernels")
    parser.add_argument("--name", default="exported")
    options = parser.parse_args()
    tuned = "kernels autotuned" if options.tune or not one_configuration() else TUNED
    name = torch.cuda.get_device_name() if options.place.startswith("cuda") else "CPU"
    rows: list[dict[str, Any]] = []
    for case in options.only:
        for row in case_rows(case, options):
            rows.append(row)
            print(json.dumps(row), flush=True)
            save(options.name, options.device, rows, f"{name}, {versions()}, {tuned}")


def case_rows(case: str, options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    source, build, targets = CASES[case]
    refused: dict[str, str] = {}
    done: set[str] = set()
    for target in targets:
        try:
            compiled = st.build(source, target, **build)
            weights = compiled.weights("float64")
        except Exception as error:
            yield {"case": case, "target": target, "error": told(error)}
            continue
        about = {"case": case, "target": target, "layers": len(compiled.dims), "factors": compiled.factors_per_token}
        for model in options.models:
            if model in done:
                continue
            if model != "ckda" and not (options.place.startswith("cuda") or os.environ.get("TRITON_INTERPRET")):
                continue
            for dtype in FORMATS:
                for mode in modes(model, dtype):
                    row = about | {"model": model, "dtype": dtype, "mode": mode}
                    try:
                        made = exported(weights, model, dtype, mode)
                    except st.InvalidInput as error:
                        refused[model] = str(error)
                        break
                    done.add(model)
                    yield row | guarded(made, weights.dfa, dtype, options)
                if model in refused and model not in done:
                    break
    for model, reason in refused.items():
        if model not in done:
            yield {"case": case, "model": model, "refused": reason}


def modes(model: str, dtype: str) -> tuple[str, ...]:
    """Kernels to run; the chunk kernels of delta_net and gated_deltaproduct take no float32."""
    if model == "ckda":
        return ("exact",) if dtype == "float32" else ("tracking",)
    both = dtype == "bfloat16" or model == "kda"
    return ("fused_recurrent", "chunk") if both else ("fused_recurrent",)


def exported(weights: Any, model: str, dtype: str, mode: str) -> Any:
    if model == "ckda":
        return ckda_checkpoint(weights, dtype=dtype, precision=mode)
    return fla_checkpoint(weights, model, dtype=dtype, mode=mode)


def guarded(made: Any, dfa: Any, dtype: str, options: argparse.Namespace) -> dict[str, Any]:
    started = time.perf_counter()
    try:
        with tempfile.TemporaryDirectory() as folder:
            made.save(folder)
            return measured(folder, made.facts, dfa, dtype, options)
    except Exception as error:
        print("".join(traceback.format_exc().splitlines(keepends=True)[-12:]), file=sys.stderr, flush=True)
        return {"error": told(error), "seconds": round(time.perf_counter() - started, 2)}
    finally:
        if options.place.startswith("cuda"):
            torch.cuda.empty_cache()


def measured(
    folder: str | Path, facts: dict[str, Any], dfa: Any, dtype: str, options: argparse.Namespace
) -> dict[str, Any]:
    """Wrong states of all words, with missing and unexpected keys of the load."""
    started = time.perf_counter()
    model, info = loaded(folder, dtype, options.place)
    tokens = np.random.default_rng(0).integers(0, len(dfa.alphabet), (options.words, options.length))
    states = walked(dfa, tokens)
    starts = facts["start_ids"]
    ids = np.concatenate([np.tile(starts, (len(tokens), 1)), tokens + facts["first_symbol_id"]], 1).astype(np.int64)
    given = torch.as_tensor(ids, device=options.place)
    with torch.no_grad():
        named, least = answers(model, given, facts)
        half = ids.shape[1] // 2
        first = model(given[:2, :half], use_cache=True)
        again = model(given[:2, half:], past_key_values=first.past_key_values, use_cache=True)
    wrong = named[:, len(starts) :] != states
    short = given[:1, : len(starts) + 20]
    new = model.generate(short, max_new_tokens=2, do_sample=False)[0, short.shape[1] :]
    continued = torch.cat([first.logits, again.logits], 1).argmax(-1).cpu().numpy() - facts["first_state_id"]
    return {
        "words": len(tokens),
        "tokens": options.length,
        "wrong_states": int(wrong.sum()),
        "wrong_words": int(wrong.any(1).sum()),
        "first_wrong": int(wrong.any(0).argmax()) + 1 if wrong.any() else None,
        "continued_wrong": int((continued[:, len(starts) :] != states[:2]).sum()),
        "start_right": bool(not starts or (named[:, len(starts) - 1] == facts["start_state"]).all()),
        "generates": [int(x) - facts["first_state_id"] for x in new] == [int(states[0, 19])] * 2,
        "least_lead": least,
        "blocks": facts["blocks"],
        "missing_keys": len(info["missing_keys"]),
        "unexpected_keys": len(info["unexpected_keys"]),
        "seconds": round(time.perf_counter() - started, 2),
    }


def loaded(folder: str | Path, dtype: str, place: str) -> tuple[Any, dict[str, Any]]:
    transformers: Any = import_module("transformers")
    kind = json.loads((Path(folder) / "config.json").read_text())["model_type"]
    if kind != "ckda":
        import_module("fla.models")
    model, info = transformers.AutoModelForCausalLM.from_pretrained(
        str(folder), output_loading_info=True, dtype=getattr(torch, dtype)
    )
    return model.to(place).eval(), info


def answers(model: Any, given: torch.Tensor, facts: dict[str, Any]) -> tuple[np.ndarray, float]:
    """The state that the largest logit names after every token, and by how much the least certain one leads."""
    found: list[np.ndarray] = []
    least = float("inf")
    for row in given.split(4):
        logits = model(row, use_cache=False).logits[:, max(len(facts["start_ids"]) - 1, 0) :].float()
        top = logits.topk(2, -1).values
        least = min(least, float((top[..., 0] - top[..., 1]).min()))
        names = logits.argmax(-1) - facts["first_state_id"]
        if len(facts["start_ids"]) > 1:
            pad = names.new_full((len(names), len(facts["start_ids"]) - 1), -1)
            names = torch.cat([pad, names], 1)
        found.append(names.cpu().numpy())
    return np.concatenate(found), round(least, 4)


def walked(dfa: Any, tokens: np.ndarray) -> np.ndarray:
    """The automaton's state after every token."""
    delta = np.asarray(dfa.delta)
    state = np.full(len(tokens), dfa.start)
    states = np.zeros(tokens.shape, dtype=np.int64)
    for t in range(tokens.shape[1]):
        state = delta[state, tokens[:, t]]
        states[:, t] = state
    return states


def versions() -> str:
    from importlib.metadata import PackageNotFoundError, version

    found: list[str] = []
    for package in ("transformers", "flash-linear-attention", "fla-core"):
        try:
            found.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            found.append(f"no {package}")
    return ", ".join(found)


def told(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"


if __name__ == "__main__":
    main()
