"""Rows on their way to the store, in the thread of a spool.

A batch that cannot be written is tried again for as long as it takes. A row that the store refuses
is set aside, so that those after it do not wait for what will never be.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial

from proxy.ledger.call_counters import CallCounters
from proxy.ledger.jsonl import RefusedRows
from proxy.ledger.rows import CallEntry, Rows, bills_of, joined, rows_of
from proxy.ledger.store import Counts, LedgerStore, RowsRefused, Unusable, Unwritten
from proxy.ports import EventLog
from proxy.spool import RETRY_S, Spool, SpoolBounds

MAX_CALLS = 10_000
SLICE = 32  # calls that are written together: two milliseconds of work
FEW = MAX_CALLS // 10  # while no more wait there is time to write them so
GATHER_S = 0.2
IDLE_S = 60.0
BREATH_S = 0.002
BOUNDS: SpoolBounds[CallEntry] = SpoolBounds(
    "ledger-writer", gather_s=GATHER_S, items=MAX_CALLS, idle_s=IDLE_S
)


class Writer:
    """Writes entries in batches, one after the other. ``put`` never waits.

    ``dropped`` is told why and how many calls are in no row, ``failed`` of every exception that
    nobody foresaw. ``on_bills`` gets the names of bills whose rows are written, set aside or
    dropped, in the thread or by ``put``.
    """

    on_bills: Callable[[Sequence[str]], None]

    def __init__(
        self,
        store: LedgerStore,
        refused: RefusedRows,
        counters: CallCounters,
        dropped: Callable[[str, int], None],
        failed: Callable[[Exception], None],
        log: EventLog,
    ) -> None:
        self._store = store
        self._refused = refused
        self._counters = counters
        self._failed = failed
        self._log = log
        self._failures = 0
        self._reasons: list[str] = []
        self._failing = False
        self._settled = False
        self.on_bills = lambda names: None
        self._spool = Spool(BOUNDS, self._write, dropped, failed, self._prune, self._finish)

    def put(self, entry: CallEntry) -> None:
        """Have a call written, or drop it where too many wait."""
        if not self._spool.put(entry):
            self._report_bills([entry])

    def _report_bills(self, entries: Sequence[CallEntry]) -> None:
        for entry in entries:
            try:
                if bills := bills_of(entry):
                    self.on_bills(bills)
            except Exception as error:  # noqa: BLE001  # the rows of others must go on
                self._failed(error)

    @property
    def waiting(self) -> int:
        """How many entries are not written yet."""
        return self._spool.waiting

    def close(self, timeout: float) -> None:
        """Write what is waiting, for at most ``timeout`` seconds. What is not written by then is
        counted here, though a write under way may still succeed, and by whoever opens it next."""
        self._spool.close(timeout)
        self._counters.close(settled=self._settled)

    def _finish(self) -> None:
        with suppress(RowsRefused):
            self._settled = self._until_done(self._store.close)

    def _write(self, batch: list[CallEntry]) -> None:
        """Write a few calls at a time, and let others run between: who works on and on in a thread
        has the event loop wait for the interpreter's lock, and for the processor."""
        size = SLICE if self._spool.waiting <= FEW else len(batch)
        for start in range(0, len(batch), size):
            if self._spool.given_up:
                break
            some = batch[start : start + size]
            made = self._built(some)
            self._keep(made)
            if not self._spool.given_up:
                self._spool.drop("invalid", len(some) - len(made))
                self._report_bills(some)
            self._spool.breathe(BREATH_S)
        self._tell_refused()

    def _keep(self, made: list[Rows]) -> None:
        """Write rows. Where the store refuses some, halves of them are tried until those are found
        that it does not take alone."""
        if not made or self._spool.given_up:
            return
        try:
            if self._until_done(partial(self._store.write, joined(made))):
                self._spool.done(len(made))
        except Exception as error:  # noqa: BLE001  # whatever it is, the rows of others must go on
            if len(made) == 1:
                self._set_aside(made[0], error)
            else:
                half = len(made) // 2
                self._keep(made[:half])
                self._keep(made[half:])

    def _set_aside(self, made: Rows, error: Exception) -> None:
        """Keep a refused call in the file of such. If that cannot be written, the call is lost."""
        reason = error.reason if isinstance(error, Unwritten) else type(error).__name__

        def keep(_: Counts) -> None:
            try:
                self._refused.add(reason, made)
            except Unusable as unusable:
                self._log.error("ledger.not_set_aside", reason=unusable.reason)

        if self._until_done(keep):
            self._spool.drop("refused", 1)
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

    def _prune(self) -> float:
        """Let a few old rows go. Return after how many seconds more of them should go."""
        if self._spool.closing:
            return IDLE_S
        try:
            more = self._store.prune()
        except Unwritten as failure:
            more = False
            self._log.warning("ledger.unpruned", reason=failure.reason)
        return GATHER_S if more else IDLE_S

    def _built(self, batch: list[CallEntry]) -> list[Rows]:
        made: list[Rows] = []
        for entry in batch:
            try:
                made.append(rows_of(entry))
            except Exception as error:  # noqa: BLE001  # the rows of others must go on
                self._failed(error)
        return made

    def _until_done(self, step: Callable[[Counts], None]) -> bool:
        """Try until it works; False when time is up. Raise what no other try could mend."""
        while not self._spool.given_up:
            try:
                step(self._counts())
            except RowsRefused:
                self._failures += 1
                raise
            except Unwritten as failure:
                self._failures += 1
                if not self._failing:
                    self._failing = True
                    self._log.warning("ledger.failing", reason=failure.reason)
                self._spool.pause(RETRY_S)
            else:
                if self._failing:
                    self._failing = False
                    self._log.info("ledger.mended", failures=self._failures)
                return True
        return False

    def _counts(self) -> Counts:
        """What was dropped is read first: a call counts as ended before it can be dropped."""
        dropped = self._spool.lost
        ended = self._counters.ended
        return Counts(
            begun=self._counters.begun, ended=ended, dropped=dropped, failures=self._failures
        )
