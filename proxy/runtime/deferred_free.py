"""Keeps long-lived objects out of garbage collection and returns free memory to the system.

A full collection stops all threads, for about a second with a million objects, so long-lived
objects are frozen. They are freed by reference counting unless they are part of a cycle.
``malloc_trim`` returns memory that glibc keeps after large temporary allocations.
"""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Iterator
from contextlib import contextmanager

MIN_FROZEN_OBJECTS = 20_000
"""Minimum number of new objects to freeze: collecting that many takes 20 ms."""


@contextmanager
def pause_gc_then_freeze() -> Iterator[None]:
    """Pause garbage collection in the block, and freeze its new objects if they are many."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            if gc.get_count()[0] > MIN_FROZEN_OBJECTS:
                gc.freeze()
            gc.enable()


def release_free_memory() -> None:
    """Return free memory to the system if the C library supports it. Takes a few milliseconds."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def drop_tracebacks(error: BaseException) -> None:
    """Remove the tracebacks of a stored error and its causes.

    Their frames refer to the call, which refers to the error: a cycle that keeps the call alive.
    """
    pending: list[BaseException | None] = [error]
    while pending:
        link = pending.pop()
        if link is not None and (link.__traceback__ or link.__context__ or link.__cause__):
            pending += [link.__context__, link.__cause__]
            link.__traceback__ = link.__context__ = link.__cause__ = None
