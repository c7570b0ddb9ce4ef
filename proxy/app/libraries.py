"""What libraries have to say: structured lines of our own log, where they would write tracebacks.

Their messages may quote a request, so what is told is who said it, which error, and where it is.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from proxy.app.context import Context
from proxy.app.telemetry import where
from proxy.emit.quota import Quota
from proxy.ports import EventLog


class LibraryLog(logging.Handler):
    """Turns warnings and errors of libraries into events; a stranger who causes many, into few."""

    def __init__(self, log: EventLog, now: Callable[[], float]) -> None:
        super().__init__(logging.WARNING)
        self._log = log
        self._quota = Quota(now)

    def emit(self, record: logging.LogRecord) -> None:
        missed = self._quota.take()
        if missed is None:
            return
        error = record.exc_info[1] if record.exc_info else None
        place = where(error) if error is not None else {"at": f"{record.filename}:{record.lineno}"}
        tell = self._log.error if record.levelno >= logging.ERROR else self._log.warning
        tell("library.failed", library=record.name, untold=missed, **place)


def route_library_logs(context: Context) -> None:
    """Send what libraries log to the log of the process, until it ends."""
    handler, root = LibraryLog(context.log, time.monotonic), logging.getLogger()
    root.addHandler(handler)
    context.opened.callback(root.removeHandler, handler)
