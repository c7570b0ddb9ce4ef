"""How bytes are appended to a file whose disk may take a part of them: the one way of the log, the
ledger in lines and the decision log, which all must know what stands there now."""

from __future__ import annotations

import os


def append(fd: int, data: bytes) -> tuple[int, OSError | None]:
    """Write bytes. Return how many of them were taken, and why not all were. Blocks."""
    taken, rest = 0, memoryview(data)
    try:
        while taken < len(data):
            taken += os.write(fd, rest[taken:])
    except OSError as error:
        return taken, error
    return taken, None
