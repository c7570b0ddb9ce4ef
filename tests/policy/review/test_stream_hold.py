"""What guards of answers hold back of a stream is told, and is what they hold."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from proxy.guards.guard_kind import NO_CONTEXT
from proxy.guards.kinds.table import KINDS
from proxy.guards.stream.window import Window
from proxy.guards.text.base64_text import open_run
from proxy.policy.review.lint_guards import delay_notes
from proxy.policy.store import read_folder
from proxy.types.guard import GuardRule, is_detector
from tests.conftest import world
from tests.for_each import for_each
from tests.guards.doubles import pieces, tallies

SOON = "delayed by a word or two, and longer only while text may become a finding"
CASES = {
    "{guard: keywords, words: [hippo]}": (
        "keywords withholds the last 6 characters of streamed text",
        SOON,
    ),
    "{guard: urls, deny: [mill.example]}": (
        "urls withholds text that may become a finding, up to 2048 characters",
        SOON,
    ),
    "{guard: toxicity, action: block}": (
        "toxicity withholds text that may become a finding, up to 80 characters",
        SOON,
    ),
    "{guard: system_prompt}": (
        "system_prompt withholds text that may become a finding, up to 288 characters",
        SOON,
    ),
    "{guard: injection, action: block}": (
        "injection withholds text that may become a finding, up to 480 characters",
        SOON,
    ),
    "{guard: length, characters: 9}": (
        "length withholds streamed responses until their end",
        "sent after their end, because of length",
    ),
    "{guard: keywords, words: [hippo], action: retry}": (
        "keywords withholds streamed responses until their end",
        "sent after their end, because of keywords",
    ),
    "{guard: relevant, action: block}": (
        "relevant withholds streamed responses until their end",
        "sent after their end, because of relevant",
    ),
    "{guard: webhook, name: ours, url: 'http://localhost:1/x', secret: '${UPSTREAM_KEY}'}": (
        "ours withholds streamed responses until their end",
        "sent after their end, because of ours",
    ),
    "{guard: keywords, words: [hippo], action: flag}": None,
    "{guard: keywords, words: [hippo], mode: shadow}": None,
}


@for_each("guard", CASES)
def test_what_is_held_is_told(guard: str, tmp_path: Path) -> None:
    policies = f"{world('http://localhost:1')}\npolicies:\n  default: {{output: [{guard}]}}\n"
    (tmp_path / "policies.yaml").write_text(policies)
    snapshot = read_folder(tmp_path, {"UPSTREAM_KEY": "x" * 40})

    lines = [line for line in delay_notes(snapshot) if line.startswith("search-answers:")]

    events = CASES[guard]
    assert lines == ([f"search-answers: {name}" for name in _said(*events)] if events else [])


def _said(holds: str, output: str) -> tuple[str, str]:
    return f"output guard {holds}", f"streamed responses are {output}"


WORDS = st.lists(st.text("abcdefg", min_size=2, max_size=30), max_size=60).map(" ".join)
RESULT: dict[str, dict[str, Any]] = {
    "keywords": {"words": ["hippo"]},
    "pii": {"entities": ["email", "phone", "card", "iban"], "regions": ["US"], "threshold": 0.5},
    "urls": {"allow": [], "deny": ["example.com"]},
    "code": {},
    "injection": {"threshold": 0.95},
    "toxicity": {"threshold": 0.4},
}


def made(kind: str) -> GuardRule:
    keys = KINDS[kind].Keys(**RESULT[kind])
    detector: Any = KINDS[kind].make(keys, NO_CONTEXT)
    return GuardRule(kind, detector, cased=KINDS[kind].cased)


RULES = [*map(made, RESULT)]


@settings(deadline=None)
@example("acaaacaaa", [], RULES[0])  # base64 of two letters of Latin
@given(WORDS, st.lists(st.integers(0, 2000), max_size=20), st.sampled_from(RULES))
def test_no_guard_holds_more_than_is_told(text: str, cuts: list[int], rule: GuardRule) -> None:
    assert is_detector(rule.detector)
    reach = rule.detector.lookback
    window = Window(tallies(rule))
    fed = ""

    for piece in pieces(text, cuts):
        window.feed(piece)
        fed += piece
        base64 = len(fed) - open_run(
            fed, torn=False, max_size=None
        )  # held whatever a guard reaches
        maximum = max(reach or 0, base64) + 2  # a letter that is cut off may stand apart
        assert reach is None or window.held_size <= maximum
