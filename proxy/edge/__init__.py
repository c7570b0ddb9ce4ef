"""The wall towards clients: aiohttp's low-level server, one exchange per request.

Nothing of a request is ever echoed into a log or an error page.
"""

from __future__ import annotations

from collections.abc import Callable

from aiohttp import web

from proxy.edge.bodies import BodyShare
from proxy.edge.calls import Calls
from proxy.edge.exchange import HttpExchange
from proxy.edge.request import Bounds
from proxy.edge.server import Handler as Handler
from proxy.edge.server import HttpServer as HttpServer
from proxy.edge.server import WeakParser as WeakParser
from proxy.pipeline import Pipeline


def data_handler(
    pipeline: Pipeline,
    *,
    via: str,
    new_id: Callable[[], str],
    bounds: Bounds,
    calls: Calls,
    on_bug: Callable[[BaseException, str], None],
) -> Handler:
    """Return the handler of the data port: it runs the pipeline on an exchange, and answers 500
    for a bug, which ``on_bug`` gets with the request's id.

    ``via`` is this process's mark against loops.
    """

    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        task = calls.begin()
        share = BodyShare(bounds.bodies)
        try:
            exchange = HttpExchange(request, new_id(), via, bounds, share)
            try:
                await pipeline.run(exchange)
            except Exception as bug:  # noqa: BLE001  # the last net: a bug must not show itself
                on_bug(bug, exchange.request_id)
                return await exchange.answer_bug()
            else:
                return exchange.outcome
        finally:
            share.give_back()
            calls.end(task)
            del task  # it keeps how it was cancelled, which keeps this frame, and the request

    return handle
