"""Context of composition: settings, log, metrics, clocks and ids of the process."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from datetime import UTC, datetime

from structlog.typing import FilteringBoundLogger

from proxy.call.record import Record, TraceIds
from proxy.ledger import Ledger
from proxy.runtime.frozen import frozen
from proxy.settings import Settings
from proxy.telemetry.log_limits import LogLevel
from proxy.telemetry.metrics import Metrics


@frozen
class Context:
    """What the parts of a process are made with.

    ``opened`` closes what is put into it, last things first. ``failed`` gets the name of a writer
    and an exception of its thread. ``ledger`` is None where no rows are kept.
    """

    settings: Settings
    opened: AsyncExitStack
    log: FilteringBoundLogger
    metrics: Metrics
    levels: LogLevel
    failed: Callable[[str, BaseException], None]
    ledger: Ledger | None = None


def new_record() -> Record:
    """Begin the account of a call: its clocks and the ids of its spans."""
    drawn = f"{random.getrandbits(256) | 1:064x}"  # ids, not secrets
    ids = TraceIds(drawn[:32], drawn[32:48], drawn[48:])
    return Record(
        ids=ids, started=time.monotonic(), started_at=datetime.now(UTC), now=time.monotonic
    )


def new_span_id() -> str:
    return f"{random.getrandbits(64) | 1:016x}"  # an id, not a secret


def new_request_id() -> str:
    return f"req_{random.getrandbits(96):024x}"  # an id, not a secret


def since_epoch() -> float:
    """Return the seconds since 1970, as calendars and expiry need them."""
    return time.time_ns() / 1e9
