"""Settings, log, metrics and clock of the process."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AsyncExitStack

from structlog.typing import FilteringBoundLogger

from proxy.ledger.writer import Ledger
from proxy.runtime.frozen import frozen
from proxy.settings import Settings
from proxy.telemetry.log import LogLevel
from proxy.telemetry.metrics import Metrics


@frozen
class Context:
    """Shared objects from which the parts of a process are constructed.

    ``opened`` closes its contents in reverse order. ``on_writer_error`` gets the name of a writer
    and an exception of its thread. ``ledger`` is None if no rows are written.
    """

    settings: Settings
    opened: AsyncExitStack
    log: FilteringBoundLogger
    metrics: Metrics
    levels: LogLevel
    on_writer_error: Callable[[str, BaseException], None]
    ledger: Ledger | None = None


def unix_time_s() -> float:
    """Return seconds since 1970."""
    return time.time_ns() / 1e9
