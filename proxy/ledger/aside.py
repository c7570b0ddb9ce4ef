"""The file of rows that the ledger's store refuses: a line of JSON for each call and its attempts.

They are rare and each is one too many, so what was refused is kept whole, for a person to look at.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from proxy.ledger.rows import ATTEMPT, CALL, CHARGE, Rows
from proxy.ledger.store import failed

MODE = 0o640


def aside_of(ledger: Path) -> Path:
    """Return where the refused rows of a ledger are."""
    return ledger.with_name(f"{ledger.name}.refused.jsonl")


class RefusedRows:
    """Appends what a store refused; the file is made when there is something to put in it."""

    def __init__(self, path: Path, run: str) -> None:
        self.path = path
        self._run = run

    def add(self, reason: str, rows: Rows) -> None:
        """Keep the rows of a call. Raise ``Unwritten``, or ``Unusable`` if the file can never
        be written."""
        line = {
            "run": self._run,
            "reason": reason,
            "call": dict(zip(CALL, rows.calls[0], strict=True)),
            "attempts": [dict(zip(ATTEMPT, row, strict=True)) for row in rows.attempts],
            "charges": [dict(zip(CHARGE, row, strict=True)) for row in rows.charges],
        }
        try:
            fd = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, MODE)
            with os.fdopen(fd, "wb") as file:
                file.write(json.dumps(line, default=repr).encode() + b"\n")
                file.flush()
                os.fsync(fd)
        except OSError as error:
            raise failed(error) from None
