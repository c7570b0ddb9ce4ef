"""Finished spans on their way to a collector, in small batches.

What an exporter would only log, a queue that is full or a collector that does not answer, is
counted here. A call's spans are taken all together or not at all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from proxy.spool import Spool, SpoolBounds

MOST_QUEUED = 2048
A_BATCH = 512  # what a collector did not take is lost: no more than this at once
GATHER_S = 1.0  # the longest that spans wait to be sent, but for those under way
CLOSING_S = 3.0
UNDER_WAY_S = 2.0  # the longest that a batch under way then is waited for


class RequestSender(Protocol):
    """Where spans are sent to."""

    def send(self, request: bytes) -> bool:
        """Send a request; True if it was taken. Blocks."""

    def close(self) -> None: ...


class Outbox:
    """Takes spans from one thread and sends them from another; ``take`` never waits.

    ``encode`` makes a request of the spans of a batch. ``dropped`` is told of spans that do not
    arrive, and why: ``queue_full``, ``export_failed`` or ``shutdown``, from either thread;
    ``failed`` of an exception while they are sent.
    """

    def __init__(
        self,
        sender: RequestSender,
        encode: Callable[[Iterable[bytes]], bytes],
        dropped: Callable[[str, int], None],
        failed: Callable[[Exception], None],
        most: int = MOST_QUEUED,
    ) -> None:
        self._sender = sender
        self._encode = encode
        self._failed = failed
        bounds: SpoolBounds[bytes] = SpoolBounds(
            "outbox", gather_s=GATHER_S, items=most, size=len, batch=A_BATCH
        )
        self._spool = Spool(bounds, self._send, dropped, failed, finish=sender.close)

    @property
    def waiting(self) -> int:
        """How many spans were taken and have not gone either way."""
        return self._spool.waiting

    def take(self, spans: Sequence[bytes]) -> None:
        """Take all spans of a call, or drop all of them where there is no room."""
        self._spool.put(*spans)

    def close(self, within_s: float = CLOSING_S) -> None:
        """Send what waits. Batches that have not begun after ``within_s`` seconds are dropped.
        Blocks, but not for a collector that never comes to an end: what it has not taken
        ``UNDER_WAY_S`` later is lost."""
        self._spool.close(within_s, UNDER_WAY_S)

    def _send(self, spans: list[bytes]) -> None:
        """Send spans once: a collector that did not take them may have taken some."""
        taken = False
        try:
            taken = self._sender.send(self._encode(spans))
        except Exception as error:  # noqa: BLE001  # what it sent cannot be known: no second try
            self._failed(error)
        if taken:
            self._spool.done(len(spans))
        else:
            self._spool.drop("export_failed", len(spans))
