"""Settings, log, metrics, clocks and ids of the process."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from datetime import UTC, datetime

from structlog.typing import FilteringBoundLogger

from proxy.call.record import Record, TraceIds
from proxy.ledger.writer import Ledger
from proxy.runtime.frozen import frozen
from proxy.settings import Settings
from proxy.telemetry.log import LogLevel
from proxy.telemetry.metrics import Metrics


@frozen
class Context:
    """Shared objects from which the parts of a process are constructed.

    ``opened`` closes its contents in reverse order. ``failed`` gets the name of a writer and an
    exception of its thread. ``ledger`` is None if no rows are written.
    """

    settings: Settings
    opened: AsyncExitStack
    log: FilteringBoundLogger
    metrics: Metrics
    levels: LogLevel
    failed: Callable[[str, BaseException], None]
    ledger: Ledger | None = None


def new_record() -> Record:
    """Start the record of a call, with its clocks and span ids."""
    drawn = f"{random.getrandbits(256) | 1:064x}"  # ids, not secrets
    ids = TraceIds(drawn[:32], drawn[32:48], drawn[48:])
    return Record(ids, time.monotonic(), datetime.now(UTC), now=time.monotonic)


def new_span_id() -> str:
    return f"{random.getrandbits(64) | 1:016x}"  # an id, not a secret


def new_request_id() -> str:
    return f"req_{random.getrandbits(96):024x}"  # an id, not a secret


def since_epoch() -> float:
    """Return seconds since 1970."""
    return time.time_ns() / 1e9
