"""What much memory is taken for and freed, with nobody waiting for that.

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
