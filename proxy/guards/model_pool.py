"""Where a model of the user's own runs: in threads of its own, in turns by caller, behind a queue
that has an end. So it holds up neither the event loop, nor what other threads do, nor other models.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from proxy.guards.aside import GuardThreads
from proxy.runtime.turns import Places, Turns
from proxy.types.guard import Busy

THREADS = 2  # that judge with one model; each holds one processor
CALLS = 32  # that may have one model's work under way or wait for it, before a caller is refused


class ModelPool:
    """The threads of one model. They end when nobody holds the pool any more."""

    __slots__ = ("_executor", "_places", "_turns")

    def __init__(self, threads: int = THREADS) -> None:
        self._executor = ThreadPoolExecutor(threads, "model")
        self._turns = Turns(threads)
        self._places = Places(CALLS)

    @contextmanager
    def call(self, caller: object) -> Iterator[GuardThreads]:
        """Yield what one call's work is done by, each piece in a turn of its caller. Raise ``Busy``
        where too many calls of the caller are there already."""
        if self._places.is_full(caller):
            raise Busy
        self._places.take(caller)
        try:
            yield GuardThreads(self._executor, self._turns.of(caller))
        finally:
            self._places.give_back(caller)
