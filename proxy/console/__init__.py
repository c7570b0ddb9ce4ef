"""Data of the console: recent calls, time series and the state of upstreams, limits and policies.

Everything is read from what the process records anyway, when a page asks for it. The routes and
files of the console are in ``proxy/server/console.py``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import orjson
from pydantic import BaseModel, ValidationError

from proxy.telemetry.lines import redact_line

MAX_JOBS = 16
Data = dict[str, Any]
"""An object of the JSON API."""
Query = TypeVar("Query", bound=BaseModel)
T = TypeVar("T")


class InvalidQuery(ValueError):
    """A parameter of a page is invalid. The message names it."""


class TooManyPages(Exception):
    """Too many pages wait for the thread."""


class PageThread(ThreadPoolExecutor):
    """One thread for at most ``MAX_JOBS`` jobs, so that pages delay no call, scrape or reload.

    A job is not started if its request has ended.
    """

    def __init__(self, name: str) -> None:
        super().__init__(1, name)
        self._jobs = asyncio.Semaphore(MAX_JOBS)

    async def run(self, job: Callable[..., T], *args: Any) -> T:
        """Return the result of a job. Raises ``TooManyPages``."""
        if self._jobs.locked():
            raise TooManyPages
        async with self._jobs:
            return await asyncio.get_running_loop().run_in_executor(self, job, *args)

    async def render(self, build: Callable[..., Data], *args: Any) -> bytes:
        """Build a page in the thread and return it as JSON. Raises ``TooManyPages``."""
        return await self.run(lambda: to_redacted_json(build(*args)))


def parse_query(model: type[Query], data: Any) -> Query:
    """Validate the parameters or the form of a page. Raises ``InvalidQuery``."""
    try:
        return model.model_validate(data)
    except ValidationError as error:
        problem = error.errors(include_input=False, include_url=False)[0]
        field = ".".join(map(str, problem["loc"])) or "The request"
        raise InvalidQuery(f"{field}: {problem['msg']}.") from None


def to_redacted_json(value: Any) -> bytes:
    """Return JSON without credentials of known shapes."""
    return redact_line(orjson.dumps(value, default=str))
