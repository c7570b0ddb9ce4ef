"""Text in traces, under ``capture`` of policies."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from proxy.config.scalars import Section
from proxy.policy.schema.limits import Share

Side = Literal["input", "output"]


def _both() -> list[Side]:
    return ["input", "output"]


class CaptureConfig(Section):
    """Prompt and response text in spans. Without it, spans contain no text."""

    share: Share
    """Share of traced calls with text, such as 5%."""
    fields: Annotated[list[Side], Field(min_length=1)] = Field(default_factory=_both)
    """Sides to include: input (the prompt), output (the response)."""
    max_chars: Annotated[int, Field(ge=1, le=100_000)] = 4000
    """Maximum characters per side. Longer text is truncated."""
