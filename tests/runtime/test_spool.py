"""Spool: bounded and ordered. Each item is written, dropped with a reason, or waiting."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from typing import NoReturn

from proxy.runtime.spool import Spool, SpoolBounds

SMALL: SpoolBounds[bytes] = SpoolBounds(
    "small", batch_window_s=0.0, items=10, bytes=100, size=len, batch=4
)


class Desk:
    """A writer that may block, and raises for some items."""

    def __init__(self, breaks_at: bytes = b"") -> None:
        self.breaks_at = breaks_at
        self.written: list[bytes] = []
        self.batches: list[int] = []
        self.losses: Counter[str] = Counter()
        self.failures: list[Exception] = []
        self.asked = threading.Event()
        self.open = threading.Event()
        self.spool: Spool[bytes]

    def write(self, batch: list[bytes]) -> None:
        self.asked.set()
        self.open.wait(10)
        self.batches.append(len(batch))
        if self.breaks_at and self.breaks_at in batch:
            raise RecursionError
        self.written += batch
        self.spool.mark_written(len(batch))

    def dropped(self, reason: str, count: int) -> None:
        self.losses[reason] += count


def spooled(
    desk: Desk,
    bounds: SpoolBounds[bytes] = SMALL,
    idle: Callable[[], float] | None = None,
    finish: Callable[[], None] | None = None,
) -> Spool[bytes]:
    spool = Spool(bounds, desk.write, desk.dropped, desk.failures.append, idle, finish)
    desk.spool = spool
    return spool


def items(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


def test_items_are_written_in_order_and_in_batches() -> None:
    desk = Desk()
    spool = spooled(desk)
    for item in items(10):
        spool.add(item)
    desk.open.set()
    spool.close(10)

    assert desk.written == items(10)
    assert max(desk.batches) <= 4
    assert (spool.pending_count, spool.lost_count, desk.losses) == (0, 0, Counter())


def test_items_beyond_the_bound_are_dropped_together() -> None:
    desk = Desk()
    spool = spooled(desk)
    spool.add(*items(8))
    spool.add(b"a", b"b", b"c")
    spool.add(b"d", b"e")
    desk.open.set()
    spool.close(10)

    assert desk.written == [*items(8), b"d", b"e"]
    assert (desk.losses, spool.lost_count) == ({"queue_full": 3}, 3)


def test_waiting_items_are_bounded_by_bytes() -> None:
    desk = Desk()
    spool = spooled(desk)
    spool.add(b"x" * 60)
    spool.add(b"y" * 41)
    spool.add(b"z" * 40)
    assert desk.losses == {"queue_full": 1}
    desk.open.set()
    spool.close(10)

    assert [len(item) for item in desk.written] == [60, 40]
    assert spool._bytes == 0


def test_item_that_fails_is_dropped_and_others_written() -> None:
    desk = Desk(breaks_at=b"1")
    spool = spooled(desk)
    spool.add(*items(4))
    desk.open.set()
    spool.close(10)

    assert desk.written == [b"0", b"2", b"3"]
    assert desk.losses == {"error": 1}
    assert [type(error) for error in desk.failures] == [RecursionError]


def test_unconfirmed_items_are_written_again() -> None:
    values: list[list[bytes]] = []
    event = threading.Event()

    def write(batch: list[bytes]) -> None:
        values.append(batch)
        if len(values) == 1:
            spool.mark_written(1)
            return
        spool.mark_written(len(batch))
        event.set()

    desk = Desk()
    spool: Spool[bytes] = Spool(SMALL, write, desk.dropped, desk.failures.append)
    spool.add(b"a", b"b", b"c")
    assert event.wait(10)
    spool.close(10)

    assert values == [[b"a", b"b", b"c"], [b"b", b"c"]]
    assert desk.losses == {}


def test_close_waits_for_the_batch_and_counts_the_rest() -> None:
    desk = Desk()
    spool = spooled(desk)
    spool.add(*items(10))
    assert desk.asked.wait(10)
    timer = threading.Timer(0.2, desk.open.set)
    timer.start()
    spool.close(0.01, grace_s=10)
    spool.close(0.01)

    assert desk.written == items(4)
    assert desk.losses == {"shutdown": 6}


def test_items_lost_after_close_are_not_counted_twice() -> None:
    desk = Desk(breaks_at=b"0")
    spool = spooled(desk)
    spool.add(*items(3))
    assert desk.asked.wait(10)
    spool.close(0.01)
    desk.open.set()
    spool._thread.join(10)
    spool.add(b"late")

    assert desk.losses == {"shutdown": 3, "closed": 1}


def test_exception_while_idle_is_reported() -> None:
    def broken() -> NoReturn:
        raise AttributeError

    desk = Desk()
    desk.open.set()
    spool = spooled(desk, idle=broken, finish=broken)
    spool.add(b"a")
    spool.close(10)

    assert desk.written == [b"a"]
    assert [type(error) for error in desk.failures] == [AttributeError] * 2


def test_idle_callback_runs_at_its_time() -> None:
    calls: list[int] = []
    thrice = threading.Event()

    def idle() -> float:
        calls.append(len(calls))
        if len(calls) == 3:
            thrice.set()
        return 0.001

    desk = Desk()
    bounds: SpoolBounds[bytes] = SpoolBounds("idle", batch_window_s=0.0, idle_s=0.001)
    spool = spooled(desk, bounds, idle=idle)
    assert thrice.wait(10)
    spool.close(10)
