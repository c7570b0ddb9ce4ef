"""Cache directives in the headers of a call."""

from __future__ import annotations

from collections.abc import Mapping

from proxy.dialects import request_headers
from proxy.runtime.frozen import frozen

MAX_AGE_S = 10**9  # longer ages are equivalent


@frozen
class CacheControl:
    """Cache directives of a client.

    ``no_cache`` skips cached responses. ``max_age`` skips older ones, in seconds. Without
    ``allows_storing`` the response is neither stored nor shared. Calls share cached responses only
    within one ``namespace``.
    """

    no_cache: bool = False
    allows_storing: bool = True
    max_age: float | None = None
    namespace: str = ""


DEFAULT_CONTROL = CacheControl()
_FORCE_REFRESH_HEADER = "x-portkey-cache-force-refresh"
_NAMESPACE_HEADER = "x-portkey-cache-namespace"
_SKIP_HEADER, _ENABLED_HEADER = "cf-aig-skip-cache", "helicone-cache-enabled"
_HEADERS = frozenset(
    {"cache-control", _FORCE_REFRESH_HEADER, _NAMESPACE_HEADER, _SKIP_HEADER, _ENABLED_HEADER}
)


def read_cache_control(headers: Mapping[str, str]) -> CacheControl:
    """Read ``cache-control`` and the cache headers of Portkey, Cloudflare and Helicone.

    Header names are lower-case.

    A header that disables the cache skips both lookup and storage. Unknown and malformed directives
    are ignored (RFC 9111, section 5.2). Raises ``BadRequest`` for a flag that is neither true nor
    false.
    """
    if _HEADERS.isdisjoint(headers):
        return DEFAULT_CONTROL
    words = {word.strip().lower() for word in headers.get("cache-control", "").split(",")}
    is_disabled = request_headers.read_boolean_header(_SKIP_HEADER, headers)
    if headers.get(_ENABLED_HEADER, "").strip():
        is_disabled |= not request_headers.read_boolean_header(_ENABLED_HEADER, headers)
    ages = [age for word in words if (age := _parse_max_age(word)) is not None]
    return CacheControl(
        no_cache=is_disabled
        or "no-cache" in words
        or request_headers.read_boolean_header(_FORCE_REFRESH_HEADER, headers),
        allows_storing=not is_disabled and "no-store" not in words,
        max_age=min(ages, default=None),
        namespace=headers.get(_NAMESPACE_HEADER, "").strip(),
    )


def _parse_max_age(word: str) -> float | None:
    name, _, seconds = word.partition("=")
    seconds = seconds.strip().strip('"')
    if name.strip() != "max-age" or not (seconds.isascii() and seconds.isdigit()):
        return None
    return float(min(int(seconds[:10]), MAX_AGE_S))
