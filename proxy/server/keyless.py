"""Requests of the data port that need no key: health checks, and preflights of browser pages.

Such a request is no call: no record, line or metric tells of it, and its response shows nothing of
the policies but the origins that they allow. A key in a header is all that lets a call in: nothing
here lets a browser send cookies.
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
ANY = "*"
KEPT_S = 600  # for which a browser need not ask again
OTHERS = frozenset({"DELETE", "HEAD", "PATCH", "PUT"})  # of paths that a deployment lists, too
METHODS = ", ".join(sorted({*OTHERS, *(method for method, _ in ROUTES)}))
NAMES = re.compile(r"[A-Za-z0-9_-]{1,64}(?:, ?[A-Za-z0-9_-]{1,64}){0,63}")
EXPOSED = (
    *("request-id", "retry-after", "retry-after-ms", "x-headrace-cache", "x-headrace-cost-usd"),
    *("x-headrace-deployment", "x-headrace-error", "x-headrace-policy", "x-headrace-warning"),
    *("x-ratelimit-limit-requests", "x-ratelimit-limit-tokens"),
    *("x-ratelimit-remaining-requests", "x-ratelimit-remaining-tokens"),
    *("x-ratelimit-reset-requests", "x-ratelimit-reset-tokens"),
    *("x-request-id", "x-should-retry", "x-trace-id"),
)
"""Headers of an answer that a page may read beside those that any may."""


@frozen
class CrossOrigin:
    """``origins`` returns those that the policy in force lists."""

    origins: Callable[[], frozenset[str]] = frozenset

    def headers(self, origin: str) -> dict[str, str]:
        """Return what an answer to a page says; nothing where the page may not read it."""
        allowed = self._allowed(origin)
        return allowed and {**allowed, "access-control-expose-headers": ", ".join(EXPOSED)}

    def preflight(self, asked: Mapping[str, str]) -> dict[str, str]:
        """Return what a browser is told that asks whether a page may; nothing where it may not."""
        allowed = self._allowed(asked.get("origin", ""))
        if not allowed:
            return {}
        names = asked.get("access-control-request-headers", "")
        return {
            **allowed,
            "access-control-allow-methods": METHODS,
            **({"access-control-allow-headers": names} if NAMES.fullmatch(names) else {}),
            "access-control-max-age": str(KEPT_S),
            "vary": "origin, access-control-request-headers, access-control-request-method",
        }

    def _allowed(self, origin: str) -> dict[str, str]:
        origins = self.origins()
        if ANY in origins:
            return {"access-control-allow-origin": ANY}
        if origin not in origins:
            return {}
        return {"access-control-allow-origin": origin, "vary": "origin"}


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
