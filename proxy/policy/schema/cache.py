"""Cache of responses, under ``cache`` of policies, deployments and rules."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from proxy.config.scalars import Duration, ListedWord, Name, Reference, Section, Size, Switched
from proxy.types import CACHE_STORES


class SemanticConfig(Section):
    """Cache hits for prompts that are similar, by the cosine of their embeddings."""

    embeddings: Annotated[Name, Reference("deployment")]
    """Deployment that computes the embeddings."""
    mode: Literal["shadow", "serve"] = "shadow"
    """`shadow` only counts matches; `serve` responds with them."""
    threshold: Annotated[float, Field(ge=0.5, le=1)] = 0.95
    """Minimum cosine similarity of a match. Default 0.95."""
    deadline: Duration = 1.0
    """Maximum time for an embedding. Default 1s."""
    max_temperature: Annotated[float, Field(ge=0, le=2)] = 1.0
    """Calls with a higher temperature are not compared. A call without one counts as 1."""


class CacheConfig(Switched):
    """Cache of responses. Repeated requests are served from it."""

    ttl: Duration = 3600.0
    """Lifetime of a response. Default 1h."""
    max_bytes: Size = 1024 * 1024
    """Maximum size of a cached response. Default 1MiB."""
    store: Annotated[str, ListedWord(CACHE_STORES)] = "memory"
    """Store: in this process, in a file on this machine, or shared in Redis."""
    namespace: Annotated[str, StringConstraints(max_length=64, pattern=r"^[a-z0-9._-]*$")] = ""
    """Requests in different namespaces never share responses."""
    by_user: bool = False
    """Whether the user, metadata and similar fields are part of the cache key."""
    tool_calls: bool = False
    """Whether responses with tool calls are cached."""
    semantic: SemanticConfig | None = None
    """Responses to similar prompts."""
