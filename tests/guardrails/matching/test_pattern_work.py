"""The work of a pattern is a number, which is large for those that keep RE2 busy."""

from __future__ import annotations

from proxy.guardrails.matching import gitleaks
from proxy.guardrails.matching.pattern_work import MAX_STEPS, work_of
from tests.for_each import for_each

GROWING = ["a.{0,200}b", "(?:[a-z]{1,50}){1,19}x", "a[^x]{0,200}b[^x]{0,200}c", "(.{0,30}a){30}"]
READ_ON = [
    "a(.*b)?",
    "m(?:[^x]*x)?",
    "x(?:a[^c]*c)?",
    "a(bcd(.*e)?)?",
    r"\d+|a(.*c)?",
    "password.*=|password",
]
ORDINARY = [
    "mill",
    r"PROJ-\d{4,8}",
    r"\b\d{3}-\d{2}-\d{4}\b",
    r"(?i)project[- ]?(?:wheel|sluice|race)(?:[- ]v?\d+)?",
    r"(?i)(password|secret|token).{0,40}=",
    r"[A-Za-z0-9._%+-]{1,64}@[a-z]{1,63}\.[a-z]{2,6}",
    r"\d+(?:\s*-\s*\d+)*",
    r"[ж-ю]{2,30} \d+",
    r"(?s)BEGIN.*?END",
    r"(?:[a-z]+[.])+mill",
]


@for_each("pattern", GROWING)
def test_new_states_without_end_are_much_work(pattern: str) -> None:
    assert work_of(pattern).steps > MAX_STEPS


@for_each("pattern", READ_ON)
def test_reading_on_behind_each_match_is_much_work(pattern: str) -> None:
    assert work_of(pattern).steps > MAX_STEPS


@for_each("pattern", ORDINARY)
def test_what_policies_look_for_is_little_work(pattern: str) -> None:
    work = work_of(pattern)

    assert work.steps < MAX_STEPS / 5
    assert work.places < 100


def test_work_is_counted_and_not_timed() -> None:
    assert [work_of("a.{0,20}b") for _ in range(2)] == [work_of("a.{0,20}b")] * 2
    assert work_of("a.{0,20}b").places == 22


def test_more_of_a_repeat_is_more_work() -> None:
    steps = [work_of(f"a.{{0,{most}}}b").steps for most in (10, 20, 40, 80)]

    assert steps == sorted(steps)
    assert steps[3] > 4 * steps[0]


def test_the_shipped_rules_of_secrets_are_little_work() -> None:
    rules = [rule.pattern for rule in gitleaks.rules()][::20]

    assert max(work_of(pattern).steps for pattern in rules) < MAX_STEPS / 5
