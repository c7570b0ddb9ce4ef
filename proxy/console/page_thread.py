"""Runs the work of pages in a thread, so that it delays no call, no scrape and no reload."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

MAX_JOBS = 16
T = TypeVar("T")


class TooManyPages(Exception):
    """Too many pages wait for the thread."""


class PageThread:
    """One thread, so that pages compete with calls for at most one core.

    At most ``MAX_JOBS`` jobs wait. The job of a request that has ended is not started.
    """

    def __init__(self, name: str) -> None:
        self._executor = ThreadPoolExecutor(1, name)
        self._jobs: list[Future[Any]] = []

    async def run(self, job: Callable[[], T]) -> T:
        """Return the result of a job. Raises ``TooManyPages``."""
        self._jobs = [job for job in self._jobs if not job.done()]
        if len(self._jobs) >= MAX_JOBS:
            raise TooManyPages
        future = self._executor.submit(job)
        self._jobs.append(future)
        return await asyncio.wrap_future(future)

    def close(self) -> None:
        """Refuse new jobs."""
        self._executor.shutdown(wait=False, cancel_futures=True)
