"""What a measurement gave, as it is kept: JSON beside the machine that it was taken on."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench import machine

FOLDER = Path(__file__).parent / "results"
CALLS, GROWTH = FOLDER / "calls.json", FOLDER / "growth.json"
DIGITS = 4  # that a figure is kept with

Results = Mapping[str, Any]


def begun(**settings: object) -> dict[str, Any]:
    """Return what is said of a measurement beside its figures."""
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "revision": machine.revision(),
        "machine": machine.described(),
        "settings": settings,
    }


def rounded(value: Any) -> Any:
    """Return figures with the digits that mean something."""
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}") if value < 10**DIGITS else round(value)
    if isinstance(value, dict):
        return {name: rounded(each) for name, each in value.items()}
    return [rounded(each) for each in value] if isinstance(value, list) else value


def write(path: Path, results: Results) -> None:
    path.parent.mkdir(exist_ok=True)
    text = json.dumps(rounded(dict(results)), indent=1)
    path.write_text(_joined(text) + "\n")


def _joined(text: str) -> str:
    """Return JSON with each list of figures on one line."""
    return re.sub(r"\[\s+([^][{}]*?)\s+\]", lambda found: f"[{' '.join(found[1].split())}]", text)


def read(path: Path) -> Results:
    """Return what was kept. Raises ``FileNotFoundError`` before the first measurement."""
    found: Results = json.loads(path.read_text())
    return found


def told(path: Path, table: Callable[[Results], Iterator[str]]) -> Iterator[str]:
    """Yield the lines of a table of what was kept last; that there is none before the first
    measurement."""
    if path.exists():
        yield from table(read(path))
    else:
        yield "Not measured yet."
