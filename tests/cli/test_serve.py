"""Garbage collection of a serving process."""

from __future__ import annotations

import gc

from proxy.cli.serve import GC_THRESHOLDS

ACTIVE_OBJECTS = 50_000  # containers of some hundred active and finished calls


def test_calls_do_not_trigger_garbage_collection() -> None:
    collections: list[str] = []
    thresholds, on_collection = gc.get_threshold(), lambda phase, info: collections.append(phase)
    gc.collect()
    gc.callbacks.append(on_collection)
    gc.set_threshold(*GC_THRESHOLDS)
    try:
        objects: list[list[int]] = [[] for _ in range(ACTIVE_OBJECTS)]
    finally:
        gc.set_threshold(*thresholds)
        gc.callbacks.remove(on_collection)

    assert len(objects) == ACTIVE_OBJECTS
    assert collections == []
