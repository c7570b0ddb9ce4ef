"""The `length` guard: limits the characters, lines and estimated tokens of a text."""

from __future__ import annotations

from collections.abc import Sequence

from proxy.config.scalars import PositiveInt, Section
from proxy.config.shapes import Requirement, any_of, has
from proxy.guards.guard_kind import GuardKind
from proxy.money.estimate import text_quarters, to_tokens
from proxy.runtime.frozen import frozen
from proxy.types.guard import Finding


@frozen
class Length:
    """Detector of texts that exceed a limit. The kind of the finding is the first exceeded
    limit."""

    characters: int | None = None
    lines: int | None = None
    tokens: int | None = None

    lookback = None

    def find(self, text: str) -> Sequence[Finding]:
        for kind, bound, count in (
            ("characters", self.characters, len),
            ("lines", self.lines, count_lines),
            ("tokens", self.tokens, count_tokens),
        ):
            if bound is not None and count(text) > bound:
                return (Finding(0, len(text), kind),)
        return ()


def count_lines(text: str) -> int:
    """Return the number of lines. The last line needs no line feed. An empty text has no lines."""
    return text.count("\n") + (not text.endswith("\n") and bool(text))


def count_tokens(text: str) -> int:
    return to_tokens(text_quarters(text))


class LengthConfig(Section):
    """Texts that are too long."""

    REQUIREMENTS = (
        Requirement(
            any_of(has("characters"), has("lines"), has("tokens")),
            "must have characters, lines or tokens",
        ),
    )

    characters: PositiveInt | None = None
    """Maximum characters of one text."""
    lines: PositiveInt | None = None
    """Maximum lines."""
    tokens: PositiveInt | None = None
    """Maximum tokens, estimated."""


KIND = GuardKind(
    LengthConfig,
    lambda keys, context: Length(keys.characters, keys.lines, keys.tokens),
    example={"characters": 1},
)
