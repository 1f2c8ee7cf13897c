"""The claims' checks, constructions run through the kernels on a device: one row a claim that has such a check."""
# pyright: basic

from __future__ import annotations

import argparse

import torch
from report import save

import statetrack as st


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda", help="name in the file name of the results")
    parser.add_argument("--place", default="cuda", help="cpu or cuda")
    parser.add_argument("--budget", default="fast")
    parser.add_argument("--jobs", type=int, default=4)
    options = parser.parse_args()
    found = st.verify(budget=options.budget, kernels=options.place, jobs=options.jobs)
    bad = [v for v in found if v.verdict in ("refuted", "error")]
    print(len(found), "claims;", *(f"{v.id}: {v.detail}" for v in bad))
    rows = [
        {"claim": v.id, "verdict": v.verdict, "budget": options.budget, "seconds": v.seconds, "runs": note}
        for v in found
        for note in v.notes
        if " tokens by " in note
    ]
    name = torch.cuda.get_device_name() if options.place == "cuda" else options.place
    save("claims", options.device, rows, name)


if __name__ == "__main__":
    main()
