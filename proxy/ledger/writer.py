"""The thread that writes rows. The event loop only hands it what it noted; nothing holds it up.

A batch that cannot be written stays and is tried again, while new ones wait in a bounded queue;
what does not fit is counted as dropped. A row that the store refuses is set aside, so that those
after it do not wait for what will never be.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from functools import partial

import structlog

from proxy.ledger.aside import RefusedRows
from proxy.ledger.call_counters import CallCounters
from proxy.ledger.rows import CallEntry, Rows, joined, rows_of
from proxy.ledger.store import Counts, LedgerStore, RowsRefused, Unusable, Unwritten

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

    ``dropped`` is told why and how many calls are in no row, ``failed`` of every exception that
    nobody foresaw: the thread goes on after it.
    """

    def __init__(
        self,
        store: LedgerStore,
        refused: RefusedRows,
        counters: CallCounters,
        dropped: Callable[[str, int], None],
        failed: Callable[[Exception], None],
        log: Log,
    ) -> None:
        self._store = store
        self._refused = refused
        self._counters = counters
        self._tell = dropped
        self._failed = failed
        self._log = log
        self._queue: deque[CallEntry] = deque()
        self._pending = 0
        self._full = 0
        self._unwritable = 0
        self._failures = 0
        self._reasons: list[str] = []
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
        return len(self._queue) + self._pending

    def put(self, entry: CallEntry) -> None:
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
        self._counters.close(settled=self._done)
        if not self._done:
            self._tell("shutdown", self.waiting)

    def _run(self) -> None:
        while not self._given_up.is_set() and (not self._closing.is_set() or self._queue):
            try:
                self._round()
            except Exception as error:  # noqa: BLE001  # no error may end the thread in silence
                self._drop("error", self._pending)
                self._failed(error)
                self._wake.set()  # something may still be waiting
                self._given_up.wait(RETRY_S)
        try:
            self._done = self._until_done(self._store.close)
        except Exception as error:  # noqa: BLE001  # as above
            self._failed(error)

    def _round(self) -> None:
        """Wait for entries, then write all there are."""
        self._wake.wait(self._rest)
        self._closing.wait(GATHER_S)
        if not self._closing.is_set():
            self._wake.clear()
        while self._queue and not self._given_up.is_set():
            batch = [self._queue.popleft() for _ in range(min(len(self._queue), BATCH))]
            self._pending = len(batch)
            self._write(self._built(batch))
            self._tell_refused()
        self._prune()

    def _write(self, made: list[Rows]) -> None:
        """Write rows. Where the store refuses some, halves of them are tried until those are found
        that it does not take alone."""
        if not made or self._given_up.is_set():
            return
        try:
            if self._until_done(partial(self._store.write, joined(made))):
                self._pending -= len(made)
        except Exception as error:  # noqa: BLE001  # whatever it is, the rows of others must go on
            if len(made) == 1:
                self._set_aside(made[0], error)
            else:
                half = len(made) // 2
                self._write(made[:half])
                self._write(made[half:])

    def _set_aside(self, made: Rows, error: Exception) -> None:
        """Keep a refused call in the file of such. If that cannot be written, the call is lost."""
        reason = error.reason if isinstance(error, Unwritten) else type(error).__name__

        def keep(_: Counts) -> None:
            try:
                self._refused.add(reason, made)
            except Unusable as unusable:
                self._log.error("ledger.not_set_aside", reason=unusable.reason)

        if self._until_done(keep):
            self._drop("refused", 1)
            self._reasons.append(reason)
        if not isinstance(error, RowsRefused):
            self._failed(error)

    def _tell_refused(self) -> None:
        """Log once for a batch how many of its calls the store refused."""
        if self._reasons:
            count, reasons = len(self._reasons), sorted(set(self._reasons))
            file = str(self._refused.path)
            self._log.error("ledger.rows_refused", calls=count, reasons=reasons, file=file)
            self._reasons.clear()

    def _drop(self, reason: str, count: int) -> None:
        """Count calls that are taken from the queue and get no row."""
        self._pending -= count
        self._unwritable += count
        if count:
            self._tell(reason, count)

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

    def _built(self, batch: list[CallEntry]) -> list[Rows]:
        """Build rows a few at a time: Python code that runs on and on in a thread would keep the
        event loop waiting for the interpreter's lock."""
        made: list[Rows] = []
        for start in range(0, len(batch), SLICE):
            for entry in batch[start : start + SLICE]:
                try:
                    made.append(rows_of(entry))
                except Exception as error:  # noqa: BLE001  # the rows of others must go on
                    self._drop("invalid", 1)
                    self._failed(error)
            self._closing.wait(BREATH_S)
        return made

    def _until_done(self, step: Callable[[Counts], None]) -> bool:
        """Try until it works; False when time is up. Raise what no other try could mend."""
        while not self._given_up.is_set():
            try:
                step(self._counts())
            except RowsRefused:
                self._failures += 1
                raise
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
        dropped = self._full + self._unwritable
        ended = self._counters.ended
        return Counts(
            begun=self._counters.begun, ended=ended, dropped=dropped, failures=self._failures
        )
