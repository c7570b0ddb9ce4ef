"""The data listener: its handler, requests without a key, and its graceful shutdown.

aiohttp's low-level server has one exchange per request. Nothing of a request appears in logs or
error pages. After a signal to stop, responses carry ``Connection: close``. During a grace period
new calls are still accepted. Then the listener closes, idle connections are closed, and calls in
progress continue until the deadline.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import orjson
from aiohttp import web

from proxy.dialects import get_no_passthrough_paths
from proxy.pipeline import Pipeline
from proxy.runtime.frozen import frozen
from proxy.server.exchange import HttpExchange
from proxy.server.request import BodyShare, Bounds, parse_raw_path
from proxy.server.server import Handler as Handler
from proxy.server.server import HttpServer as HttpServer
from proxy.server.server import InsecureParser as InsecureParser

if TYPE_CHECKING:
    from proxy.dialects.responses.sealing import IdSealer
    from proxy.types.passthrough import PassthroughPaths


CANCEL_WAIT_S = 2.0
POLL_INTERVAL_S = 0.05
Stop = Callable[[], Awaitable[None]]


class Calls:
    """Tasks that serve calls in progress."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()
        self._none: asyncio.Event | None = None  # created by the first waiter for the last call

    def add_task(self, task: asyncio.Task[Any] | None) -> asyncio.Task[Any] | None:
        """Register the task of a connection as serving a call, and return it.

        The task is a parameter, because asking the loop for it costs a system call per request.
        """
        if task is not None:
            self._tasks.add(task)
        return task

    def remove_task(self, task: asyncio.Task[Any] | None) -> None:
        if task is not None:
            self._tasks.discard(task)
        if self._none is not None and not self._tasks:
            self._none.set()

    def has_active(self) -> bool:
        return bool(self._tasks)

    async def drain(self, seconds: float) -> None:
        """Wait until all calls end, for at most ``seconds``. Then cancel them."""
        await self._wait_until_idle(seconds)
        for task in tuple(self._tasks):
            task.cancel()
        await self._wait_until_idle(CANCEL_WAIT_S)

    async def _wait_until_idle(self, seconds: float) -> None:
        if self._tasks:
            self._none = no_calls = asyncio.Event()
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await no_calls.wait()


@frozen
class Drain:
    """Graceful shutdown within ``limit_seconds``. Accepts new calls for ``grace_seconds``."""

    limit_seconds: float
    grace_seconds: float

    async def run(self, server: HttpServer, calls: Calls, stop_listening: Stop) -> None:
        """Wait until all connections are closed, or cancel the remaining calls at the deadline."""
        now = asyncio.get_running_loop().time
        started_at, listening = now(), True
        server.draining = True
        while server.connections and now() < started_at + self.limit_seconds:
            if now() >= started_at + self.grace_seconds:
                if listening:
                    await stop_listening()
                    listening = False
                server.close_idle_connections(now() - self.grace_seconds)
            await asyncio.sleep(POLL_INTERVAL_S)
        if listening:
            await stop_listening()
        await calls.drain(max(0.0, started_at + self.limit_seconds - now()))


HEALTH_PATH = "/health"
_HEADERS = {"cache-control": "no-store", "server": "headrace"}
ANY_ORIGIN = "*"
PREFLIGHT_MAX_AGE_S = 600  # time for which a browser caches a preflight response
HEADER_NAMES = re.compile(r"[A-Za-z0-9_-]{1,64}(?:, ?[A-Za-z0-9_-]{1,64}){0,63}")


@frozen
class CorsHeaders:
    """CORS headers. ``origins`` returns the origins that the active policy allows."""

    origins: Callable[[], frozenset[str]] = frozenset

    def make_response_headers(self, origin: str) -> dict[str, str]:
        """Return the CORS headers of a response, none if the origin is not allowed."""
        allowed = self._make_origin_headers(origin)
        return allowed and {**allowed, "access-control-expose-headers": "*"}

    def make_preflight_headers(self, request_headers: Mapping[str, str]) -> dict[str, str]:
        """Return the headers of a preflight response, none if the origin is not allowed."""
        allowed = self._make_origin_headers(request_headers.get("origin", ""))
        if not allowed:
            return {}
        names = request_headers.get("access-control-request-headers", "")
        return {
            **allowed,
            "access-control-allow-methods": "*",
            **({"access-control-allow-headers": names} if HEADER_NAMES.fullmatch(names) else {}),
            "access-control-max-age": str(PREFLIGHT_MAX_AGE_S),
            "vary": "origin, access-control-request-headers, access-control-request-method",
        }

    def _make_origin_headers(self, origin: str) -> dict[str, str]:
        origins = self.origins()
        if ANY_ORIGIN in origins:
            return {"access-control-allow-origin": ANY_ORIGIN}
        if origin not in origins:
            return {}
        return {"access-control-allow-origin": origin, "vary": "origin"}


@frozen
class PublicEndpoints:
    """Answers requests that need no key: health checks and CORS preflights.

    ``is_ready`` is the state of ``/readyz``. Other origins get no preflight: their path is unknown.
    """

    is_ready: Callable[[], bool] = lambda: True
    cross_origin: CorsHeaders = CorsHeaders()  # it is frozen

    def respond(self, request: web.BaseRequest) -> web.Response | None:
        """Return the response to a health check or preflight, None for any other request."""
        headers = request.headers
        if request.method == "OPTIONS" and "access-control-request-method" in headers:
            allowed = self.cross_origin.make_preflight_headers(headers)
            return web.Response(status=204, headers={**_HEADERS, **allowed}) if allowed else None
        if HEALTH_PATH not in request.raw_path or parse_raw_path(request.raw_path) != HEALTH_PATH:
            return None
        if request.method not in ("GET", "HEAD"):
            return _make_status_response(405, "Use GET or HEAD.", allow="GET, HEAD")
        status, word = (200, "ok") if self.is_ready() else (503, "not ready")
        return _make_status_response(status, word)


def _make_status_response(status: int, word: str, **headers: str) -> web.Response:
    body = orjson.dumps({"status": word})
    response_headers = {**_HEADERS, "content-type": "application/json", **headers}
    return web.Response(status=status, body=body, headers=response_headers)


@frozen
class ListenerState:
    """Shared state of all requests of the data listener.

    - ``via``: id of this process in loop detection.
    - ``public``: serves requests without a key.
    - ``ids``: decrypts sealed ids of stored responses.
    - ``get_passthrough_paths``: returns the passthrough paths of the active policy.
    """

    via: str
    new_id: Callable[[], str]
    bounds: Bounds
    calls: Calls
    public: PublicEndpoints = PublicEndpoints()  # it is frozen
    ids: IdSealer | None = None
    get_passthrough_paths: Callable[[], PassthroughPaths | None] = get_no_passthrough_paths


def make_data_handler(
    pipeline: Pipeline, state: ListenerState, on_bug: Callable[[BaseException, str], None]
) -> Handler:
    """Return the request handler. It runs the pipeline and sends a 500 after an internal error.

    ``on_bug`` gets the error and the request id.
    """
    calls = state.calls

    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        response = state.public.respond(request)
        if response is not None:
            return response
        task = calls.add_task(request.protocol._task_handler)
        share = BodyShare(state.bounds.bodies)
        try:
            exchange = HttpExchange(request, state, share)
            try:
                await pipeline.run(exchange)
            except Exception as bug:  # noqa: BLE001  # a bug must not reveal details to the client
                on_bug(bug, exchange.request_id)
                return await exchange.send_internal_error()
            else:
                return exchange.aiohttp_response
            finally:
                exchange.stop_keepalive()
        finally:
            share.release()
            calls.remove_task(task)
            # The task refers to its cancellation, which refers to this frame and the request.
            del task

    return handle
