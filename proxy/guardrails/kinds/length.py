"""Length: bounds on a whole text, in characters, lines and estimated tokens."""

from __future__ import annotations

from collections.abc import Sequence

from proxy.config.scalars import Most, Section
from proxy.config.shapes import Requirement, has, some
from proxy.estimate import text_quarters, whole_tokens
from proxy.frozen import frozen
from proxy.guardrails.guard_kind import GuardKind
from proxy.types.guard import Finding


@frozen
class Length:
    """Finds the whole text where it exceeds a bound; the kind is the first that it exceeds."""

    characters: int | None = None
    lines: int | None = None
    tokens: int | None = None

    @property
    def reach(self) -> None:
        return None

    def find(self, text: str) -> Sequence[Finding]:
        kind = self._exceeded(text)
        return () if kind is None else (Finding(0, len(text), kind),)

    def _exceeded(self, text: str) -> str | None:
        if self.characters is not None and len(text) > self.characters:
            return "characters"
        if self.lines is not None and lines(text) > self.lines:
            return "lines"
        if self.tokens is not None and tokens(text) > self.tokens:
            return "tokens"
        return None


def lines(text: str) -> int:
    """How many lines: the last one needs no line feed, and an empty text has none."""
    return text.count("\n") + (not text.endswith("\n") and bool(text))


def tokens(text: str) -> int:
    """The estimate that limits claim by."""
    return whole_tokens(text_quarters(text))


class LengthConfig(Section):
    """Texts that are too long."""

    REQUIREMENTS = (
        Requirement(
            some(has("characters"), has("lines"), has("tokens")),
            "must have characters, lines or tokens",
        ),
    )

    characters: Most | None = None
    """Maximum characters of one text."""
    lines: Most | None = None
    """Maximum lines."""
    tokens: Most | None = None
    """Maximum tokens, estimated."""


KIND = GuardKind(
    LengthConfig,
    lambda keys, context: Length(keys.characters, keys.lines, keys.tokens),
    example={"characters": 1},
)
