"""Hash-chained file of the decision log, which reveals later changes.

A line is JSON with sorted keys. ``hash`` is the SHA-256 of the line without that member, ``prev``
is the hash of the line before. An incomplete line of a killed process stays in the file, and the
next line contains the hash of its bytes. The chain has no secret, so a process with write access to
the file can replace the whole chain. To reveal that, the log of the proxy contains the last hash.
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

from proxy.errors.words import format_count
from proxy.runtime.frozen import frozen
from proxy.runtime.spool import append_bytes, is_file_at

FIRST_PREV = "0" * 64
LINE_PREFIX = b'{"'
MAX_LINE_BYTES = 256 * 1024  # for the writer and the reader, with the line feed
SEAL_BYTES = 256  # bound of the members that sealing adds to an entry
TAIL_BYTES = 4 * MAX_LINE_BYTES
INVALID_LINE = "is not a line of a decision log"
Entry = dict[str, Any]


class InvalidChain(Exception):
    """The file cannot be opened or continued. The message has the reason."""


def seal_entry(entry: Entry, seq: int, prev: str) -> tuple[bytes, str]:
    """Return the line of an entry, and its hash."""
    unsealed = {**entry, "seq": seq, "prev": prev}
    digest = _hash_line(orjson.dumps(unsealed, option=orjson.OPT_SORT_KEYS))
    line = orjson.dumps({**unsealed, "hash": digest}, option=orjson.OPT_SORT_KEYS)
    return line + b"\n", digest


def shorten_entry_lists(entry: Entry) -> Entry:
    """Shorten the lists of an entry to equal shares of a line. ``cut`` counts the removed items."""
    lists = {name: value for name, value in entry.items() if isinstance(value, list)}
    bare: Entry = {
        **entry,
        **{name: [] for name in lists},
        "cut": dict.fromkeys(lists, MAX_LINE_BYTES),
    }
    room = MAX_LINE_BYTES - SEAL_BYTES - len(orjson.dumps(bare))
    kept_items: dict[str, list[Any]] = {}
    for name in sorted(lists, key=lambda name: len(lists[name])):
        share = room // (len(lists) - len(kept_items))
        ends = list(accumulate(len(orjson.dumps(item)) + 1 for item in lists[name]))
        count = bisect_right(ends, share)
        kept_items[name] = lists[name][:count]
        room -= ends[count - 1] if count else 0
    cut = {name: len(lists[name]) - len(items) for name, items in kept_items.items()}
    return {**entry, **kept_items, "cut": {name: count for name, count in cut.items() if count}}


def _hash_line(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _parse_line(line: bytes) -> Entry | None:
    """Return the entry of a line, or None if it is not a JSON object, as an incomplete line is."""
    try:
        entry = orjson.loads(line)
    except orjson.JSONDecodeError:
        return None
    return entry if isinstance(entry, dict) else None


def _is_canonical(line: bytes, entry: Entry) -> bool:
    """Return True if a line equals the sealed form of its entry."""
    seq, prev = entry.get("seq"), entry.get("prev")
    if type(seq) is not int or not isinstance(prev, str):
        return False
    content = {name: value for name, value in entry.items() if name not in ("seq", "prev", "hash")}
    return seal_entry(content, seq, prev)[0].rstrip(b"\n") == line.rstrip(b"\n")


class ChainFile:
    """File of a chain, locked by the process that appends to it."""

    def __init__(self, path: Path) -> None:
        """Open or create a file. Raises ``InvalidChain``."""
        self.seq, self.last_hash = 0, FIRST_PREV
        self._path = path
        self._torn, self._open_line = b"", False
        try:
            self._fd = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise InvalidChain(f"{path} cannot be opened: {error.strerror}") from None
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._resume(path)
        except BlockingIOError:
            self.close()
            raise InvalidChain(f"{path} is in use by another process") from None
        except InvalidChain:
            self.close()
            raise

    def is_in_place(self) -> bool:
        """Return True unless the file was moved away or deleted."""
        return is_file_at(self._fd, self._path)

    def close(self) -> None:
        os.close(self._fd)

    def append(self, entries: Sequence[Entry]) -> int:
        """Write entries and sync the file.

        Return the number of entries that were written completely, fewer on a full disk. Blocks.
        """
        batch = [*entries]
        if self._torn:
            torn = {"torn": len(self._torn), "torn_sha256": _hash_line(self._torn)}
            batch.insert(0, {"event": "resumed", **torn})
        is_unfinished = self._open_line or (self._torn and not self._torn.endswith(b"\n"))
        data = b"\n" if is_unfinished else b""
        seq, head, prefix = self.seq, self.last_hash, len(data)
        states = [(seq, head, 0)]
        for entry in batch:
            seq += 1
            prev = head
            line, head = seal_entry(entry, seq, prev)
            if len(line) > MAX_LINE_BYTES:
                line, head = seal_entry(shorten_entry_lists(entry), seq, prev)
            data += line
            states.append((seq, head, len(data)))
        written, error = append_bytes(self._fd, data)
        if error is None:
            with suppress(OSError):
                os.fsync(self._fd)
        complete = sum(1 for *_, end in states[1:] if written >= end - 1)
        self.seq, self.last_hash, end = states[complete]
        if complete:
            self._torn, self._open_line = data[end:written], written == end - 1
        elif self._open_line:
            self._torn, self._open_line = data[prefix:written], written < prefix
        else:
            self._torn += data[:written]
        return max(0, complete - (len(batch) - len(entries)))

    def _resume(self, path: Path) -> None:
        """Find the last complete line. The bytes after it are an incomplete one."""
        status = os.fstat(self._fd)
        if not stat.S_ISREG(status.st_mode):
            return
        start = max(0, status.st_size - TAIL_BYTES)
        lines = os.pread(self._fd, TAIL_BYTES, start).splitlines(keepends=True)
        torn = b""
        for line in reversed(lines[1:] if start else lines):
            entry = _parse_line(line)
            if entry is None:
                torn = line + torn
                continue
            if not _is_canonical(line, entry):
                message = f"the last line of {path} was changed. Run headrace verify-log {path}."
                raise InvalidChain(message)
            self.seq, self.last_hash = entry["seq"], entry["hash"]
            self._torn, self._open_line = torn, not line.endswith(b"\n")
            return
        if start:
            message = f"{path} does not end with a complete line. Run headrace verify-log {path}."
            raise InvalidChain(message)
        if not torn.startswith(LINE_PREFIX[: len(torn)]):
            raise InvalidChain(f"{path} is not a decision log")
        self._torn = torn


@frozen
class Verification:
    """Result of checking a decision log.

    ``incomplete`` counts incomplete lines of killed processes, ``missing`` entries that were not
    written. ``first_invalid`` is the number of the first invalid line and the reason.
    """

    lines: int
    last_hash: str
    incomplete: int
    missing: int
    first_invalid: tuple[int, str] | None

    def describe(self) -> str:
        sentences = [f"{format_count(self.lines, 'line')}; hash of the last line: {self.last_hash}"]
        if self.incomplete:
            torn = format_count(self.incomplete, "incomplete line")
            sentences.append(f"{torn}, because the process was killed or the disk was full")
        if self.missing:
            missing = format_count(self.missing, "decision was", "decisions were")
            sentences.append(f"{missing} not written, because the disk failed or was too slow")
        if self.first_invalid is not None:
            number, reason = self.first_invalid
            return "\n".join([*sentences, f"invalid: line {number} {reason}"])
        return "\n".join([*sentences, "valid: no line was changed, removed or inserted"])


class _ChainReader:
    """Checks a chain line by line."""

    def __init__(self) -> None:
        self.seq, self.last_hash = 0, FIRST_PREV
        self.incomplete, self.missing = 0, 0
        self._part = b""
        self._part_number = 0

    def check_line(self, number: int, line: bytes) -> tuple[int, str] | None:
        """Return the number of an invalid line and the reason, or None."""
        entry = _parse_line(line)
        if entry is None:
            self._part, self._part_number = self._part + line, self._part_number or number
            return (self._part_number, INVALID_LINE) if len(self._part) > TAIL_BYTES else None
        if not _is_canonical(line, entry):
            return number, "was changed after it was written"
        if entry["seq"] != self.seq + 1 or entry["prev"] != self.last_hash:
            return number, "does not follow the line before: lines were removed, inserted or moved"
        hashes = (_hash_line(self._part), _hash_line(self._part.removesuffix(b"\n")))
        is_explained = entry.get("event") == "resumed" and entry.get("torn_sha256") in hashes
        if self._part and not is_explained:
            return self._part_number, f"{INVALID_LINE}, and the next line does not report a crash"
        self.incomplete += bool(self._part)
        self._part, self._part_number = b"", 0
        self.seq, self.last_hash = entry["seq"], entry["hash"]
        self.missing += entry.get("missing", 0)
        return None

    def check_incomplete_line(self) -> tuple[int, str] | None:
        """Check the bytes after the last line: an incomplete line, without a line end."""
        if self._part.count(b"\n"):
            return self._part_number, INVALID_LINE
        self.incomplete += bool(self._part)
        return None


def verify_chain(path: Path, known_hashes: Iterable[str] = ()) -> Verification:
    """Check a decision log from its first line. It must contain all ``known_hashes``."""
    reader, missing = _ChainReader(), set(known_hashes)
    broken: tuple[int, str] | None = None
    number = 0
    with path.open("rb") as file:
        for number, line in enumerate(iter(partial(file.readline, MAX_LINE_BYTES), b""), 1):
            broken = reader.check_line(number, line)
            missing.discard(reader.last_hash)
            if broken is not None:
                break
    broken = broken or reader.check_incomplete_line()
    if broken is None and not reader.seq:
        broken = 1, "does not exist, because the log is empty or was truncated"
    if broken is None and missing:
        broken = number, f"is the last line, but no line has the hash {min(missing)} of --holds"
    return Verification(
        lines=reader.seq,
        last_hash=reader.last_hash,
        incomplete=reader.incomplete,
        missing=reader.missing,
        first_invalid=broken,
    )
