"""Memory that is free goes back to the system, where the C library keeps it otherwise.

To compile patterns takes twice the memory that they have in the end. glibc keeps what is freed
below the last thing that is in use, for good.
"""

from __future__ import annotations

import ctypes


def release() -> None:
    """Return what is free to the system, where the C library has a call for it. Takes a few
    milliseconds, and holds up nobody but who allocates meanwhile."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
