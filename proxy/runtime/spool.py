"""Items on their way to a writer: a bounded queue, and a thread of its own that empties it.

Whoever puts items there never waits. Where the queue is full, the newest are dropped: what waits
keeps its order and its place. Every loss is counted, with its reason.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Generic, TypeVar

from proxy.runtime.frozen import frozen

MAX_BYTES = 32 * 1024 * 1024
RETRY_S = 0.25
Item = TypeVar("Item")


@frozen
class SpoolBounds(Generic[Item]):
    """How much may wait, and how it is handed over: a batch at a time, of what came within
    ``gather_s``, or earlier where half of the room is taken. To wake the thread for each item would
    cost the event loop more than the item itself. ``size`` returns the bytes of an item, where
    there may be large ones. ``idle_s`` is the longest that the thread sleeps at first, None for
    ever. ``unwritable`` is why an item is dropped at which the writer raises an exception."""

    name: str
    gather_s: float
    items: int = 10_000
    bytes: int = MAX_BYTES
    size: Callable[[Item], int] | None = None
    batch: int = 256
    idle_s: float | None = None
    unwritable: str = "error"


class Spool(Generic[Item]):
    """A queue, and the thread that owns its end.

    ``write`` is given those that have waited longest, and says of them, in their order, how many
    are ``done`` or must be lost, by ``drop``. What it says nothing of stays the first, and is given
    again after ``RETRY_S``. Where it raises, ``failed`` is told, and the items are given one by
    one: the one that it raises at again is dropped. ``idle`` is called when all is written, and
    returns the seconds after which it wants to be called again; ``finish`` at the end. ``dropped``
    is told why and how many items are lost, from either thread.
    """

    def __init__(
        self,
        bounds: SpoolBounds[Item],
        write: Callable[[list[Item]], None],
        dropped: Callable[[str, int], None],
        failed: Callable[[Exception], None],
        idle: Callable[[], float] | None = None,
        finish: Callable[[], None] | None = None,
    ) -> None:
        """Start the thread; ``close`` it."""
        self._bounds = bounds
        self._write = write
        self._tell = dropped
        self._failed = failed
        self._idle = idle
        self._finish = finish
        self._queue: deque[Item] = deque()
        self._bytes = 0
        self._handled = 0
        self._lost = 0
        self._sealed = False
        self._rest_counted = False
        self._rest_s = bounds.idle_s
        # Reentrant: what the interpreter collects within ``put`` may itself be logged by it.
        self._lock = threading.RLock()
        self._wake = threading.Event()
        self._ready = threading.Event()
        self._closing = threading.Event()
        self._given_up = threading.Event()
        self._thread = threading.Thread(target=self._run, name=bounds.name, daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> int:
        """How many items are neither done nor dropped."""
        return len(self._queue)

    @property
    def lost(self) -> int:
        """How many items were dropped, but for those of a stop."""
        return self._lost

    @property
    def closing(self) -> bool:
        """True if nothing more will come, and what waits should go."""
        return self._closing.is_set()

    @property
    def given_up(self) -> bool:
        """True if the time of the stop is over."""
        return self._given_up.is_set()

    def put(self, *items: Item) -> bool:
        """Take all of these items, or drop them and return False. Never waits."""
        bounds, queue = self._bounds, self._queue
        size = 0 if bounds.size is None else sum(map(bounds.size, items))
        reason = None
        with self._lock:
            waiting = len(queue) + len(items)
            if self._sealed:
                reason = "closed"
            elif waiting > bounds.items or self._bytes + size > bounds.bytes:
                reason = "queue_full"
            else:
                queue += items
                self._bytes += size
            if reason is not None:
                self._lost += len(items)
        if reason is not None:
            self._tell(reason, len(items))
            return False
        if not self._wake.is_set():
            self._wake.set()
        if 2 * waiting >= bounds.items and not self._ready.is_set():
            self._ready.set()
        return True

    def _size(self, items: Iterable[Item]) -> int:
        return sum(map(self._bounds.size, items)) if self._bounds.size is not None else 0

    def done(self, count: int) -> None:
        """Let go of the first of the batch, of which the writer has taken care."""
        with self._lock:
            self._bytes -= self._size([self._queue.popleft() for _ in range(count)])
            self._handled += count

    def drop(self, reason: str, count: int) -> None:
        """Let go of the first of the batch as lost."""
        self.done(count)
        with self._lock:
            self._lost += count
        if count and not self._rest_counted:
            self._tell(reason, count)

    def pause(self, seconds: float) -> None:
        """Wait, but no longer than there is time in a stop."""
        self._given_up.wait(seconds)

    def breathe(self, seconds: float) -> None:
        """Let other threads run, but not in a stop."""
        self._closing.wait(seconds)

    def close(self, within_s: float, grace_s: float = 0.0) -> None:
        """Have what waits written, for at most ``within_s`` seconds, and what is under way then for
        ``grace_s`` more. The rest is counted as lost, though a write that still goes on may yet
        succeed. Blocks."""
        self._closing.set()
        self._ready.set()
        self._wake.set()
        self._thread.join(within_s)
        self._given_up.set()
        self._thread.join(grace_s)
        with self._lock:
            left = 0 if self._rest_counted else len(self._queue)
            self._sealed = self._rest_counted = True
        if left:
            self._tell("shutdown", left)

    def _run(self) -> None:
        while not self._is_over():
            self._wake.wait(self._rest_s)
            self._ready.wait(self._bounds.gather_s)
            if not self.closing:
                self._wake.clear()
                self._ready.clear()
            while self._queue and not self.given_up:
                if not self._hand_over():
                    self.pause(RETRY_S)
            self._after()
        try:
            if self._finish is not None:
                self._finish()
        except Exception as error:  # noqa: BLE001  # no error may end the thread in silence
            self._failed(error)

    def _is_over(self) -> bool:
        """True, and nothing more is taken, if all is written at the end or time is up."""
        with self._lock:
            self._sealed = self.given_up or (self.closing and not self._queue)
            return self._sealed

    def _after(self) -> None:
        try:
            if self._idle is not None:
                self._rest_s = self._idle()
        except Exception as error:  # noqa: BLE001  # as above
            self._failed(error)

    def _hand_over(self) -> bool:
        """Pass a batch to the writer. True if it is done with all of it."""
        batch = [self._queue[n] for n in range(min(len(self._queue), self._bounds.batch))]
        until = self._handled + len(batch)
        try:
            self._write(batch)
        except Exception as error:  # noqa: BLE001  # as above
            self._failed(error)
            self._one_by_one(until)
        return self._handled >= until

    def _one_by_one(self, until: int) -> None:
        """Pass what is left of a batch one by one, and drop what the writer raises at: the others
        must go on."""
        while self._handled < until and not self.given_up:
            before = self._handled
            try:
                self._write([self._queue[0]])
            except Exception:  # noqa: BLE001  # as above
                if self._handled == before:
                    self.drop(self._bounds.unwritable, 1)
            if self._handled == before:
                return


def append(fd: int, data: bytes) -> tuple[int, OSError | None]:
    """Write bytes. Return how many of them were taken, and why not all were. Blocks."""
    taken, rest = 0, memoryview(data)
    try:
        while taken < len(data):
            taken += os.write(fd, rest[taken:])
    except OSError as error:
        return taken, error
    return taken, None


def is_in_place(fd: int, path: Path) -> bool:
    """True if an open file is still there under its name."""
    about = os.fstat(fd)
    try:
        there = path.stat()
    except OSError:
        return False
    return (about.st_dev, about.st_ino) == (there.st_dev, there.st_ino)
