"""Requests of the data listener without a key: health checks and CORS preflights.

They are not recorded. Their responses reveal only the allowed origins. Cookies are never allowed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

import orjson
from aiohttp import web

from proxy.dialects import ROUTES
from proxy.runtime.frozen import frozen
from proxy.server.request import path_of

HEALTH = "/health"
_HEADERS = {"cache-control": "no-store", "server": "headrace"}
WILDCARD = "*"
KEPT_S = 600  # for which a browser need not ask again
EXTRA_METHODS = frozenset(
    {"DELETE", "HEAD", "PATCH", "PUT"}
)  # of paths that a deployment lists, too
METHODS = ", ".join(sorted({*EXTRA_METHODS, *(method for method, _ in ROUTES)}))
NAMES = re.compile(r"[A-Za-z0-9_-]{1,64}(?:, ?[A-Za-z0-9_-]{1,64}){0,63}")
EXPOSED = (
    *("request-id", "retry-after", "retry-after-ms", "x-headrace-cache", "x-headrace-cost-usd"),
    *("x-headrace-deployment", "x-headrace-error", "x-headrace-policy", "x-headrace-warning"),
    *("x-ratelimit-limit-requests", "x-ratelimit-limit-tokens"),
    *("x-ratelimit-remaining-requests", "x-ratelimit-remaining-tokens"),
    *("x-ratelimit-reset-requests", "x-ratelimit-reset-tokens"),
    *("x-request-id", "x-should-retry", "x-trace-id"),
)
"""Response headers that browser pages may read."""


@frozen
class CrossOrigin:
    """CORS headers. ``origins`` returns the origins that the active policy allows."""

    origins: Callable[[], frozenset[str]] = frozenset

    def headers(self, origin: str) -> dict[str, str]:
        """Return the CORS headers of a response, none if the origin is not allowed."""
        allowed = self._allowed(origin)
        return allowed and {**allowed, "access-control-expose-headers": ", ".join(EXPOSED)}

    def preflight(self, request_headers: Mapping[str, str]) -> dict[str, str]:
        """Return the headers of a preflight response, none if the origin is not allowed."""
        allowed = self._allowed(request_headers.get("origin", ""))
        if not allowed:
            return {}
        names = request_headers.get("access-control-request-headers", "")
        return {
            **allowed,
            "access-control-allow-methods": METHODS,
            **({"access-control-allow-headers": names} if NAMES.fullmatch(names) else {}),
            "access-control-max-age": str(KEPT_S),
            "vary": "origin, access-control-request-headers, access-control-request-method",
        }

    def _allowed(self, origin: str) -> dict[str, str]:
        origins = self.origins()
        if WILDCARD in origins:
            return {"access-control-allow-origin": WILDCARD}
        if origin not in origins:
            return {}
        return {"access-control-allow-origin": origin, "vary": "origin"}


@frozen
class Keyless:
    """Answers health checks and preflights.

    ``is_ready`` is the state of ``/readyz``. A preflight from an origin that is not allowed is
    handled like an unknown path.
    """

    is_ready: Callable[[], bool] = lambda: True
    cross_origin: CrossOrigin = CrossOrigin()  # it is frozen

    def answer(self, request: web.BaseRequest) -> web.Response | None:
        """Return the response to a request without a key, or None for any other request."""
        headers = request.headers
        if request.method == "OPTIONS" and "access-control-request-method" in headers:
            allowed = self.cross_origin.preflight(headers)
            return web.Response(status=204, headers={**_HEADERS, **allowed}) if allowed else None
        if path_of(request.raw_path) != HEALTH:
            return None
        if request.method not in ("GET", "HEAD"):
            return _response(405, "Use GET or HEAD.", allow="GET, HEAD")
        return _response(200, "ok") if self.is_ready() else _response(503, "not ready")


def _response(status: int, word: str, **headers: str) -> web.Response:
    body = orjson.dumps({"status": word})
    response_headers = {**_HEADERS, "content-type": "application/json", **headers}
    return web.Response(status=status, body=body, headers=response_headers)
