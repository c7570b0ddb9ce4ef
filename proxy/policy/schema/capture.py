"""Which texts are shown in traces, under ``capture`` of policies."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from proxy.config.scalars import Section
from proxy.policy.schema.limits import Share

Side = Literal["input", "output"]


def _both() -> list[Side]:
    return ["input", "output"]


class CaptureConfig(Section):
    """Whose questions and answers are shown in their spans; none are without it."""

    share: Share
    """The share of traced calls whose texts are shown, as 5%."""
    fields: Annotated[list[Side], Field(min_length=1)] = Field(default_factory=_both)
    """Which side: the question, the answer."""
    max_chars: Annotated[int, Field(ge=1, le=100_000)] = 4000
    """The most characters of each side; what is beyond is cut."""
