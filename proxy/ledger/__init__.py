"""Ledger: exactly one row per call and one per attempt."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from proxy.ledger.crashes import CallCounters, Crash, get_counters_folder
from proxy.ledger.jsonl import JsonlStore, RefusedRows, get_refused_rows_path
from proxy.ledger.sqlite import ProcessRun, SqliteStore
from proxy.ledger.store import LedgerStore, LedgerUnusable, LedgerWriteFailed
from proxy.ledger.writer import Ledger
from proxy.ports import EventLog
from proxy.settings import LedgerLocation

DAY_MS = 86_400_000

STORES: Mapping[str, Callable[..., LedgerStore]] = {
    "sqlite": SqliteStore,
    "jsonl": lambda path, run, on_crash, on_new_file: JsonlStore(path, run.name),
}


def open_ledger(
    location: LedgerLocation,
    version: str,
    on_drop: Callable[[str, int], None],
    on_error: Callable[[Exception], None],
    on_replaced: Callable[[], None],
    log: EventLog,
) -> Ledger:
    """Open a ledger and start its thread. A full disk or a lock does not raise ``LedgerUnusable``.

    ``on_drop`` also gets calls that earlier processes lost, with the reason ``crash``.
    ``on_replaced`` is called after a file that was moved away or deleted was created again.
    """

    def on_crash(crash: Crash) -> None:
        on_drop("crash", crash.missing)
        if crash.is_older_copy:
            file = str(location.path)
            log.error("ledger.older_copy", run=crash.run, lost=crash.unwritten_calls, file=file)
            return
        lost, running = crash.unwritten_calls, crash.running_calls
        log.warning(
            "ledger.crashed", run=crash.run, lost=lost, running=running, exact=crash.is_exact
        )

    def on_new_file(log_path: Path | None) -> None:
        on_replaced()
        fields = {"variable": "HEADRACE_LEDGER", "file": str(location.path)}
        log.error("ledger.begun_anew", log_kept_as=str(log_path) if log_path else None, **fields)

    run = ProcessRun(
        name=secrets.token_hex(8),
        version=version,
        folder=get_counters_folder(location.path.parent),
        now_ms=now_ms,
        retention_ms=None if location.keep_days is None else location.keep_days * DAY_MS,
    )
    store = STORES[location.kind](location.path, run, on_crash, on_new_file)
    counters = CallCounters(run.folder if location.kind == "sqlite" else None, run.name)
    try:
        store.open()
    except LedgerUnusable as error:
        counters.close(settled=True)
        problem = f"{location.path} cannot be the ledger: {error.reason}"
        raise LedgerUnusable(f"HEADRACE_LEDGER: {problem}") from None
    except LedgerWriteFailed as error:
        log.warning("ledger.failing", reason=error.reason)
    refused = RefusedRows(get_refused_rows_path(location.path), run.name)
    return Ledger(store, refused, counters, on_drop, on_error, log)


def now_ms() -> int:
    return time.time_ns() // 1_000_000
