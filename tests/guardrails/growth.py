"""How time grows with a text: by ratio, as clocks differ between machines."""

from __future__ import annotations

import gc
from collections.abc import Callable
from time import thread_time

TIMES = 8  # how much longer the longer text is
LINEAR = TIMES * 4  # a square would be 64; caches and neighbours on the machine take the rest


def ratio(call: Callable[[str], object], text: str) -> float:
    """Give how many times longer a text takes that is ``TIMES`` as long: at best of some."""
    gc.disable()  # what other tests left is not swept on our time
    try:
        return best(call, text * TIMES) / max(best(call, text), 1e-4)
    finally:
        gc.enable()


def best(call: Callable[[str], object], text: str) -> float:
    taken = []
    for _ in range(4):
        began = thread_time()
        call(text)
        taken.append(thread_time() - began)
    return min(taken)
