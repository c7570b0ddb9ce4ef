"""The section ``cors``."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from proxy.config.scalars import Section, text

ORIGIN = r"\*|[a-z][a-z0-9+.-]*://[a-z0-9._-]+(?::[0-9]{1,5})?"
Origin = Annotated[
    str,
    *text(
        ORIGIN,
        "must be an origin in lower case, without a path, or * for all",
        "https://app.example.com",
    ),
]


class CorsConfig(Section):
    """Which pages in browsers may call, and read the answers."""

    origins: Annotated[list[Origin], Field(max_length=1000)] = Field(default_factory=list)
    """The origins of those pages; `*` for all. Cookies are never let through."""
