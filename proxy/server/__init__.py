"""The data listener: aiohttp's low-level server with one exchange per request.

Nothing of a request appears in logs or error pages.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from aiohttp import web

from proxy.dialects import no_passthrough
from proxy.pipeline import Pipeline
from proxy.runtime.frozen import frozen
from proxy.server.bodies import BodyShare
from proxy.server.drain import Calls
from proxy.server.exchange import HttpExchange
from proxy.server.keyless import Keyless
from proxy.server.request import Bounds
from proxy.server.server import Handler as Handler
from proxy.server.server import HttpServer as HttpServer
from proxy.server.server import WeakParser as WeakParser

if TYPE_CHECKING:
    from proxy.dialects.responses.sealing import ResponseIds
    from proxy.types.passthrough import PassthroughPaths


@frozen
class DataPort:
    """Shared state of the data listener.

    ``via`` is the id of this process in loop detection. ``keyless`` answers requests that are no
    calls. ``ids`` opens sealed ids of stored responses. ``passed`` returns the active passthrough
    paths.
    """

    via: str
    new_id: Callable[[], str]
    bounds: Bounds
    calls: Calls
    keyless: Keyless = Keyless()  # it is frozen
    ids: ResponseIds | None = None
    passed: Callable[[], PassthroughPaths | None] = no_passthrough


def data_handler(
    pipeline: Pipeline, port: DataPort, on_bug: Callable[[BaseException, str], None]
) -> Handler:
    """Return the request handler. It runs the pipeline and sends a 500 after an internal error.

    ``on_bug`` gets the error and the request id.
    """
    bounds, calls = port.bounds, port.calls

    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        answered = port.keyless.answer(request)
        if answered is not None:
            return answered
        task = calls.begin(request.protocol._task_handler)
        share = BodyShare(bounds.bodies)
        try:
            exchange = HttpExchange(request, port.new_id(), port.via, bounds, share, port.ids)
            exchange.passed = port.passed
            if exchange.origin is not None:
                exchange.shown_to = port.keyless.cross_origin.headers(exchange.origin)
            try:
                with exchange:
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
