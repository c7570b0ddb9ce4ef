"""Cache rules of a policy."""

from __future__ import annotations

from typing import Literal

from proxy.runtime.frozen import frozen


@frozen
class SemanticCacheRule:
    """Serves the cached response to a similar prompt.

    The deployment ``embeddings`` computes vectors within ``deadline`` seconds. Prompts match from
    the cosine ``threshold`` on. In shadow mode matches are only counted. Calls with a temperature
    above ``max_temperature`` are not compared.
    """

    embeddings: str
    mode: Literal["shadow", "serve"] = "shadow"
    threshold: float = 0.95
    deadline: float = 1.0
    max_temperature: float = 1.0

    def __str__(self) -> str:
        use = "served" if self.mode == "serve" else "counted only"
        return f"similar prompts (from {self.threshold:g}, {self.embeddings}) are {use}"


CACHE_STORES = ("memory", "sqlite", "redis")


@frozen
class CacheRule:
    """Cache settings of a call.

    ``ttl`` is in seconds. ``max_bytes`` bounds one response as JSON. ``namespace`` and, with
    ``by_user``, the end user are part of the cache key. Responses with tool calls are stored only
    with ``tool_calls``. ``store`` is one of ``CACHE_STORES``. ``semantic`` enables lookup of
    similar prompts.
    """

    ttl: float
    namespace: str = ""
    max_bytes: int = 1024 * 1024
    by_user: bool = False
    tool_calls: bool = False
    store: str = "memory"
    semantic: SemanticCacheRule | None = None
