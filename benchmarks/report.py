"""Writes the rows of a benchmark as JSON and as a table.

Main definitions: `save`.
"""

from __future__ import annotations

import json
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

RESULTS = Path(__file__).parent / "results"


def save(name: str, device: str, rows: list[dict[str, Any]], device_name: str) -> None:
    """Write results/NAME-DEVICE.json and .md and print the table."""
    packages = ("numpy", "python-flint", "sympy", "torch", "triton", "statetrack")
    data = {
        "device": device_name,
        "versions": {"python": platform.python_version()} | {p: _version(p) for p in packages},
        "rows": rows,
    }
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{name}-{device}.json").write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    columns = list(dict.fromkeys(key for row in rows for key in row))
    lines = [columns, ["---"] * len(columns)] + [[_cell(row.get(key)) for key in columns] for row in rows]
    text = "\n".join("| " + " | ".join(line) + " |" for line in lines)
    (RESULTS / f"{name}-{device}.md").write_text(f"{device_name}\n\n{text}\n", encoding="utf-8")
    table = Table(*columns)
    for line in lines[2:]:
        table.add_row(*line)
    Console(width=200).print(table)


def _cell(value: Any) -> str:
    return "" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
