"""Counts of started and ended calls, which survive a killed process.

They are in shared memory, so counting costs no system call, and the next process finds how many
calls have no row. The file is in ``/dev/shm``: a page on a busy disk would block the event loop.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import re
from contextlib import suppress
from pathlib import Path

from proxy.runtime.frozen import frozen

SIZE = mmap.PAGESIZE
IN_MEMORY = Path("/dev/shm")  # noqa: S108  # names are random, and opened only if they are new
NAME = re.compile(r"[0-9a-f]{16}")


def folder(fallback: Path) -> Path:
    """Return the folder of counts: in memory if the system has such a folder."""
    return IN_MEMORY if os.access(IN_MEMORY, os.W_OK) else fallback


@frozen
class ProcessCounts:
    """Counts of another process. ``alive`` is True while it runs."""

    started: int
    ended: int
    alive: bool


class CallCounters:
    """Counts of this process. Only the event loop adds to them.

    Without a writable folder they end with the process.
    """

    def __init__(self, folder: Path | None, name: str) -> None:
        self._file: Path | None = None
        self._fd = -1
        memory = mmap.mmap(-1, SIZE)
        if folder is not None:
            with suppress(OSError):
                memory = self._shared(folder / f"headrace-{name}")
        self._counts = memoryview(memory).cast("Q")

    def _shared(self, file: Path) -> mmap.mmap:
        self._fd = os.open(file, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        self._file = file
        os.write(self._fd, bytes(SIZE))  # allocates the page
        fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)  # held until the process ends
        return mmap.mmap(self._fd, SIZE)

    @property
    def started(self) -> int:
        return self._counts[0]

    @property
    def ended(self) -> int:
        return self._counts[1]

    def begin(self) -> None:
        self._counts[0] += 1

    def end(self) -> None:
        """Count an ended call."""
        self._counts[1] += 1

    def forget(self) -> None:
        """Take back the begin of a call that gets no row."""
        self._counts[0] -= 1

    def close(self, *, settled: bool) -> None:
        """Close the file. Keep it for the next process unless all ended calls are ``settled``."""
        if self._file is not None:
            if settled:
                self._file.unlink(missing_ok=True)
            fcntl.flock(self._fd, fcntl.LOCK_UN)  # the shared memory has a descriptor of its own
            os.close(self._fd)
            self._file = None


def read_process_counts(folder: Path, name: str) -> ProcessCounts | None:
    """Read the counts of another process. Return None if they are lost, as after a reboot."""
    if not NAME.fullmatch(name):
        return None
    try:
        fd = os.open(folder / f"headrace-{name}", os.O_RDONLY | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        counts = memoryview(os.pread(fd, 16, 0)).cast("Q")
        return ProcessCounts(counts[0], counts[1], alive=_is_locked(fd))
    except (OSError, TypeError, IndexError):
        return None
    finally:
        os.close(fd)


def _is_locked(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return False


def forget(folder: Path, name: str) -> None:
    """Remove the counts of a dead process."""
    if NAME.fullmatch(name):
        with suppress(OSError):
            (folder / f"headrace-{name}").unlink(missing_ok=True)
