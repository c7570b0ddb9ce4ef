"""Ledger stores whose files are closed when a test ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Protocol

import pytest

from proxy.ledger.crashes import CallCounters, Crash
from proxy.ledger.sqlite import ProcessRun, SqliteStore

Dying = Callable[[SqliteStore], SqliteStore]


class Stores(Protocol):
    """Creates the store of a separate process and its call counters."""

    def __call__(
        self, path: Path, crashes: list[Crash] | None = None, logs: list[Path | None] | None = None
    ) -> tuple[SqliteStore, CallCounters]: ...


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger"


@pytest.fixture
def dying() -> Iterator[Dying]:
    """Register a store that ends like a killed process: its file is closed without counts."""
    stores: list[SqliteStore] = []

    def take(store: SqliteStore) -> SqliteStore:
        stores.append(store)
        return store

    yield take
    for store in stores:
        store._disconnect()


@pytest.fixture
def store(dying: Dying) -> Stores:
    numbers = count()

    def make(
        path: Path, crashes: list[Crash] | None = None, logs: list[Path | None] | None = None
    ) -> tuple[SqliteStore, CallCounters]:
        run = ProcessRun(f"{next(numbers):016x}", "1", path.parent, lambda: 1_700_000_000_000)
        found_crashes = [] if crashes is None else crashes
        begun_anew = [] if logs is None else logs
        process_store = dying(SqliteStore(path, run, found_crashes.append, begun_anew.append))
        return process_store, CallCounters(path.parent, run.name)

    return make
