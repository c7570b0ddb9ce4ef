"""Sink that writes the rows of calls to a store, in the thread of a spool.

A failed batch is retried without limit. Rows that the store refuses go to a separate file, so that
the rows after them are written.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import ClassVar

from proxy.call.record import Record
from proxy.call.summary import summarize
from proxy.ledger.crashes import CallCounters
from proxy.ledger.jsonl import RefusedRows
from proxy.ledger.rows import CallEntry, Rows, make_rows
from proxy.ledger.store import Counts, LedgerStore, LedgerUnusable, LedgerWriteFailed, RowsRefused
from proxy.ports import EventLog
from proxy.runtime.spool import RETRY_S, Spool, SpoolBounds

CLOSE_TIMEOUT_S = 5.0
MAX_CALLS = 10_000
CALLS_PER_TRANSACTION = 32  # calls per transaction, about 2 ms of work
MAX_WAITING_TO_PAUSE = MAX_CALLS // 10  # with more waiting calls, batches are written whole
GATHER_S = 0.2
IDLE_S = 60.0
PAUSE_S = 0.002
SPOOL_BOUNDS: SpoolBounds[CallEntry] = SpoolBounds(
    "ledger-writer", batch_window_s=GATHER_S, items=MAX_CALLS, idle_s=IDLE_S
)


class Ledger:
    """Writes the summaries of calls in batches. ``count_begin`` and ``emit`` never wait or raise.

    ``run`` is the name of this process. ``on_drop`` gets the reason and the number of calls that
    get no row. ``on_error`` gets each unexpected exception.

    ``on_bills_settled`` gets the names of bills of background responses once their rows are
    written, refused or dropped. It may be called in the writer thread.
    """

    name: ClassVar[str] = "ledger"
    on_bills_settled: Callable[[Sequence[str]], None]

    def __init__(
        self,
        store: LedgerStore,
        refused: RefusedRows,
        counters: CallCounters,
        on_drop: Callable[[str, int], None],
        on_error: Callable[[Exception], None],
        log: EventLog,
    ) -> None:
        self.run = refused.run
        self._seq = 0
        self._store = store
        self._refused = refused
        self._counters = counters
        self._on_error = on_error
        self._log = log
        self._failures = 0
        self._reasons: list[str] = []
        self._is_failing = False
        self._is_settled = False
        self.on_bills_settled = lambda names: None
        self._spool = Spool(
            SPOOL_BOUNDS, self._write, on_drop, on_error, self._prune_batch, self._close_store
        )

    @property
    def dead_runs(self) -> frozenset[str]:
        """Names of the runs that were found dead when the ledger opened."""
        return self._store.dead_runs

    def count_begin(self, record: Record) -> None:
        self._counters.count_begin()

    def count_end(self, record: Record) -> None:
        if record.is_reported:
            self._counters.count_end()
        else:
            self._counters.uncount_begin()

    def emit(self, record: Record) -> None:
        if record.is_reported:
            self._seq += 1
            self.enqueue(CallEntry(self._seq, summarize(record)))

    def enqueue(self, entry: CallEntry) -> None:
        """Queue a call, or drop it if the queue is full."""
        if not self._spool.add(entry):
            self._report_settled_bills([entry])

    def _report_settled_bills(self, entries: Sequence[CallEntry]) -> None:
        for entry in entries:
            try:
                names = [billed.attempt.bill_name for billed in entry.summary.attempts]
                if bills := [name for name in names if name]:
                    self.on_bills_settled(bills)
            except Exception as error:  # noqa: BLE001  # other rows must be written
                self._on_error(error)

    @property
    def pending_count(self) -> int:
        """Calls that are not written yet."""
        return self._spool.pending_count

    def close(self, timeout_s: float = CLOSE_TIMEOUT_S) -> None:
        """Write the waiting calls for at most ``timeout_s`` and count the others as dropped.

        A write in progress may still succeed. The next process counts them too.
        """
        self._spool.close(timeout_s)
        self._counters.close(settled=self._is_settled)

    def _close_store(self) -> None:
        with suppress(RowsRefused):
            self._is_settled = self._write_with_retries(self._store.close)

    def _write(self, batch: list[CallEntry]) -> None:
        """Write slices with pauses, so that the thread does not starve the event loop."""
        must_hurry = self._spool.pending_count > MAX_WAITING_TO_PAUSE
        size = len(batch) if must_hurry else CALLS_PER_TRANSACTION
        for start in range(0, len(batch), size):
            if self._spool.is_past_deadline:
                break
            part = batch[start : start + size]
            rows: list[Rows] = []
            for entry in part:
                try:
                    rows.append(make_rows(entry))
                except Exception as error:  # noqa: BLE001  # other rows must be written
                    self._on_error(error)
            self._write_rows(rows)
            if not self._spool.is_past_deadline:
                self._spool.drop_first("invalid", len(part) - len(rows))
                self._report_settled_bills(part)
            self._spool.pause_unless_closing(PAUSE_S)
        if self._reasons:
            count, reasons = len(self._reasons), sorted(set(self._reasons))
            file = str(self._refused.path)
            self._log.error("ledger.rows_refused", calls=count, reasons=reasons, file=file)
            self._reasons.clear()

    def _write_rows(self, rows: list[Rows]) -> None:
        """Write the rows of calls.

        If the store refuses them, halves are tried until the refused calls are found.
        """
        if not rows or self._spool.is_past_deadline:
            return
        try:
            if self._write_with_retries(partial(self._store.write, rows)):
                self._spool.mark_written(len(rows))
        except Exception as error:  # noqa: BLE001  # other rows must be written
            if len(rows) == 1:
                self._save_refused_rows(rows[0], error)
            else:
                half = len(rows) // 2
                self._write_rows(rows[:half])
                self._write_rows(rows[half:])

    def _save_refused_rows(self, rows: Rows, error: Exception) -> None:
        """Write a refused call to the file of refused rows, or drop it if that is impossible."""
        reason = error.reason if isinstance(error, LedgerWriteFailed) else type(error).__name__

        def add(_: Counts) -> None:
            try:
                self._refused.add(reason, rows)
            except LedgerUnusable as unusable:
                self._log.error("ledger.not_set_aside", reason=unusable.reason)

        if self._write_with_retries(add):
            self._spool.drop_first("refused", 1)
            self._reasons.append(reason)
        if not isinstance(error, RowsRefused):
            self._on_error(error)

    def _prune_batch(self) -> float:
        """Delete some expired rows. Return the seconds until the next deletion."""
        if self._spool.is_closing:
            return IDLE_S
        try:
            has_more = self._store.prune()
        except LedgerWriteFailed as failure:
            has_more = False
            self._log.warning("ledger.unpruned", reason=failure.reason)
        return GATHER_S if has_more else IDLE_S

    def _write_with_retries(self, step: Callable[[Counts], None]) -> bool:
        """Retry a step until it succeeds. Return False at the shutdown deadline.

        Raises errors that a retry cannot fix.
        """
        while not self._spool.is_past_deadline:
            try:
                # The dropped calls first: a call is counted as ended before it can be dropped.
                dropped = self._spool.lost_count
                ended, started = self._counters.ended, self._counters.started
                step(Counts(started, ended, dropped, failures=self._failures))
            except RowsRefused:
                self._failures += 1
                raise
            except LedgerWriteFailed as failure:
                self._failures += 1
                if not self._is_failing:
                    self._is_failing = True
                    self._log.warning("ledger.failing", reason=failure.reason)
                self._spool.pause_within_deadline(RETRY_S)
            else:
                if self._is_failing:
                    self._is_failing = False
                    self._log.info("ledger.mended", failures=self._failures)
                return True
        return False
