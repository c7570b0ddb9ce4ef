"""Section ``cors``."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from proxy.config.scalars import Section, text

ORIGIN = r"\*|[a-z][a-z0-9+.-]*://[a-z0-9._-]+(?::[0-9]{1,5})?"
Origin = Annotated[
    str,
    *text(
        ORIGIN,
        "must be an origin in lower case without a path, such as https://app.example.com, or *",
        "https://app.example.com",
    ),
]


class CorsConfig(Section):
    """Web pages that may call from a browser and read responses."""

    origins: Annotated[list[Origin], Field(max_length=1000)] = Field(default_factory=list)
    """Allowed origins, or `*` for all. Cookies are never allowed."""
