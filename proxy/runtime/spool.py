"""Bounded queue with a writer thread.

Producers never wait. A full queue drops new items. Every loss is counted with its reason.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

from proxy.runtime.frozen import frozen

MAX_BYTES = 32 * 1024 * 1024
RETRY_S = 0.25
Item = TypeVar("Item")


@frozen
class SpoolBounds(Generic[Item]):
    """Bounds of a spool.

    - ``batch_window_s``: time in which items are collected for a batch. A half full queue ends it.
      Waking the thread for each item would cost more than the item.
    - ``size``: returns the bytes of an item, None if items are small.
    - ``batch``: maximum items of a batch.
    - ``idle_s``: time until the first idle callback, None for no callback.
    - ``error_reason``: reason of the loss of an item for which the writer raises.
    """

    name: str
    batch_window_s: float
    items: int = 10_000
    bytes: int = MAX_BYTES
    size: Callable[[Item], int] | None = None
    batch: int = 256
    idle_s: float | None = None
    error_reason: str = "error"


class Spool(Generic[Item]):
    """A bounded queue and the thread that writes its items.

    - ``write`` gets the oldest items. It reports progress in order, with ``mark_written`` for
      written and ``drop_first`` for lost items. Unreported items are passed again after
      ``RETRY_S``.
    - ``failed`` gets an exception of ``write``. The items are then passed one by one, and an item
      that raises again is dropped.
    - ``idle`` is called when the queue is empty. It returns the seconds until its next call.
    - ``finish`` is called at the end.
    - ``dropped`` gets losses, in any thread.
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
        # Reentrant: a destructor that runs during ``add`` may log too.
        self._lock = threading.RLock()
        self._wake = threading.Event()
        self._ready = threading.Event()
        self._closing = threading.Event()
        self._given_up = threading.Event()
        self._thread = threading.Thread(target=self._run, name=bounds.name, daemon=True)
        self._thread.start()

    @property
    def pending_count(self) -> int:
        """Number of items that are neither written nor dropped."""
        return len(self._queue)

    @property
    def lost_count(self) -> int:
        """Number of dropped items, except those at shutdown."""
        return self._lost

    @property
    def is_closing(self) -> bool:
        """True after ``close``: no more items arrive."""
        return self._closing.is_set()

    @property
    def is_past_deadline(self) -> bool:
        """True if the shutdown deadline has passed."""
        return self._given_up.is_set()

    def add(self, *items: Item) -> bool:
        """Queue all items, or drop them and return False. Never waits."""
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

    def mark_written(self, count: int) -> None:
        """Remove the first ``count`` items of the batch as written."""
        with self._lock:
            items = [self._queue.popleft() for _ in range(count)]
            if self._bounds.size is not None:
                self._bytes -= sum(map(self._bounds.size, items))
            self._handled += count

    def drop_first(self, reason: str, count: int) -> None:
        """Remove the first ``count`` items of the batch as lost."""
        self.mark_written(count)
        with self._lock:
            self._lost += count
        if count and not self._rest_counted:
            self._tell(reason, count)

    def pause_within_deadline(self, seconds: float) -> None:
        """Sleep, but not beyond the shutdown deadline."""
        self._given_up.wait(seconds)

    def pause_unless_closing(self, seconds: float) -> None:
        """Sleep so that other threads run, but not during shutdown."""
        self._closing.wait(seconds)

    def close(self, within_s: float, grace_s: float = 0.0) -> None:
        """Write remaining items for ``within_s`` seconds, then wait ``grace_s`` for the last write.

        Items that are left count as lost, even if a blocked write succeeds later. Blocks.
        """
        self._closing.set()
        self._ready.set()
        self._wake.set()
        self._thread.join(within_s)
        self._given_up.set()
        self._thread.join(grace_s)
        with self._lock:
            remaining = 0 if self._rest_counted else len(self._queue)
            self._sealed = self._rest_counted = True
        if remaining:
            self._tell("shutdown", remaining)

    def _run(self) -> None:
        while not self._refuse_items_if_done():
            self._wake.wait(self._rest_s)
            self._ready.wait(self._bounds.batch_window_s)
            if not self.is_closing:
                self._wake.clear()
                self._ready.clear()
            while self._queue and not self.is_past_deadline:
                if not self._write_batch():
                    self.pause_within_deadline(RETRY_S)
            self._run_idle_work()
        try:
            if self._finish is not None:
                self._finish()
        except Exception as error:  # noqa: BLE001  # an error must not end the thread silently
            self._failed(error)

    def _refuse_items_if_done(self) -> bool:
        """Refuse new items if all are written or the deadline has passed. Return True if so."""
        with self._lock:
            self._sealed = self.is_past_deadline or (self.is_closing and not self._queue)
            return self._sealed

    def _run_idle_work(self) -> None:
        try:
            if self._idle is not None:
                self._rest_s = self._idle()
        except Exception as error:  # noqa: BLE001  # as above
            self._failed(error)

    def _write_batch(self) -> bool:
        """Pass a batch to the writer. Return True if it has handled all items."""
        batch = [self._queue[n] for n in range(min(len(self._queue), self._bounds.batch))]
        end = self._handled + len(batch)
        try:
            self._write(batch)
        except Exception as error:  # noqa: BLE001  # as above
            self._failed(error)
            self._write_one_by_one(end)
        return self._handled >= end

    def _write_one_by_one(self, end: int) -> None:
        """Pass the rest of a batch one by one, and drop items at which the writer raises."""
        while self._handled < end and not self.is_past_deadline:
            handled_before = self._handled
            try:
                self._write([self._queue[0]])
            except Exception:  # noqa: BLE001  # as above
                if self._handled == handled_before:
                    self.drop_first(self._bounds.error_reason, 1)
            if self._handled == handled_before:
                return


def append_bytes(fd: int, data: bytes) -> tuple[int, OSError | None]:
    """Write bytes to a file. Return the number written and the error, if any. Blocks."""
    written, remaining = 0, memoryview(data)
    try:
        while written < len(data):
            written += os.write(fd, remaining[written:])
    except OSError as error:
        return written, error
    return written, None


def get_file_identity(path: Path) -> tuple[int, int] | None:
    """Return device and inode of a file, None if it does not exist."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    return status.st_dev, status.st_ino


def is_file_at(fd: int, path: Path) -> bool:
    """Return True if ``path`` still leads to the file that is open as ``fd``."""
    status = os.fstat(fd)
    try:
        return get_file_identity(path) == (status.st_dev, status.st_ino)
    except OSError:
        return False
