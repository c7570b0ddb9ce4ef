"""Two counts that outlive a killed process: how many calls began, and how many ended.

They lie in memory that is shared through a file, so adding to them costs no system call, and who
starts next can say how many calls are in no row. The file belongs in memory too (``/dev/shm``): a
page of a file on a busy disk would make the event loop wait.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import re
from contextlib import suppress
from pathlib import Path

from proxy.frozen import frozen

SIZE = mmap.PAGESIZE
IN_MEMORY = Path("/dev/shm")  # noqa: S108  # names are drawn, and opened only if they are new
NAME = re.compile(r"[0-9a-f]{16}")


def folder(beside: Path) -> Path:
    """Choose where tallies lie: in memory where the system has such a folder."""
    return IN_MEMORY if os.access(IN_MEMORY, os.W_OK) else beside


@frozen
class Left:
    """What a process left. ``alive`` says that it is still at work."""

    begun: int
    ended: int
    alive: bool


class CallCounters:
    """The counts of this process; the loop alone adds to them.

    Without a folder, or where none can be written, they are as short-lived as the process.
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
        os.write(self._fd, bytes(SIZE))  # what is not there yet could not be had later
        fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)  # held for as long as we live
        return mmap.mmap(self._fd, SIZE)

    @property
    def begun(self) -> int:
        return self._counts[0]

    @property
    def ended(self) -> int:
        return self._counts[1]

    def begin(self) -> None:
        self._counts[0] += 1

    def end(self) -> None:
        """Count a call that has ended."""
        self._counts[1] += 1

    def forget(self) -> None:
        """Count a call as never begun: it has ended, and is to be in no row."""
        self._counts[0] -= 1

    def close(self, *, settled: bool) -> None:
        """Let go. The file stays for who starts next unless all that ended is ``settled``."""
        if self._file is not None:
            if settled:
                self._file.unlink(missing_ok=True)
            fcntl.flock(self._fd, fcntl.LOCK_UN)  # the shared memory has a descriptor of its own
            os.close(self._fd)
            self._file = None


def left_by(folder: Path, name: str) -> Left | None:
    """Read what another process left; None when it is lost, as after a restart of the machine."""
    if not NAME.fullmatch(name):
        return None
    try:
        fd = os.open(folder / f"headrace-{name}", os.O_RDONLY | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        counts = memoryview(os.pread(fd, 16, 0)).cast("Q")
        return Left(counts[0], counts[1], alive=not _unlocked(fd))
    except (OSError, TypeError, IndexError):
        return None
    finally:
        os.close(fd)


def _unlocked(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def forget(folder: Path, name: str) -> None:
    """Remove what a dead process left."""
    if NAME.fullmatch(name):
        with suppress(OSError):
            (folder / f"headrace-{name}").unlink(missing_ok=True)
