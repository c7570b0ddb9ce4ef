"""Findings are counted, bounded and masked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from proxy.errors import GuardBlocked, GuardUnavailable
from proxy.guards.engine import inspect_now
from proxy.guards.findings import (
    MAX_FINDINGS,
    RuleTally,
    TextMatch,
    apply_masks,
    find_matches,
    replace_by_kind,
)
from proxy.guards.stream.window import Window
from proxy.guards.text.normalize import View, build_views
from proxy.guards.text.walk import Text
from proxy.types.guard import Detector, Finding, GuardRule, NotReady
from tests.for_each import for_each
from tests.guards.doubles import Broken, Ticks, Words, rule, tallies


def test_rule_without_roles_and_fields_applies_everywhere() -> None:
    assert rule("x").applies_to(None, "content")
    assert not rule("x", roles=frozenset({"user"})).applies_to(None, "tool")
    assert rule("x", roles=frozenset({"user"})).applies_to("user", "tool")
    assert not rule("x", fields=frozenset({"stop"})).applies_to("user", "content")


def test_case_sensitive_rule_gets_capitals() -> None:
    assert not RuleTally(rule("KEY", cased=False), Ticks()).find(View("a KEY"))
    assert RuleTally(rule("KEY", cased=True), Ticks()).find(View("a KEY"))


def test_failed_rule_is_not_run_again() -> None:
    tally = RuleTally(GuardRule("broken", Broken(), on_error="open"), Ticks())

    assert tally.find(View("x")) == ()
    assert tally.error == "ZeroDivisionError"
    assert tally.find(View("x")) == ()
    assert tally.to_result().verdict == "failed"


@dataclass(frozen=True, slots=True)
class Loading:
    """A detector that has not loaded its data."""

    lookback: int | None = 4

    def find(self, text: str) -> Sequence[Finding]:
        raise NotReady


@pytest.mark.parametrize("detector", [Loading(), Words(("x",))])
def test_late_strict_rule_may_be_retried(detector: Detector) -> None:
    tally = RuleTally(GuardRule("slow", detector, message="No."), Ticks(step=2))

    with pytest.raises(GuardUnavailable, match=r"Try again later\.$") as info:
        tally.find(View("x"))
    assert (info.value.status, info.value.code) == (503, "guard_unavailable")
    assert (info.value.kind, info.value.retry_after_s) == ("could_not_check", 1.0)
    assert tally.error in ("deadline", "not_ready")


def test_time_is_counted_and_bounded() -> None:
    slow = GuardRule("slow", Words(("x",)), on_error="open", deadline_s=3)
    tally = RuleTally(slow, Ticks(step=2))

    assert tally.find(View("x"))
    assert not tally.find(View("x"), 0, remaining_s=1)
    assert (tally.error, tally.cpu_s) == ("deadline", 4)


RULES = [rule("x", name="one"), rule("y", name="two")]


def test_finding_in_several_readings_counts_once() -> None:
    text = "a secret, a \uff53ecret and s e c r e t"
    (tally,) = tallies(rule("secret"))

    matches = find_matches(tally, 0, build_views(text))

    assert [text[m.start : m.end] for m in matches] == ["secret", "\uff53ecret", "s e c r e t"]


def test_overlapping_masks_cover_all_characters() -> None:
    matches = [TextMatch(1, 4, 0, "a"), TextMatch(2, 3, 1, "b"), TextMatch(3, 6, 1, "b")]
    stored_items: list[str] = []

    def put(rule: object, kind: str, text: str) -> str:
        stored_items.append(text)
        return f"<{kind}>"

    assert apply_masks("0123456789", matches, RULES, put) == "0<a><b>6789"
    assert "".join(stored_items) == "12345"


WORD, SHEET = "secret ", 32_768
LINE = WORD * 500


@dataclass(slots=True)
class Counting:
    """Counts the characters that it inspects."""

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
def test_too_many_masks_block_a_call(on_error: str, place: str) -> None:
    inspection, remainder = (
        inspect_now([tally(action="mask", on_error=on_error)], texts(lines, place), replace_by_kind)
        for lines in (MAX_FINDINGS // 500, 4 * MAX_FINDINGS // 500)
    )

    assert inspection.blocked is None
    assert not any("secret" in text for text in inspection.changes.values())
    assert isinstance(remainder.blocked, GuardBlocked)
    assert remainder.blocked.kind == "too_many_findings"
    assert "10,000" in str(remainder.blocked)
    [result, *_] = remainder.results
    assert (result.verdict, result.error) == ("failed", "too_many_findings")


@for_each("on_error", ["closed", "open"])
def test_too_many_masks_block_a_stream(on_error: str) -> None:
    window, output = Window([tally(action="mask", on_error=on_error)]), ""

    with pytest.raises(GuardBlocked) as blocked:
        for _ in range(2 * MAX_FINDINGS // 500):
            output += "".join(piece.text for piece in window.feed(LINE))

    assert blocked.value.kind == "too_many_findings"
    assert "secret" not in output


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
def test_other_rules_stop_at_the_bound(
    keys: dict[str, Any], verdict: str, blocks: bool, place: str
) -> None:
    looking = tally(**keys)

    inspection = inspect_now([looking], texts(10 * MAX_FINDINGS // 500, place), replace_by_kind)

    assert inspection.results[0].verdict == verdict
    assert inspection.results[0].error is None
    assert (inspection.blocked is not None) is blocks
    assert isinstance(looking.detector, Counting)
    assert sum(looking.detector.characters) < MAX_FINDINGS * len(WORD) + 2 * SHEET
