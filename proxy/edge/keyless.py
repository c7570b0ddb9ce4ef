"""What the data port answers without a key: whether calls are welcome, and which pages may make
them. Such a request is no call: no record, line or metric tells of it, and its answer says nothing
of what is inside.
"""

from __future__ import annotations

from collections.abc import Callable

import orjson
from aiohttp import web

from proxy.edge.cross_origin import CrossOrigin
from proxy.edge.request import path_of
from proxy.frozen import frozen

HEALTH = "/health"
_HEADERS = {"cache-control": "no-store", "server": "headrace"}


@frozen
class Keyless:
    """``is_ready`` says whether new calls are welcome, as the admin port's ``/readyz`` does, and
    ``cross_origin`` which pages may make them. A page that may not gets no answer here: it is as
    if it had asked for a route that is not there, and is told of as that."""

    is_ready: Callable[[], bool] = lambda: True
    cross_origin: CrossOrigin = CrossOrigin()  # it is frozen

    def answer(self, request: web.BaseRequest) -> web.Response | None:
        """Return the answer to a request that needs no key; None for any other."""
        headers = request.headers
        if request.method == "OPTIONS" and "access-control-request-method" in headers:
            allowed = self.cross_origin.preflight(headers)
            return web.Response(status=204, headers={**_HEADERS, **allowed}) if allowed else None
        if path_of(request.raw_path) != HEALTH:
            return None
        if request.method not in ("GET", "HEAD"):
            return _response(405, "method not allowed", allow="GET, HEAD")
        return _response(200, "ok") if self.is_ready() else _response(503, "not ready")


def _response(status: int, word: str, **headers: str) -> web.Response:
    body = orjson.dumps({"status": word})
    shown = {**_HEADERS, "content-type": "application/json", **headers}
    return web.Response(status=status, body=body, headers=shown)
