"""The admin listener, on its own port: metrics, liveness and readiness."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Protocol

import orjson
from aiohttp import web

Render = Callable[[], tuple[bytes, str]]
EXPLAIN = "/explain/"
PATHS = ("/metrics", "/healthz", "/readyz", "/explain/{request id}")


class Explanation(Protocol):
    """Why a call was decided as it was, as data and as a text."""

    def data(self) -> dict[str, Any]: ...

    def text(self) -> str: ...


@dataclass(slots=True)
class Readiness:
    """Whether new calls are welcome: policies are in force, listeners are up, no stop is asked."""

    ready: bool = False


def back(
    render: Render, readiness: Readiness, explain: Callable[[str], Explanation | None]
) -> Callable[[web.BaseRequest], Awaitable[web.Response]]:
    """Give the handler of the admin port. Nothing it shows holds a key, a prompt or an answer."""

    async def handle(request: web.BaseRequest) -> web.Response:
        path = request.raw_path.partition("?")[0]
        if request.method not in ("GET", "HEAD"):
            return web.Response(status=405, headers={"allow": "GET, HEAD"})
        if path == "/metrics":
            body, media_type = await asyncio.to_thread(render)
            return web.Response(body=body, headers={"content-type": media_type})
        if path == "/healthz":
            return web.Response(text="alive\n")
        if path == "/readyz":
            ready = readiness.ready
            return web.Response(status=200 if ready else 503, text="ready\n" if ready else "no\n")
        if path.startswith(EXPLAIN):
            told = explain(path.removeprefix(EXPLAIN))
            return _told(told, as_json="json" in request.headers.get("accept", ""))
        return web.Response(status=404, text=f"There is {', '.join(PATHS)}.\n")

    return handle


def _told(told: Explanation | None, *, as_json: bool) -> web.Response:
    """A tree for people, JSON for those that accept it."""
    if told is None:
        return web.Response(status=404, text="No such call is kept: only the last ones are.\n")
    if as_json:
        body = orjson.dumps(told.data(), option=orjson.OPT_INDENT_2)
        return web.Response(body=body, content_type="application/json")
    return web.Response(text=told.text() + "\n")
