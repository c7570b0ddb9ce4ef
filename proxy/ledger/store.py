"""Interface of the stores of a ledger, and their errors."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from typing import Protocol

from proxy.ledger.rows import Rows
from proxy.runtime.frozen import frozen

FILE_MODE = 0o640  # permissions of ledger files
TRANSIENT_ERRNOS = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EAGAIN, errno.EMFILE}


class LedgerWriteFailed(Exception):
    """No row of a batch was written. The caller may retry. ``reason`` is short and has no path."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class RowsRefused(LedgerWriteFailed):
    """The store refuses these rows. It may accept others."""


class LedgerUnusable(LedgerWriteFailed):
    """The file cannot be a ledger, or cannot be read, until an operator repairs it."""


@frozen
class Counts:
    """Counts of a process: calls started and ended, rows dropped, writes that failed."""

    started: int
    ended: int
    dropped: int
    failures: int


class LedgerStore(Protocol):
    """Stores rows, for one thread at a time.

    ``dead_runs`` are the names of the runs that were found dead when the store opened.
    """

    dead_runs: frozenset[str]

    def open(self) -> None:
        """Open the file.

        Raises ``LedgerUnusable``, or ``LedgerWriteFailed`` if a retry may succeed.
        """

    def write(self, batch: Sequence[Rows], counts: Counts) -> None:
        """Write the rows of calls.

        After ``LedgerWriteFailed`` the caller retries the same batch, except after ``RowsRefused``.
        """

    def prune(self) -> bool:
        """Delete some expired rows, if the next deletion is due.

        Return True if there are more. Raises ``LedgerWriteFailed``.
        """

    def close(self, counts: Counts) -> None:
        """Mark the run as closed, and close the file. Raises ``LedgerWriteFailed``."""


def to_write_error(error: OSError) -> LedgerWriteFailed:
    """Return the error of a failed write: ``LedgerUnusable`` unless a retry may succeed."""
    if error.errno in TRANSIENT_ERRNOS:
        return LedgerWriteFailed(errno.errorcode[error.errno])
    return LedgerUnusable(error.strerror or "the file cannot be opened")
