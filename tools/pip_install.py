"""Runs ``pip install`` and explains a failure in one line. pip's own output goes to a log file.

python tools/pip_install.py --no-deps -r requirements/runtime.lock

Exits with 3 if a package has no wheel for this platform, with 1 after any other failure.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check", "-q", "install")
NO_WHEEL = "No matching distribution found"
REASONS = (
    ("No space left on device", "the disk is full. Free some space"),
    ("DO NOT MATCH THE HASHES", "a downloaded package is not the locked one. Check the index"),
    ("incomplete-download", "a download stopped. Check the network and the free disk space"),
    ("Retrying (", "the package index cannot be reached. Check the network"),
    (NO_WHEEL, "a package does not exist for this platform and version of Python. Choose another"),
)
"""Text of pip's output, reason and remedy. The first match counts."""


def explain(output: str) -> tuple[str, int]:
    """Return the reason of a failure, found in pip's output, and the exit code."""
    for text, reason in REASONS:
        if text in output:
            return f"{reason}, then run make again", 3 if text == NO_WHEEL else 1
    lines = output.strip().splitlines() or ["pip failed"]
    errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR: ")]
    return (errors or lines)[-1], 1


def main(arguments: Sequence[str]) -> int:
    ran = subprocess.run((*PIP, *arguments), stderr=subprocess.PIPE, text=True, check=False)
    if not ran.returncode:
        return 0
    log = Path(sys.prefix) / "pip.log"
    with suppress(OSError):
        log.write_text(ran.stderr)
    reason, code = explain(ran.stderr)
    print(f"Cannot install {arguments[-1]}: {reason}. Details: {log}", file=sys.stderr)
    return code


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        raise SystemExit(main(sys.argv[1:]))
    raise SystemExit(130)
