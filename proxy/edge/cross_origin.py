"""Pages of other origins in browsers: which of them may ask, and read answers, as policy says.

A key in a header is all that lets a call in: nothing here lets a browser send cookies.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from proxy.dialects import ROUTES
from proxy.frozen import frozen

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


def no_origins() -> frozenset[str]:
    return frozenset()


@frozen
class CrossOrigin:
    """``origins`` returns those that the policy in force lists."""

    origins: Callable[[], frozenset[str]] = no_origins

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
