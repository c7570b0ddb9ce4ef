"""The admin listener, on its own port: metrics, liveness and readiness."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from aiohttp import web

Render = Callable[[], tuple[bytes, str]]


@dataclass(slots=True)
class Readiness:
    """Whether new calls are welcome: policies are in force, listeners are up, no stop is asked."""

    ready: bool = False


def back(
    render: Render, readiness: Readiness
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
        return web.Response(status=404, text="There is /metrics, /healthz and /readyz.\n")

    return handle
