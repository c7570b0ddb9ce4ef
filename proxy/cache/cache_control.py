"""What a client may say of the cache in the headers of its call."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace

from proxy.dialects import request_headers
from proxy.runtime.frozen import frozen

MAX_AGE_S = 10**9  # more digits than that say nothing more


@frozen
class CacheControl:
    """How a client wants to be answered.

    With ``no_cache`` no kept answer is used, with ``max_age`` none that is older, in seconds. With
    ``keep`` its answer may be kept. Answers are never shared between two ``namespace``s.
    """

    no_cache: bool = False
    keep: bool = True
    max_age: float | None = None
    namespace: str = ""
    bypasses_cache: bool = field(init=False)

    def __post_init__(self) -> None:
        """Note whether what is kept may be passed over, which costs money."""
        object.__setattr__(self, "bypasses_cache", self.no_cache or self.max_age is not None)

    def without_refresh(self) -> CacheControl:
        """Return what is left to a client that may not have anything asked anew."""
        return replace(self, no_cache=False, max_age=None)


DEFAULT = CacheControl()
_REFRESH, _NAMESPACE = "x-portkey-cache-force-refresh", "x-portkey-cache-namespace"
_SKIP, _ENABLED = "cf-aig-skip-cache", "helicone-cache-enabled"
_SAYING = frozenset({"cache-control", _REFRESH, _NAMESPACE, _SKIP, _ENABLED})


def read_cache_control(headers: Mapping[str, str]) -> CacheControl:
    """Read ``cache-control`` and the headers of Portkey, Cloudflare and Helicone, by lower-case
    name. With one that wants no cache a call is answered by none, and its answer is not kept.

    Directives that are unknown or malformed are ignored, as HTTP says. Raises ``BadRequest`` for
    a flag that is neither true nor false.
    """
    if _SAYING.isdisjoint(headers):
        return DEFAULT
    words = {word.strip().lower() for word in headers.get("cache-control", "").split(",")}
    unwanted = request_headers.flag(_SKIP, headers) or not _enabled(headers)
    ages = [age for word in words if (age := _max_age(word)) is not None]
    return CacheControl(
        no_cache=unwanted or "no-cache" in words or request_headers.flag(_REFRESH, headers),
        keep=not unwanted and "no-store" not in words,
        max_age=min(ages, default=None),
        namespace=headers.get(_NAMESPACE, "").strip(),
    )


def _enabled(headers: Mapping[str, str]) -> bool:
    """True unless a client of Helicone wants no cache; whether there is one the policy says."""
    return not headers.get(_ENABLED, "").strip() or request_headers.flag(_ENABLED, headers)


def _max_age(word: str) -> float | None:
    name, _, seconds = word.partition("=")
    seconds = seconds.strip().strip('"')
    if name.strip() != "max-age" or not (seconds.isascii() and seconds.isdigit()):
        return None
    return float(min(int(seconds[:10]), MAX_AGE_S))
