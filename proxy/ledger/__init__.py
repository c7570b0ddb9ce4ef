"""Ledger: exactly one row per call and one per attempt. It never raises and never waits."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from proxy.call.record import Record
from proxy.ledger import call_counters
from proxy.ledger.call_counters import CallCounters
from proxy.ledger.crashes import Crash
from proxy.ledger.jsonl import JsonlStore, RefusedRows, refused_path
from proxy.ledger.rows import entry_of
from proxy.ledger.sqlite import ProcessRun, SqliteStore
from proxy.ledger.store import LedgerStore, Unusable, Unwritten
from proxy.ledger.writer import Writer
from proxy.ports import EventLog
from proxy.settings import LedgerAt

CLOSE_S = 5.0
DAY_MS = 86_400_000
OpenStore = Callable[
    [Path, ProcessRun, Callable[[Crash], None], Callable[[Path | None], None]], LedgerStore
]

STORES: Mapping[str, OpenStore] = {
    "sqlite": SqliteStore,
    "jsonl": lambda path, run, on_crash, on_new_file: JsonlStore(path, run.name),
}


class Ledger:
    """Sink that passes the summaries of calls to the thread of its writer."""

    name: ClassVar[str] = "ledger"

    def __init__(
        self, run: str, store: LedgerStore, writer: Writer, counters: CallCounters
    ) -> None:
        self.run = run
        self._store = store
        self._writer = writer
        self._counters = counters
        self._seq = 0

    @property
    def dead_runs(self) -> frozenset[str]:
        """Names of the runs that were found dead when the ledger opened."""
        return self._store.dead

    def on_bills(self, callback: Callable[[Sequence[str]], None]) -> None:
        """Call ``callback``, also in the ledger's thread, with the names of bills whose rows are
        written or dropped."""
        self._writer.on_bills = callback

    @property
    def waiting(self) -> int:
        """Calls that are not written yet."""
        return self._writer.waiting

    def begin(self, record: Record) -> None:
        self._counters.begin()

    def count_end(self, record: Record) -> None:
        if record.reported:
            self._counters.end()
        else:
            self._counters.forget()

    def end(self, record: Record) -> None:
        if record.reported:
            self._seq += 1
            self._writer.put(entry_of(self._seq, record))

    def close(self) -> None:
        """Write the waiting calls, for at most ``CLOSE_S`` seconds. Blocks."""
        self._writer.close(CLOSE_S)


def open_ledger(
    location: LedgerAt,
    version: str,
    dropped: Callable[[str, int], None],
    failed: Callable[[Exception], None],
    replaced: Callable[[], None],
    log: EventLog,
) -> Ledger:
    """Open a ledger and start its thread. Raises ``Unusable``, but not for a full disk or a lock.

    ``dropped`` counts calls that earlier processes lost as ``crash``. ``replaced`` is called when
    the file was moved away or deleted, and another one was created.
    """

    def on_crash(crash: Crash) -> None:
        dropped("crash", crash.missing)
        if crash.is_older:
            log.error(
                "ledger.older_copy", run=crash.run, lost=crash.unwritten, file=str(location.path)
            )
            return
        log.warning(
            "ledger.crashed",
            run=crash.run,
            lost=crash.unwritten,
            running=crash.running,
            exact=crash.exact,
        )

    def on_new_file(log_path: Path | None) -> None:
        replaced()
        fields = {"variable": "HEADRACE_LEDGER", "file": str(location.path)}
        log.error("ledger.begun_anew", log_kept_as=str(log_path) if log_path else None, **fields)

    keep_ms = None if location.keep_days is None else location.keep_days * DAY_MS
    run = ProcessRun(
        name=secrets.token_hex(8),
        version=version,
        folder=call_counters.folder(location.path.parent),
        now_ms=now_ms,
        keep_ms=keep_ms,
    )
    store = STORES[location.kind](location.path, run, on_crash, on_new_file)
    counters = CallCounters(run.folder if location.kind == "sqlite" else None, run.name)
    try:
        store.open()
    except Unusable as error:
        counters.close(settled=True)
        raise Unusable(
            f"HEADRACE_LEDGER: {location.path} cannot be the ledger: {error.reason}"
        ) from None
    except Unwritten as error:
        log.warning("ledger.failing", reason=error.reason)
    refused = RefusedRows(refused_path(location.path), run.name)
    writer = Writer(store, refused, counters, dropped, failed, log)
    return Ledger(run.name, store, writer, counters)


def now_ms() -> int:
    return time.time_ns() // 1_000_000
