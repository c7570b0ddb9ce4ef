from __future__ import annotations

import gc
import subprocess
import sys
from collections.abc import Iterator

import pytest

from proxy.runtime.deferred_free import MIN_FROZEN_OBJECTS, drop_tracebacks, pause_gc_then_freeze

FREES = """
import ctypes, re
from pathlib import Path
from proxy.runtime.deferred_free import release_free_memory

def resident_kib():
    return int(re.search(r"VmRSS:\\s+(\\d+)", Path("/proc/self/status").read_text())[1])

library = ctypes.CDLL(None)
library.malloc.restype = ctypes.c_void_p
library.free.argtypes = [ctypes.c_void_p]
blocks = [library.malloc(1000) for _ in range(20_000)]
for block in blocks:
    ctypes.memset(block, 1, 1000)
for block in blocks[:-1]:  # the last one, on top of all others, stays
    library.free(block)
before = resident_kib()
release_free_memory()
print(before - resident_kib())
"""


@pytest.mark.process
@pytest.mark.skipif(sys.platform != "linux", reason="glibc keeps what is freed")
def test_freed_memory_is_returned_to_the_system() -> None:
    ran = subprocess.run([sys.executable, "-c", FREES], capture_output=True, text=True, check=True)

    assert int(ran.stdout) > 15_000  # KiB


@pytest.fixture
def collecting() -> Iterator[None]:
    """Enable automatic garbage collection, and restore its settings."""
    was_enabled = gc.isenabled()
    gc.enable()
    yield
    if not was_enabled:
        gc.disable()


@pytest.mark.usefixtures("collecting")
@pytest.mark.parametrize(
    ("count", "left_out"), [(MIN_FROZEN_OBJECTS // 10, False), (2 * MIN_FROZEN_OBJECTS, True)]
)
def test_large_fixed_values_are_frozen(count: int, left_out: bool) -> None:
    gc.collect()
    count_before = gc.get_freeze_count()
    rounds: list[object] = []
    gc.callbacks.append(lambda phase, info: rounds.append(phase))
    try:
        with pause_gc_then_freeze():
            stored_items = [[number] for number in range(count)]
    finally:
        gc.callbacks.pop()

    assert (len(rounds), gc.isenabled()) == (0, True)
    assert (gc.get_freeze_count() - count_before > count) == left_out
    assert len(stored_items) == count


@pytest.mark.usefixtures("collecting")
def test_disabled_collection_stays_disabled() -> None:
    count_before = gc.get_freeze_count()
    gc.disable()
    with pause_gc_then_freeze():
        stored_items = [[number] for number in range(2 * MIN_FROZEN_OBJECTS)]

    assert not gc.isenabled()
    assert gc.get_freeze_count() == count_before
    assert len(stored_items) == 2 * MIN_FROZEN_OBJECTS


def failing(error: Exception, cause: Exception | None = None) -> None:
    if cause is not None:
        try:
            failing(cause)
        except Exception as first:
            raise error from first
    raise error


def test_tracebacks_of_error_and_causes_are_dropped() -> None:
    stored, cause = ValueError("second"), KeyError("first")
    with pytest.raises(ValueError, match="second"):
        failing(stored, cause)
    assert stored.__cause__ is cause

    drop_tracebacks(stored)

    for error in (stored, cause):
        assert (error.__traceback__, error.__context__, error.__cause__) == (None, None, None)
