"""What a ledger is kept in: the shape that all kinds have, and the two ways in which they fail."""

from __future__ import annotations

import errno
from typing import Protocol

from proxy.frozen import frozen
from proxy.ledger.rows import Rows

MODE = 0o640  # of the files of a ledger
PASSING = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EAGAIN, errno.EMFILE}


class Unwritten(Exception):
    """Nothing of a batch was kept; another try may do. ``reason`` is short and names no place."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class RowsRefused(Unwritten):
    """The store cannot keep these rows, however often it is asked; it may keep others."""


class Unusable(Unwritten):
    """No ledger can be kept or read there until somebody mends it."""


@frozen
class Counts:
    """Where a process stands: calls begun and ended, rows dropped, writes that failed."""

    begun: int
    ended: int
    dropped: int
    failures: int


class LedgerStore(Protocol):
    """Keeps rows. Only one thread at a time is inside. ``dead`` are the names of the runs that were
    found dead as it opened."""

    dead: frozenset[str]

    def open(self) -> None:
        """Make ready. Raises ``Unusable``, or ``Unwritten`` when it may do later."""

    def write(self, rows: Rows, counts: Counts) -> None:
        """Keep a batch wholly. Raises ``Unwritten``; the very same batch is then given again,
        unless it raises ``RowsRefused``."""

    def prune(self) -> bool:
        """Let some rows go that are too old, where it is time to. Says whether there are more.
        Raises ``Unwritten``."""

    def close(self, counts: Counts) -> None:
        """Note that all is kept, and let go. Raises ``Unwritten``."""


def failed(error: OSError) -> Unwritten:
    """Return the kind of a fault: one that may pass, or ``Unusable`` for one that will not."""
    if error.errno in PASSING:
        return Unwritten(errno.errorcode[error.errno])
    return Unusable(error.strerror or "the file cannot be opened")
