"""Keeps values that live long out of garbage collection, and returns free memory to the system.

A round of the garbage collector holds up all threads, for a second where there are a million
values. So what is made to stay is left out of its rounds. It is freed as soon as nothing leads to
it any more, unless it leads to itself.

Memory that is free goes back to the system, where the C library keeps it otherwise: to compile
patterns takes twice the memory that they have in the end, and glibc keeps what is freed below the
last thing that is in use, for good.
"""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Iterator
from contextlib import contextmanager

MANY = 20_000
"""Values that stay, from which on they are left out of the collector's rounds: each round would be
20 ms longer."""


@contextmanager
def uncollected() -> Iterator[None]:
    """Make what is to stay for long, and is in no circle, without rounds of the collector, and
    leave it out of them from then on where it is much."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            if gc.get_count()[0] > MANY:
                gc.freeze()
            gc.enable()


def release() -> None:
    """Return what is free to the system, where the C library has a call for it. Takes a few
    milliseconds, and holds up nobody but who allocates meanwhile."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def drop_tracebacks(error: BaseException) -> None:
    """Take from an error that is kept its traceback, and what it came of with theirs. Their frames
    hold the call, which holds the error: a cycle that would keep every byte of it for long."""
    chain: list[BaseException | None] = [error]
    while chain:
        each = chain.pop()
        if each is not None and (each.__traceback__ or each.__context__ or each.__cause__):
            chain += [each.__context__, each.__cause__]
            each.__traceback__ = each.__context__ = each.__cause__ = None
