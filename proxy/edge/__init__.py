"""The wall towards clients: aiohttp's low-level server, one exchange per request.

Nothing of a request is ever echoed into a log or an error page.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import orjson
from aiohttp import http_parser, web

from proxy.edge.calls import Calls
from proxy.edge.exchange import HttpExchange
from proxy.edge.request import Bounds
from proxy.errors import ClientGone
from proxy.pipeline import Pipeline

HEAD_S = 10.0
Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


class QuietHandler(web.RequestHandler):
    """aiohttp's connection handler, with two differences.

    A request that is no HTTP gets an error that does not show its raw bytes, credentials among
    them, and no log line. A connection on which no request begins in time is closed.
    """

    _head_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._head_timer = self._loop.call_later(HEAD_S, self._expect_request)

    def connection_lost(self, exc: BaseException | None) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
        super().connection_lost(exc)

    def _expect_request(self) -> None:
        """Later requests on the connection are bounded by the keep-alive time."""
        if self._request_count == 0 and self.transport is not None:
            self.transport.abort()

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        if request.writer.output_size > 0:
            raise ConnectionError("the answer has begun; only the connection can be ended")
        said = "The request is not valid HTTP." if status < 500 else "Something went wrong."
        error = {"message": said, "type": "invalid_request_error", "param": None, "code": None}
        body = orjson.dumps({"error": error})
        response = web.Response(status=status, body=body, content_type="application/json")
        response.force_close()
        return response


class WeakParser(RuntimeError):
    """aiohttp runs on its parser in Python, which has had holes that the one in C has not."""


class Server(web.Server):
    """A server of ``QuietHandler`` connections whose handlers end when their client leaves.

    Raises ``WeakParser`` where aiohttp's C parser is not there.
    """

    def __init__(self, handler: Handler, **options: Any) -> None:
        if http_parser.HttpRequestParser is http_parser.HttpRequestParserPy:
            raise WeakParser("aiohttp's C parser is missing; its Python one is not safe to serve")
        super().__init__(handler, handler_cancellation=True, **options)

    def __call__(self) -> web.RequestHandler:
        return QuietHandler(self, loop=self._loop, **self._kwargs)


def front(
    pipeline: Pipeline,
    *,
    via: str,
    new_id: Callable[[], str],
    bounds: Bounds,
    calls: Calls,
    on_bug: Callable[[BaseException, str], None],
) -> Handler:
    """Give the handler of the data port: an exchange, the pipeline, and a net for bugs.

    ``via`` is this process's mark against loops.
    """

    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        exchange = HttpExchange(request, new_id(), via, bounds)
        with calls.under_way():
            try:
                await pipeline.run(exchange)
            except Exception as bug:  # noqa: BLE001  # the last net: a bug must not show itself
                on_bug(bug, exchange.request_id)
                return await exchange.apologise()
        return exchange.response or web.Response(status=ClientGone.status)

    return handle
