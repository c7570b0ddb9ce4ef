"""What a guard says of a call, and that one which broke has not passed it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pytest

from proxy.dialects import DIALECTS
from proxy.dialects.base import Dialect
from proxy.errors import GuardBlocked, GuardUnavailable
from proxy.guards.findings.tally import RuleTally
from proxy.guards.text.normalize import View
from proxy.types.guard import Detector, Finding, GuardRule, NotReady
from tests.for_each import for_each
from tests.guards.doubles import Broken, Ticks, Words, rule


def test_a_rule_without_roles_and_fields_applies_everywhere() -> None:
    assert rule("x").applies(None, "content")
    assert not rule("x", roles=frozenset({"user"})).applies(None, "tool")
    assert rule("x", roles=frozenset({"user"})).applies("user", "tool")
    assert not rule("x", fields=frozenset({"stop"})).applies("user", "content")


def test_a_detector_sees_capitals_only_where_its_rule_says_so() -> None:
    assert not RuleTally(rule("KEY", cased=False), Ticks()).find(View("a KEY"))
    assert RuleTally(rule("KEY", cased=True), Ticks()).find(View("a KEY"))


def test_what_has_failed_is_not_asked_again() -> None:
    tally = RuleTally(GuardRule("broken", Broken(), on_error="open"), Ticks())

    assert tally.find(View("x")) == ()
    assert tally.error == "ZeroDivisionError"
    assert tally.find(View("x")) == ()
    assert tally.result().verdict == "failed"


def test_a_strict_rule_that_fails_stops_the_call() -> None:
    tally = RuleTally(GuardRule("broken", Broken(), message="No."), Ticks())

    with pytest.raises(GuardBlocked, match=r"could not inspect this text\.$") as blocked:
        tally.find(View("x"))
    assert blocked.value.kind == "could_not_check"
    assert blocked.value.code == "guardrail_blocked"


@dataclass(frozen=True, slots=True)
class Loading:
    """Has not loaded yet what it looks by."""

    lookback: int | None = 4

    def find(self, text: str) -> Sequence[Finding]:
        raise NotReady


@pytest.mark.parametrize("detector", [Loading(), Words(("x",))])
def test_a_strict_rule_that_is_late_or_not_ready_may_be_asked_again(detector: Detector) -> None:
    tally = RuleTally(GuardRule("slow", detector, message="No."), Ticks(step=2))

    with pytest.raises(GuardUnavailable, match=r"Try again later\.$") as late:
        tally.find(View("x"))
    assert (late.value.status, late.value.code) == (503, "guard_unavailable")
    assert (late.value.kind, late.value.retry_after_s) == ("could_not_check", 1.0)
    assert tally.error in ("deadline", "not_ready")


@for_each("dialect", DIALECTS.values(), ids=lambda each: each.name)
def test_every_client_reads_that_another_try_may_do(dialect: Dialect) -> None:
    late = GuardUnavailable("Later.", guard="slow", kind="could_not_check")

    assert dialect.client.refuse(late, "r").status == 503


def test_time_is_counted_and_bounded() -> None:
    tally = RuleTally(
        GuardRule("slow", Words(("x",)), on_error="open", deadline_s=3), Ticks(step=2)
    )

    assert tally.find(View("x"))
    assert not tally.find(View("x"), 0, left_s=1)
    assert (tally.error, tally.seconds) == ("deadline", 4)


def test_an_error_names_its_kind_and_never_the_text() -> None:
    tally = RuleTally(GuardRule("broken", Broken(), on_error="open"), Ticks())
    tally.find(View("a secret"))

    assert "secret" not in str(tally.result())
