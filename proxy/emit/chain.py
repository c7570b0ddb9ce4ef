"""A file of lines each of which seals the one before, so that what was changed afterwards shows.

A line is JSON with sorted keys. Its ``hash`` is the SHA-256 of the line without it, in which
``prev`` is the hash of the line before. What a process that was killed wrote in part stays where it
is: the next line says so, by the hash of those bytes. There is no secret in it: who can write the
file can write all of it anew, so its last hash should be known elsewhere, as it is in the log.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import stat
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Any

import orjson

from proxy.frozen import frozen
from proxy.spool import append, is_in_place
from proxy.words import counted

FIRST = "0" * 64
BEGIN = b'{"'
MAX_LINE = 256 * 1024  # for the writer and the reader, with the line feed
SEAL_BYTES = 256  # at most, of what a line has beside its entry
TAIL = 4 * MAX_LINE
Entry = dict[str, Any]


class BadChain(Exception):
    """The file cannot be written, or what is there cannot be continued; its message says why."""


def sealed(entry: Entry, seq: int, prev: str) -> tuple[bytes, str]:
    """Return the line of an entry, and its hash."""
    unsealed = {**entry, "seq": seq, "prev": prev}
    digest = _digest(orjson.dumps(unsealed, option=orjson.OPT_SORT_KEYS))
    line = orjson.dumps({**unsealed, "hash": digest}, option=orjson.OPT_SORT_KEYS)
    return line + b"\n", digest


def shortened(entry: Entry) -> Entry:
    """Return an entry that fits into a line: each list keeps its first items, as many as fit into
    an equal share. ``cut`` counts the others."""
    lists = {name: value for name, value in entry.items() if isinstance(value, list)}
    bare: Entry = {**entry, **{name: [] for name in lists}, "cut": dict.fromkeys(lists, MAX_LINE)}
    room = MAX_LINE - SEAL_BYTES - len(orjson.dumps(bare))
    kept: dict[str, list[Any]] = {}
    for name in sorted(lists, key=lambda name: len(lists[name])):
        share = room // (len(lists) - len(kept))
        ends = list(accumulate(len(orjson.dumps(item)) + 1 for item in lists[name]))
        count = bisect_right(ends, share)
        kept[name] = lists[name][:count]
        room -= ends[count - 1] if count else 0
    cut = {name: len(lists[name]) - len(items) for name, items in kept.items()}
    return {**entry, **kept, "cut": {name: count for name, count in cut.items() if count}}


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _read(line: bytes) -> Entry | None:
    """Return the entry of a line, None where it is no JSON object, as a part of one never is."""
    try:
        entry = orjson.loads(line)
    except orjson.JSONDecodeError:
        return None
    return entry if isinstance(entry, dict) else None


def _is_whole(line: bytes, entry: Entry) -> bool:
    """True if a line is as it was sealed."""
    seq, prev = entry.get("seq"), entry.get("prev")
    if type(seq) is not int or not isinstance(prev, str):
        return False
    content = {name: value for name, value in entry.items() if name not in ("seq", "prev", "hash")}
    return sealed(content, seq, prev)[0].rstrip(b"\n") == line.rstrip(b"\n")


class ChainFile:
    """A chain that is written to, by one process alone. Close it."""

    def __init__(self, path: Path) -> None:
        """Open a chain, or begin one. Raises ``BadChain``."""
        self.seq, self.head = 0, FIRST
        self._path = path
        self._torn, self._open_line = b"", False
        try:
            self._fd = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise BadChain(f"{path} cannot be opened: {error.strerror}") from None
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._resume(path)
        except BlockingIOError:
            self.close()
            raise BadChain(f"{path} is in use by another process") from None
        except BadChain:
            self.close()
            raise

    def is_in_place(self) -> bool:
        """True if the file is still there under its name: who writes to another writes for
        nobody."""
        return is_in_place(self._fd, self._path)

    def close(self) -> None:
        os.close(self._fd)

    def append(self, entries: Sequence[Entry]) -> int:
        """Write entries and have the disk keep them. Return how many are whole in the file.

        Fewer than all mean that the disk did not take more. Blocks.
        """
        batch = [*entries]
        if self._torn:
            torn = {"torn": len(self._torn), "torn_sha256": _digest(self._torn)}
            batch.insert(0, {"event": "resumed", **torn})
        data, states, seq, head = self._prefix(), [(self.seq, self.head, 0)], self.seq, self.head
        prefix = len(data)
        for entry in batch:
            seq += 1
            before = head
            line, head = sealed(entry, seq, before)
            if len(line) > MAX_LINE:
                line, head = sealed(shortened(entry), seq, before)
            data += line
            states.append((seq, head, len(data)))
        written = self._write(data)
        done = sum(1 for *_, end in states[1:] if written >= end - 1)
        self.seq, self.head, end = states[done]
        if done:
            self._torn, self._open_line = data[end:written], written == end - 1
        elif self._open_line:
            self._torn, self._open_line = data[prefix:written], written < prefix
        else:
            self._torn += data[:written]
        return max(0, done - (len(batch) - len(entries)))

    def _prefix(self) -> bytes:
        unfinished = self._open_line or (self._torn and not self._torn.endswith(b"\n"))
        return b"\n" if unfinished else b""

    def _write(self, data: bytes) -> int:
        written, error = append(self._fd, data)
        if error is None:
            with suppress(OSError):
                os.fsync(self._fd)
        return written

    def _resume(self, path: Path) -> None:
        """Find the last whole line. What follows it is a torn one, unless somebody wrote it."""
        about = os.fstat(self._fd)
        if not stat.S_ISREG(about.st_mode):
            return
        start = max(0, about.st_size - TAIL)
        tail = os.pread(self._fd, TAIL, start)
        lines = tail.splitlines(keepends=True)
        if start:
            lines = lines[1:]
        torn = b""
        for line in reversed(lines):
            entry = _read(line)
            if entry is not None:
                self._continue(path, line, entry, torn)
                return
            torn = line + torn
        if start:
            raise BadChain(
                f"{path} does not end with a complete line. Run headrace verify-log {path}."
            )
        if not torn.startswith(BEGIN[: len(torn)]):
            raise BadChain(f"{path} is not a decision log")
        self._torn = torn

    def _continue(self, path: Path, line: bytes, entry: Entry, torn: bytes) -> None:
        if not _is_whole(line, entry):
            raise BadChain(f"the last line of {path} was changed. Run headrace verify-log {path}.")
        self.seq, self.head = entry["seq"], entry["hash"]
        self._torn, self._open_line = torn, not line.endswith(b"\n")


@frozen
class Verified:
    """Result of a check: the number of complete lines and the hash of the last one. ``torn`` are
    incomplete lines of killed processes, ``missing`` entries that could not be written. ``broken``
    is the first invalid line and the reason."""

    lines: int
    head: str
    torn: int
    missing: int
    broken: tuple[int, str] | None

    def text(self) -> str:
        sentences = [f"{counted(self.lines, 'line')}; hash of the last line: {self.head}"]
        if self.torn:
            torn = counted(self.torn, "incomplete line")
            sentences.append(f"{torn}, because the process was killed or the disk was full")
        if self.missing:
            missing = counted(self.missing, "decision was", "decisions were")
            sentences.append(f"{missing} not written (the log counts them)")
        if self.broken is not None:
            number, why = self.broken
            return "\n".join([*sentences, f"invalid: line {number} {why}"])
        return "\n".join([*sentences, "valid: no line was changed, removed or inserted"])


class _ChainReader:
    """Follows a chain line by line."""

    def __init__(self) -> None:
        self.seq, self.head = 0, FIRST
        self.torn, self.missing = 0, 0
        self._part = b""
        self._part_at = 0

    def feed(self, number: int, line: bytes) -> tuple[int, str] | None:
        """Return the number of an invalid line and the reason, or None."""
        entry = _read(line)
        if entry is None:
            self._part, self._part_at = self._part + line, self._part_at or number
            return (
                (self._part_at, "is not a line of a decision log")
                if len(self._part) > TAIL
                else None
            )
        if not _is_whole(line, entry):
            return number, "was changed after it was written"
        if entry["seq"] != self.seq + 1 or entry["prev"] != self.head:
            return (
                number,
                "does not follow the previous line: lines were removed, inserted or moved",
            )
        if self._part and not self._accounts(entry):
            return (
                self._part_at,
                "is not a line of a decision log, and the next line does not explain it",
            )
        self.torn += bool(self._part)
        self._part, self._part_at = b"", 0
        self.seq, self.head = entry["seq"], entry["hash"]
        self.missing += entry.get("missing", 0)
        return None

    def _accounts(self, entry: Entry) -> bool:
        hashes = (_digest(self._part), _digest(self._part.removesuffix(b"\n")))
        return entry.get("event") == "resumed" and entry.get("torn_sha256") in hashes

    def end(self) -> tuple[int, str] | None:
        """Take what no line follows: the last write may have been torn, a whole line not."""
        if self._part.count(b"\n"):
            return self._part_at, "is not a line of a decision log"
        self.torn += bool(self._part)
        return None


def verify(path: Path, known: Iterable[str] = ()) -> Verified:
    """Check a chain from its first line. Hashes that are ``known`` must be in it."""
    reader, wanted = _ChainReader(), set(known)
    broken: tuple[int, str] | None = None
    number = 0
    with path.open("rb") as file:
        for number, line in enumerate(iter(partial(file.readline, MAX_LINE), b""), 1):
            broken = reader.feed(number, line)
            wanted.discard(reader.head)
            if broken is not None:
                break
    broken = broken or reader.end()
    if broken is None and not reader.seq:
        broken = 1, "is missing: the log is empty or was truncated"
    if broken is None and wanted:
        broken = number, f"is the last line, and no line has the hash {min(wanted)}"
    return Verified(
        lines=reader.seq, head=reader.head, torn=reader.torn, missing=reader.missing, broken=broken
    )
