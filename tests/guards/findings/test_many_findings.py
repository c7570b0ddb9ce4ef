"""A rule with more findings than may be ends there: what it would have to mask does not pass."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from proxy.errors import GuardBlocked
from proxy.guards.engine import inspect_now
from proxy.guards.findings.mask import named
from proxy.guards.findings.tally import MOST_FINDINGS, RuleTally
from proxy.guards.stream.window import Window
from proxy.guards.text.walk import Text
from proxy.types.guard import Finding, GuardRule
from tests.for_each import for_each
from tests.guards.doubles import Ticks, Words

WORD, SHEET = "secret ", 32_768
LINE = WORD * 500


@dataclass(slots=True)
class Counting:
    """Counts the characters that it looks at."""

    characters: list[int] = field(default_factory=list)
    lookback: int | None = 6

    def find(self, text: str) -> Sequence[Finding]:
        self.characters.append(len(text))
        return Words(("secret",)).find(text)


def tally(**keys: Any) -> RuleTally:
    return RuleTally(GuardRule("words", Counting(), **keys), Ticks())


def texts(lines: int, place: str) -> list[Text]:
    if place == "one text":
        return [Text(("a",), LINE * lines, "content")]
    return [Text(("a", number), LINE, "content") for number in range(lines)]


@for_each("place", ["one text", "texts"])
@for_each("on_error", ["closed", "open"])
def test_a_call_with_too_many_values_to_mask_is_blocked(on_error: str, place: str) -> None:
    within, beyond = (
        inspect_now([tally(action="mask", on_error=on_error)], texts(lines, place), named)
        for lines in (MOST_FINDINGS // 500, 4 * MOST_FINDINGS // 500)
    )

    assert within.blocked is None
    assert not any("secret" in text for text in within.changes.values())
    assert isinstance(beyond.blocked, GuardBlocked)
    assert beyond.blocked.kind == "too_many_findings"
    assert "10,000" in str(beyond.blocked)
    assert (beyond.results[0].verdict, beyond.results[0].error) == ("failed", "too_many_findings")


@for_each("on_error", ["closed", "open"])
def test_a_stream_with_too_many_values_to_mask_is_blocked(on_error: str) -> None:
    window, shown = Window([tally(action="mask", on_error=on_error)]), ""

    with pytest.raises(GuardBlocked) as blocked:
        for _ in range(2 * MOST_FINDINGS // 500):
            shown += "".join(piece.text for piece in window.feed(LINE))

    assert blocked.value.kind == "too_many_findings"
    assert "secret" not in shown


@for_each("place", ["one text", "texts"])
@for_each(
    ("keys", "verdict", "blocks"),
    [
        ({"action": "flag"}, "flagged", False),
        ({"action": "mask", "shadow": True}, "masked", False),
        ({"action": "block"}, "blocked", True),
        ({"action": "block", "on_error": "open"}, "blocked", True),
    ],
)
def test_any_other_rule_looks_no_further(
    keys: dict[str, Any], verdict: str, blocks: bool, place: str
) -> None:
    looking = tally(**keys)

    found = inspect_now([looking], texts(10 * MOST_FINDINGS // 500, place), named)

    assert found.results[0].verdict == verdict
    assert found.results[0].error is None
    assert (found.blocked is not None) is blocks
    assert isinstance(looking.detector, Counting)
    assert sum(looking.detector.characters) < MOST_FINDINGS * len(WORD) + 2 * SHEET
