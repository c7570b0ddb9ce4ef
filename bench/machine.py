"""What a measurement ran on, in words that name no host and no folder."""

from __future__ import annotations

import os
import platform
import subprocess
import sysconfig
from importlib.metadata import version
from pathlib import Path

LIBRARIES = ("aiohttp", "uvloop", "orjson", "google-re2", "pydantic")
FOLDER = Path(__file__).parent
BUSY = 0.5  # a load beyond this before the start spoils what follows


def described() -> dict[str, object]:
    """Return the processor, memory, system, Python and libraries, and the load before the start."""
    return {
        "processor": _field(Path("/proc/cpuinfo").read_text(), "model name"),
        "cores": os.cpu_count(),
        "memory_gib": round(int(_field(_memory(), "MemTotal").split()[0]) / 2**20),
        "system": f"{platform.system()} {platform.release()}",
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "built": optimisations(sysconfig.get_config_var("CONFIG_ARGS") or ""),
        "libraries": {name: version(name) for name in LIBRARIES},
        "load_before": round(os.getloadavg()[0], 2),
    }


def _memory() -> str:
    return Path("/proc/meminfo").read_text()


def _field(text: str, name: str) -> str:
    """Return what a file of the kernel says of a name; ``0 unknown`` where it says nothing."""
    for line in text.splitlines():
        key, colon, value = line.partition(":")
        if colon and key.strip() == name:
            return value.strip()
    return "0 unknown"


def optimisations(arguments: str) -> str:
    """Return how an interpreter was optimised, by the arguments that it was configured with."""
    words = {"--enable-optimizations": "PGO", "--with-lto": "LTO"}
    found = [word for flag, word in words.items() if flag in arguments]
    return f"built with {' and '.join(found)}" if found else "built without PGO or LTO"


def revision() -> str:
    """Return the commit that is measured, with ``+`` where files differ from it."""
    git = ("git", "-C", str(FOLDER))
    commit = _output(*git, "rev-parse", "--short=12", "HEAD")
    changed = _output(*git, "status", "--porcelain", "--untracked-files=no", "--", "../proxy")
    return f"{commit or 'unknown'}{'+' if changed else ''}"


def _output(*command: str) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    except FileNotFoundError:
        return ""


def warning() -> str:
    """Return what to be told before figures are taken from a machine that works for others."""
    load = os.getloadavg()[0]
    return f"other programs run here (load {load:.1f}): wait for them\n" if load > BUSY else ""
