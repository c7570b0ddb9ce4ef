"""Runs the work of pages in a thread, so that it delays no call, no scrape and no reload."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

MAX_JOBS = 16
T = TypeVar("T")


class TooManyPages(Exception):
    """Too many pages wait for the thread."""


class PageThread:
    """One thread, so that pages compete with calls for at most one core.

    It has at most ``MAX_JOBS`` jobs. A job is not started if its request is canceled before.
    """

    def __init__(self, name: str) -> None:
        self._executor = ThreadPoolExecutor(1, name)
        self._slots = asyncio.Semaphore(MAX_JOBS)

    async def run(self, job: Callable[[], T]) -> T:
        """Return the result of a job. Raises ``TooManyPages``."""
        if self._slots.locked():
            raise TooManyPages
        async with self._slots:
            return await asyncio.get_running_loop().run_in_executor(self._executor, job)

    def close(self) -> None:
        """Refuse new jobs."""
        self._executor.shutdown(wait=False, cancel_futures=True)
