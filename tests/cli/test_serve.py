"""A process that serves: what the slowest calls would wait for does not happen."""

from __future__ import annotations

import gc

from proxy.cli.serve import GARBAGE

UNDER_WAY = 50_000  # values of some hundred calls under way, and of those that are still told of


def test_calls_under_way_set_off_no_search_for_garbage() -> None:
    searched: list[str] = []
    bounds, note = gc.get_threshold(), lambda phase, info: searched.append(phase)
    gc.collect()
    gc.callbacks.append(note)
    gc.set_threshold(*GARBAGE)
    try:
        stored_items: list[list[int]] = [[] for _ in range(UNDER_WAY)]
    finally:
        gc.set_threshold(*bounds)
        gc.callbacks.remove(note)

    assert len(stored_items) == UNDER_WAY
    assert searched == []
