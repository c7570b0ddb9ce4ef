"""Cache rules of a policy."""

from __future__ import annotations

from typing import Literal

from proxy.runtime.frozen import frozen


@frozen
class SemanticCacheRule:
    """When a prompt gets the cached response to a similar one.

    The deployment ``embeddings`` turns prompts into vectors, within ``deadline`` seconds. They
    match from the cosine ``threshold`` on. In shadow mode matches are only counted. Calls with a
    higher temperature than ``max_temperature`` are not compared.
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
    """How the answer to a call may be kept.

    ``ttl`` is in seconds, ``max_bytes`` bounds one answer as JSON. Equal questions in different
    ``namespace``s are different ones. With ``by_user`` who asks is part of the question. An answer
    that calls a tool is kept only with ``tool_calls``. ``store``, one of ``CACHE_STORES``, is where
    it is kept. With ``semantic`` similar prompts are looked up, too.
    """

    ttl: float
    namespace: str = ""
    max_bytes: int = 1024 * 1024
    by_user: bool = False
    tool_calls: bool = False
    store: str = "memory"
    semantic: SemanticCacheRule | None = None
