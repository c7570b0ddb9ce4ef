"""Ledger as JSON lines, for log shippers, and the file of rows that a store refused."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson

from proxy.ledger import store
from proxy.ledger.rows import Rows
from proxy.runtime.spool import append_bytes, is_file_at

LINE_PREFIX = b'{"row":'
CHARGE_FIELDS = ("budget", "scope", "cost_nano_usd")


@dataclass(slots=True)
class JsonlStore:
    """Appends rows as JSON lines. A line that a full disk cut is ended before the next line.

    A file that log rotation moved away is created again. ``dead_runs`` stays empty.
    """

    path: Path
    run: str
    dead_runs: frozenset[str] = frozenset()
    _fd: int | None = None
    _rest: bytes = b""

    def open(self) -> None:
        if self._fd is not None:
            return
        try:
            self._fd = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT, store.FILE_MODE)
            is_ledger, has_line_end = _check_first_and_last_line(self._fd)
            if is_ledger and not has_line_end:
                os.write(self._fd, b"\n")
        except OSError as error:
            self._close_file()
            raise store.to_write_error(error) from None
        if not is_ledger:
            self._close_file()
            raise store.LedgerUnusable("the file is not a Headrace ledger")

    def write(self, batch: Sequence[Rows], counts: store.Counts) -> None:
        if not self._rest:
            if self._fd is not None and not is_file_at(self._fd, self.path):
                self._close_file()
            try:
                lines = (line for rows in batch for line in encode_lines(self.run, rows))
                self._rest = b"".join(lines)
            except orjson.JSONEncodeError:
                raise store.RowsRefused("not JSON") from None
        self.open()
        if self._fd is None:
            raise store.LedgerWriteFailed("closed")
        written, error = append_bytes(self._fd, self._rest)  # the rest of the batch comes next time
        self._rest = self._rest[written:]
        if error is not None:
            raise store.to_write_error(error)

    def prune(self) -> bool:
        """Do nothing: log rotation deletes old rows."""
        return False

    def close(self, counts: store.Counts) -> None:
        self._close_file()

    def _close_file(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None


def _check_first_and_last_line(fd: int) -> tuple[bool, bool]:
    """Return if a file is empty or starts like a ledger, and if its last line has a line end."""
    status = os.fstat(fd)
    if not stat.S_ISREG(status.st_mode) or status.st_size == 0:
        return True, True
    head = os.pread(fd, len(LINE_PREFIX), 0)
    return LINE_PREFIX.startswith(head), os.pread(fd, 1, status.st_size - 1) == b"\n"


def encode_lines(run: str, rows: Rows) -> Iterator[bytes]:
    """Yield the line of a call, with its charges, then the lines of its attempts."""
    line: dict[str, Any] = {**rows.call}
    time = datetime.fromtimestamp(line.pop("started_ms") / 1000, UTC)
    common = {"run": run, "time": time.isoformat(timespec="milliseconds")}
    for name in ("tags", "models"):
        line[name] = None if line[name] is None else orjson.Fragment(line[name])
    line["stream"] = None if line["stream"] is None else bool(line["stream"])
    line["charges"] = [{name: charge[name] for name in CHARGE_FIELDS} for charge in rows.charges]
    yield orjson.dumps({"row": "call", **common, **line}) + b"\n"
    common["request_id"] = line["request_id"]
    for row in rows.attempts:
        served = bool(row["served"])
        yield orjson.dumps({"row": "attempt", **common, **row, "served": served}) + b"\n"


def get_refused_rows_path(ledger: Path) -> Path:
    return ledger.with_name(f"{ledger.name}.refused.jsonl")


@dataclass(slots=True)
class RefusedRows:
    """Appends rows that a store refused, one line for each call, for an operator to inspect.

    The file is created with the first line.
    """

    path: Path
    run: str

    def add(self, reason: str, rows: Rows) -> None:
        """Write the rows of a call.

        Raises ``LedgerWriteFailed``, or ``LedgerUnusable`` if no retry can help.
        """
        line = {"run": self.run, "reason": reason, **rows._asdict()}
        try:
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
            fd = os.open(self.path, flags, store.FILE_MODE)
            with os.fdopen(fd, "wb") as file:
                file.write(json.dumps(line, default=repr).encode() + b"\n")
                file.flush()
                os.fsync(fd)
        except OSError as error:
            raise store.to_write_error(error) from None
