"""How answers are kept, under ``cache`` of policies, deployments and rules."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from proxy.config.scalars import Duration, ListedWord, Section, Size, Switched
from proxy.types import CACHE_STORES


class SemanticConfig(Section):
    """Whether a question is answered by what is kept for another wording of it."""

    mode: Literal["shadow", "enforce"] = "shadow"
    """`shadow` notes what would be found, and asks; `enforce` answers."""
    max_temperature: Annotated[float, Field(ge=0, le=2)] = 1.0
    """Calls with a higher temperature are always asked; one that says none has 1."""


class CacheConfig(Switched):
    """How the answers to calls are kept, and shown again to who asks the same."""

    ttl: Duration = 3600.0
    """How long an answer is shown again; 1h."""
    max_bytes: Size = 1024 * 1024
    """The largest answer that is kept; 1MiB."""
    store: Annotated[str, ListedWord(CACHE_STORES)] = "memory"
    """Where: in this process, on this machine, or shared."""
    namespace: Annotated[str, StringConstraints(max_length=64, pattern=r"^[a-z0-9._-]*$")] = ""
    """Equal questions in different namespaces are different ones."""
    by_user: bool = False
    """Whether who asks is part of the question: the user, metadata and the like."""
    tool_calls: bool = False
    """Whether an answer that calls tools is kept."""
    semantic: SemanticConfig | None = None
    """Answer other wordings of a question, too."""
