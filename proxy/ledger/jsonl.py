"""The ledger as lines of JSON for log shippers: one per row, appended to a file."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson

from proxy.appending import append
from proxy.ledger.rows import ATTEMPT, CALL, CHARGE, Row, Rows
from proxy.ledger.store import Counts, RowsRefused, Unusable, Unwritten, failed

MODE = 0o640
BEGIN = b'{"row":'


class JsonlStore:
    """Appends lines; one that a full disk cut is ended before another begins.

    A file that was moved away, as by log rotation, is made anew. Nobody knows which runs are dead.
    """

    dead: frozenset[str] = frozenset()

    def __init__(self, path: Path, run: str) -> None:
        self._path = path
        self._run = run
        self._fd: int | None = None
        self._rest = b""

    def open(self) -> None:
        if self._fd is not None:
            return
        try:
            self._fd = os.open(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT, MODE)
            ours, ended = _state(self._fd)
            if ours and not ended:
                os.write(self._fd, b"\n")
        except OSError as error:
            self._let_go()
            raise failed(error) from None
        if not ours:
            self._let_go()
            raise Unusable("the file is not a Headrace ledger")

    def write(self, rows: Rows, counts: Counts) -> None:
        if not self._rest:
            self._reopen_if_moved()
            try:
                self._rest = b"".join(lines(self._run, rows))
            except orjson.JSONEncodeError:
                raise RowsRefused("not JSON") from None
        self.open()
        self._push()

    def _push(self) -> None:
        """Write what is left of a batch; it is remembered how far that came."""
        if self._fd is None:
            raise Unwritten("closed")
        written, error = append(self._fd, self._rest)
        self._rest = self._rest[written:]
        if error is not None:
            raise failed(error)

    def _reopen_if_moved(self) -> None:
        if self._fd is None:
            return
        ours = os.fstat(self._fd)
        try:
            there = self._path.stat()
        except OSError:
            self._let_go()
            return
        if (ours.st_dev, ours.st_ino) != (there.st_dev, there.st_ino):
            self._let_go()

    def prune(self) -> bool:
        """Files of lines are rotated by others."""
        return False

    def close(self, counts: Counts) -> None:
        self._let_go()

    def _let_go(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None


def _state(fd: int) -> tuple[bool, bool]:
    """Return whether a file is empty or begins as one of ours, and whether its last line ended."""
    about = os.fstat(fd)
    if not stat.S_ISREG(about.st_mode) or about.st_size == 0:
        return True, True
    head = os.pread(fd, len(BEGIN), 0)
    return BEGIN.startswith(head), os.pread(fd, 1, about.st_size - 1) == b"\n"


def lines(run: str, rows: Rows) -> Iterator[bytes]:
    """Return each call's line with what budgets it was charged to, then those of its attempts."""
    made, charges = _by_call(rows.attempts), _by_call(rows.charges)
    for row in rows.calls:
        line: dict[str, Any] = dict(zip(CALL, row, strict=True))
        time = datetime.fromtimestamp(line.pop("started_ms") / 1000, UTC)
        at = {"run": run, "time": time.isoformat(timespec="milliseconds")}
        for name in ("tags", "models"):
            line[name] = None if line[name] is None else orjson.Fragment(line[name])
        line["stream"] = None if line["stream"] is None else bool(line["stream"])
        line["charges"] = [_charge(each) for each in charges.get(row[0], ())]
        yield orjson.dumps({"row": "call", **at, **line}) + b"\n"
        at["request_id"] = line["request_id"]
        for attempt in made.get(row[0], ()):
            columns = dict(zip(ATTEMPT, attempt, strict=True))
            columns["served"] = bool(columns["served"])
            yield orjson.dumps({"row": "attempt", **at, **columns}) + b"\n"


def _by_call(rows: Sequence[Row]) -> dict[Any, list[Row]]:
    found: dict[Any, list[Row]] = {}
    for row in rows:
        found.setdefault(row[0], []).append(row)
    return found


def _charge(row: Row) -> dict[str, Any]:
    named = dict(zip(CHARGE, row, strict=True))
    return {name: named[name] for name in ("budget", "scope", "cost_nano_usd")}
