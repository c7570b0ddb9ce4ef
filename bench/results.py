"""Result files: figures as JSON, with the settings and the machine of the run.

They contain no host name and no path.
"""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
import sysconfig
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "results"
CALLS, GROWTH, DELAYS = (FOLDER / f"{name}.json" for name in ("calls", "growth", "delays"))
LIBRARIES = ("aiohttp", "uvloop", "orjson", "google-re2", "pydantic")
DIGITS = 4  # significant digits of a stored figure
MAX_LOAD = 0.5  # a higher load average before the run spoils its figures

Results = Mapping[str, Any]


def new_results(**settings: object) -> dict[str, Any]:
    """Return results without figures."""
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "revision": _revision(),
        "machine": _machine(),
        "settings": settings,
    }


def _machine() -> dict[str, object]:
    memory_kib = _kernel_field("/proc/meminfo", "MemTotal").split()[0]
    return {
        "processor": _kernel_field("/proc/cpuinfo", "model name"),
        "cores": os.cpu_count(),
        "memory_gib": round(int(memory_kib) / 2**20),
        "system": f"{platform.system()} {platform.release()}",
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "built": describe_build(sysconfig.get_config_var("CONFIG_ARGS") or ""),
        "libraries": {name: version(name) for name in LIBRARIES},
        "load_before": round(os.getloadavg()[0], 2),
    }


def _kernel_field(path: str, name: str) -> str:
    """Return the value of ``name: value`` in a file of the kernel, or ``0 unknown``."""
    for line in Path(path).read_text().splitlines():
        key, colon, value = line.partition(":")
        if colon and key.strip() == name:
            return value.strip()
    return "0 unknown"


def describe_build(configure_arguments: str) -> str:
    """Describe the optimizations of the interpreter."""
    options = {"--enable-optimizations": "PGO", "--with-lto": "LTO"}
    names = [name for option, name in options.items() if option in configure_arguments]
    return f"built with {' and '.join(names)}" if names else "built without PGO or LTO"


def _revision() -> str:
    """Return the commit, followed by ``+`` if files of the proxy differ from it."""
    commit = _git("rev-parse", "--short=12", "HEAD")
    changes = _git("status", "--porcelain", "--untracked-files=no", "--", "../proxy")
    return f"{commit or 'unknown'}{'+' if changes else ''}"


def _git(*arguments: str) -> str:
    command = ("git", "-C", str(Path(__file__).parent), *arguments)
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    except FileNotFoundError:
        return ""


def load_warning() -> str:
    """Return a warning if other programs keep the machine busy, else an empty string."""
    load = os.getloadavg()[0]
    return f"the machine is busy (load {load:.1f}): figures vary\n" if load > MAX_LOAD else ""


def _round(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}") if value < 10**DIGITS else round(value)
    if isinstance(value, dict):
        return {name: _round(member) for name, member in value.items()}
    return [_round(member) for member in value] if isinstance(value, list) else value


def write(path: Path, results: Results) -> None:
    """Write rounded figures, each list on one line."""
    path.parent.mkdir(exist_ok=True)
    text = json.dumps(_round(dict(results)), indent=1)
    text = re.sub(r"\[\s+([^][{}]*?)\s+\]", lambda match: f"[{' '.join(match[1].split())}]", text)
    path.write_text(text + "\n")


def read(path: Path) -> Results:
    """Read results. Raises ``FileNotFoundError`` before the first run."""
    results: Results = json.loads(path.read_text())
    return results


def render(path: Path, table: Callable[[Results], Iterator[str]]) -> Iterator[str]:
    """Yield the lines of a table of stored results."""
    if path.exists():
        yield from table(read(path))
    else:
        yield "Not measured yet."
