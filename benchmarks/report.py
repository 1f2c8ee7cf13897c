"""Writes the rows of a benchmark as JSON and as a table.

Main definitions: `save`, `write_table`.
"""

from __future__ import annotations

import json
import platform
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

RESULTS = Path(__file__).parent / "results"


def save(name: str, device: str, rows: list[dict[str, Any]], device_name: str, folder: Path = RESULTS) -> None:
    """Write NAME-DEVICE.json into the folder, and the same rows as a table in NAME-DEVICE.md."""
    packages = ("numpy", "python-flint", "sympy", "torch", "triton", "statetrack")
    data = {
        "device": device_name,
        "versions": {"python": platform.python_version()} | {p: _version(p) for p in packages},
        "rows": rows,
    }
    folder.mkdir(exist_ok=True)
    (folder / f"{name}-{device}.json").write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    page = folder / f"{name}-{device}.md"
    write_table(page, rows, device_name)
    print(f"written: {page}", file=sys.stderr)


def write_table(page: Path, rows: list[dict[str, Any]], device_name: str) -> None:
    """Write the rows as a table in Markdown, under the device's name."""
    columns = list(dict.fromkeys(key for row in rows for key in row))
    table = Table(*columns, box=box.MARKDOWN)
    for row in rows:
        table.add_row(*(_cell(row.get(key)) for key in columns))
    with page.open("w", encoding="utf-8") as file:
        Console(file=file, width=4000).print(f"{device_name}\n", table)


def _cell(value: Any) -> str:
    return "" if value is None else f"{value:.4g}" if isinstance(value, float) else escape(str(value))


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
