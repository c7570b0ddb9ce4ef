"""The thread that writes rows. The event loop only hands it what it noted; nothing holds it up.

A batch that cannot be written stays and is tried again, while new ones wait in a bounded queue;
what does not fit is counted as dropped.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from functools import partial

import structlog

from proxy.ledger.rows import Entry, Row, attempt_rows, call_row
from proxy.ledger.store import Counts, Store, Unwritten
from proxy.ledger.tally import Tally

MAX_CALLS = 10_000
BATCH = 256
SLICE = 32
GATHER_S = 0.2
IDLE_S = 60.0
BREATH_S = 0.0005
RETRY_S = 0.25
Log = structlog.typing.FilteringBoundLogger


class Writer:
    """Writes entries in batches, one after the other. ``put`` never waits.

    ``dropped`` is told why and how many calls are in no row.
    """

    def __init__(
        self, store: Store, tally: Tally, dropped: Callable[[str, int], None], log: Log
    ) -> None:
        self._store = store
        self._tally = tally
        self._tell = dropped
        self._log = log
        self._queue: deque[Entry] = deque()
        self._batch: list[Entry] = []
        self._full = 0
        self._invalid = 0
        self._failures = 0
        self._failing = False
        self._done = False
        self._rest: float = IDLE_S
        self._wake = threading.Event()
        self._closing = threading.Event()
        self._given_up = threading.Event()
        self._thread = threading.Thread(target=self._run, name="ledger-writer", daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> int:
        """How many entries are not written yet."""
        return len(self._queue) + len(self._batch)

    def put(self, entry: Entry) -> None:
        if self._done:
            self._tell("closed", 1)
            return
        if len(self._queue) >= MAX_CALLS:
            self._full += 1
            self._tell("queue_full", 1)
            return
        self._queue.append(entry)
        if not self._wake.is_set():
            self._wake.set()

    def close(self, timeout: float) -> None:
        """Write what is waiting, for at most ``timeout`` seconds. What is not written by then is
        counted here, though a write under way may still succeed, and by whoever opens it next."""
        self._closing.set()
        self._wake.set()
        self._thread.join(timeout)
        self._given_up.set()
        self._tally.close(settled=self._done)
        if not self._done:
            self._tell("shutdown", len(self._queue) + len(self._batch))

    def _run(self) -> None:
        while not self._closing.is_set() or self._queue:
            self._wake.wait(self._rest)
            self._closing.wait(GATHER_S)
            if not self._closing.is_set():
                self._wake.clear()
            while self._queue:
                self._batch = [self._queue.popleft() for _ in range(min(len(self._queue), BATCH))]
                rows = self._built()
                if not self._until_done(partial(self._store.write, *rows)):
                    return
                self._batch = []
            self._prune()
        self._done = self._until_done(self._store.close)

    def _prune(self) -> None:
        """Let a few old rows go, and more of them soon. What cannot go now goes later."""
        if self._closing.is_set():
            return
        try:
            more = self._store.prune()
        except Unwritten as failure:
            more = False
            self._log.warning("ledger.unpruned", reason=failure.reason)
        self._rest = GATHER_S if more else IDLE_S

    def _built(self) -> tuple[list[Row], list[Row]]:
        """Build rows a few at a time: Python code that runs on and on in a thread would keep the
        event loop waiting for the interpreter's lock."""
        calls: list[Row] = []
        attempts: list[Row] = []
        for start in range(0, len(self._batch), SLICE):
            for entry in self._batch[start : start + SLICE]:
                try:
                    made = attempt_rows(entry)
                    calls.append(call_row(entry, made))
                except (TypeError, ValueError, ArithmeticError):
                    self._invalid += 1
                    self._tell("invalid", 1)
                    continue
                attempts.extend(made)
            self._closing.wait(BREATH_S)
        return calls, attempts

    def _until_done(self, step: Callable[[Counts], None]) -> bool:
        """Try until it works; False when time is up."""
        while not self._given_up.is_set():
            try:
                step(self._counts())
            except Unwritten as failure:
                self._failures += 1
                self._fail(failure.reason)
                self._given_up.wait(RETRY_S)
            else:
                self._mend()
                return True
        return False

    def _fail(self, reason: str) -> None:
        if not self._failing:
            self._failing = True
            self._log.warning("ledger.failing", reason=reason)

    def _mend(self) -> None:
        if self._failing:
            self._failing = False
            self._log.info("ledger.mended", failures=self._failures)

    def _counts(self) -> Counts:
        """What was dropped is read first: a call counts as ended before it can be dropped."""
        dropped = self._full + self._invalid
        ended = self._tally.ended
        return Counts(self._tally.begun, ended, dropped, self._failures)
