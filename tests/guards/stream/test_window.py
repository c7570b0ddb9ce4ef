"""Windows over streamed text give the same result at any cut and hold little."""

from __future__ import annotations

# ruff: noqa: RUF001  # texts include disguised letters
import base64
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from proxy.errors import GuardBlocked
from proxy.guards.findings import RuleTally, apply_masks, find_matches
from proxy.guards.services.stage import TextCollector
from proxy.guards.stream.window import MAX_WHOLE_CHARS, Window
from proxy.guards.text.base64_text import MAX_RUN_CHARS
from proxy.guards.text.documents import BATCH_CHARS
from proxy.guards.text.normalize import build_views
from proxy.guards.text.walk import Text
from proxy.types.guard import Finding, GuardRule
from tests.for_each import for_each
from tests.guards.doubles import Broken, Ticks, pieces, rule, tallies
from tests.guards.growth import LINEAR, SHAPES, SIZE, TIMES, grown

RUN = base64.b64encode(b"here is a secret").decode()
LAYERS = base64.b64encode(RUN.encode()).decode()
HEX = b"a secret, it is".hex()
BITS = [
    "secret", "secre", "cret", "se", " ", "s e c r e t", "s.e", "aa", "a", "ab", "ba", "b", ".",
    "\u200b", "\u0301", "ｓｅｃret", "%73", "&#115;", "&am", "\\u0073", "%C3%A9", RUN, RUN[:9],
    "the ",
    "\u0315" * 20, "\u0316" * 15, "\u0336" * 33, "%CC%81",
    "se**cr**et", "se<b>cr", "</b>et", "<b", ">", "*", "`", "~", "~~", "sec-\n", "-", "\n",
    "ret", "-\r",
    "\\x73", "\\x7", "3", "&#115", "&#11", "&shy", "\\u{73}", "<!-- x -->",
    "<span a='b'>", "</span>",
    LAYERS, LAYERS[:20], HEX, HEX[:13], HEX[13:],
    "é", "\u1100", "\u1161", "\u11a8", "\U0001f600", "longer words", "\U000e0073\U000e0065",
]  # fmt: skip
TEXT = st.lists(st.sampled_from(BITS) | st.text(max_size=3), max_size=14).map("".join)
CUTS = st.lists(st.integers(0, 400), max_size=12)
RULES = [
    (rule("secret", action="mask"),),
    (rule("aa", "ab", action="mask"),),
    (rule("cat", edges=True, action="mask"), rule("secret", "se", action="mask", kind="s")),
    (rule("ab", action="mask", kind="x"), rule("ba", action="mask", kind="y")),
    (rule("aba", action="flag"), rule("secret", action="block")),
    (rule("cat", action="block"), rule("cret", action="mask"), rule("the cat", action="flag")),
    (rule("é", "ee", action="mask"), rule("secret is all", action="block", shadow=True)),
    (rule("secret", action="mask", unbounded=True), rule("aa", action="flag")),
    (rule("secret", action="flag", unbounded=True), rule("aa", action="mask")),
    (rule("secret", "e" * 320, action="mask"), rule("cret", action="flag"), rule("aa")),
    (rule("secret", "e" * 320, action="flag"), rule("aa", action="flag")),
]


def stream(
    window: Window, parts: Iterable[str], *, flushes: bool = False
) -> tuple[str, str | None]:
    """Return the released text and the blocking rule. All held text may be released by force."""
    out = ""
    try:
        for part in parts:
            out += "".join(piece.text for piece in window.feed(part))
            if flushes:
                out += "".join(piece.text for piece in window.flush())
                assert window.held_size == 0
        return out + "".join(piece.text for piece in window.close()), None
    except GuardBlocked as blocked:
        return out, f"{blocked.guard} {blocked.kind}"


def bracketed(rule: GuardRule, kind: str, text: str) -> str:
    return f"[{kind}]"


def masked_whole(text: str, rules: Sequence[GuardRule]) -> str:
    views = build_views(text)
    matches = [
        match
        for index, tally in enumerate(tallies(*rules))
        if tally.rule.enforces
        for match in find_matches(tally, index, views)
    ]
    return apply_masks(text, sorted(matches, key=lambda match: match.sort_key), rules, bracketed)


@given(TEXT, CUTS, st.sampled_from(RULES))
@example("a secret", [4], RULES[0])
@example("aaaaaaa", [1, 2, 3, 4, 5, 6], RULES[1])
@example("abababab", [1, 2, 3, 4, 5, 6, 7], RULES[3])
@example("x" * 40 + RUN + "x", [45, 60], RULES[0])
@example("s e c r e t", list(range(11)), RULES[0])
@example("cafe\u0301", [4], RULES[6])
@example("cafe%CC%81", [4], RULES[6])
@example("sec" + "\u0336" * 66 + "ret", list(range(72)), RULES[0])
@example("se" + "\u0315\u0316" * 40 + "cret", list(range(86)), RULES[4])
def test_any_cut_gives_the_same_result(
    text: str, cuts: list[int], rules: tuple[GuardRule, ...]
) -> None:
    single, cut, item = tallies(*rules), tallies(*rules), tallies(*rules)
    released, blocked = stream(Window(single, replace=bracketed), [text])

    for at_work, parts in ((cut, pieces(text, cuts)), (item, list(text))):
        observed, stopped = stream(Window(at_work, replace=bracketed), parts)

        assert stopped == blocked
        if blocked:
            assert "secret" not in observed
        else:
            assert observed == released
            assert [each.to_result() for each in at_work] == [each.to_result() for each in single]


def masked_from_edges(text: str, edges: Sequence[int]) -> str:
    """Return a text with masked secrets, each from the last edge within it."""
    output, past = "", 0
    for match in re.finditer("secret", text):
        start = max(match.start(), *(edge for edge in (0, *edges) if edge < match.end()))
        output, past = f"{output}{text[past:start]}[word]", match.end()
    return output + text[past:]


@given(st.lists(st.sampled_from(["secret", "sec", "ret", "x ", "the"]), max_size=12), CUTS)
@example(["secret"], [3])
@example(["secret", "secret"], [1, 2, 8])
@example(["secret", "x "], [6])
def test_forced_release_is_inspected_with_later_text(bits: list[str], cuts: list[int]) -> None:
    text = "".join(bits)
    edges = sorted({cut % (len(text) + 1) for cut in cuts})
    for at_work in ([rule("secret", action="mask")], [rule("secret", "e" * 320, action="mask")]):
        tallied = tallies(*at_work)

        window = Window(tallied, replace=bracketed)
        assert stream(window, pieces(text, cuts), flushes=True) == (
            masked_from_edges(text, edges),
            None,
        )
        assert tallied[0].to_result().findings.get("word", 0) == text.count("secret")
    window = Window(tallies(rule("secret", action="block")))
    observed, blocked = stream(window, pieces(text, cuts), flushes=True)
    assert (blocked is not None) == ("secret" in text)
    assert "secret" not in observed


@given(
    TEXT, CUTS, st.sampled_from([each for each in RULES if all(r.action == "mask" for r in each)])
)
def test_stream_is_masked_as_the_whole_text(
    text: str, cuts: list[int], rules: tuple[GuardRule, ...]
) -> None:
    observed, _ = stream(Window(tallies(*rules), replace=bracketed), pieces(text, cuts))

    assert observed == masked_whole(text, rules)


# Words too short for base64, which is held while it continues.
@given(st.lists(st.text("abcdefg", min_size=2, max_size=7), max_size=12).map(" ".join), CUTS)
def test_at_most_the_lookback_is_held(text: str, cuts: list[int]) -> None:
    window = Window(tallies(rule("forbidden", action="block")))

    for part in pieces(text, cuts):
        window.feed(part)
        assert window.held_size <= len("forbidden") + 2  # a cut letter may be held too


@pytest.mark.parametrize(("action", "maximum"), [("mask", 1100), ("flag", 160)])
def test_small_pieces_are_inspected_together(action: Any, maximum: int) -> None:
    counted = Counted(320)
    window = Window(tallies(GuardRule("counted", counted, action=action)))
    ahead = 0

    for _ in range(4096):
        window.feed("an ")
        ahead = max(ahead, window.held_size)

    assert 0 < counted.looks < maximum
    assert ahead <= (320 + 320 // 32 + 3 if action == "mask" else 0)


@dataclass(slots=True)
class Counted:
    """Finds nothing and counts its inspections."""

    lookback: int
    looks: int = 0

    def find(self, text: str) -> Sequence[Finding]:
        self.looks += 1
        return ()


def test_unbounded_rule_holds_to_the_end() -> None:
    window = Window(tallies(rule("b", action="mask", unbounded=True)))

    assert window.feed("abc" * 9000) == []
    assert window.held_size == 27000
    assert "".join(piece.text for piece in window.close()) == "a[WORD]c" * 9000


def test_held_base64_is_bounded() -> None:
    window = Window(tallies(rule("secret", action="block")))
    blob = base64.b64encode(b"all of it is text " * 900).decode()

    pending = []
    for part in pieces(blob, list(range(0, len(blob), 100))):
        window.feed(part)
        pending.append(window.held_size)

    assert max(pending) <= MAX_RUN_CHARS + 100
    assert pending[-1] < 100


@for_each(
    ("on_error", "expected"),
    [("open", ("s" + "\u200b" * 20_000, None)), ("closed", ("", "words could_not_check"))],
)
def test_invisible_flood_fails_the_rule(on_error: Any, expected: object) -> None:
    at_work = tallies(rule("secret", action="block", on_error=on_error))

    assert stream(Window(at_work), ["s" + "\u200b" * 20_000]) == expected
    assert at_work[0].error == "too_long_to_hold"


def test_flagging_rule_fails_without_holding() -> None:
    at_work = tallies(rule("secret", action="flag"))
    window = Window(at_work)

    for _ in range(40):
        assert [piece.text for piece in window.feed("\u200b" * 1000)] == ["\u200b" * 1000]

    assert at_work[0].to_result().error == "too_long_to_hold"


def test_too_long_text_fails_an_unbounded_rule() -> None:
    half = "it is known " * (MAX_WHOLE_CHARS // 20)
    opened = tallies(rule("secret", unbounded=True, on_error="open", action="mask"))

    assert stream(Window(opened), [half, half, "z"]) == (half + half + "z", None)
    assert opened[0].to_result().error == "too_long"
    closed = Window(tallies(rule("secret", unbounded=True)))
    assert stream(closed, [half, half]) == ("", "words could_not_check")


@for_each(
    ("keys", "expected"),
    [
        *((keys, ("", "broken could_not_check")) for keys in ({}, {"action": "mask"})),
        *(
            (keys, ("some text", None))
            for keys in ({"on_error": "open"}, {"shadow": True}, {"action": "flag"})
        ),
    ],
)
def test_failed_detector_blocks_if_it_enforces(keys: dict[str, Any], expected: object) -> None:
    at_work = tallies(GuardRule("broken", Broken(), **keys))

    assert stream(Window(at_work), ["some", " text"]) == expected
    result = at_work[0].to_result()
    assert (result.verdict, result.error) == ("failed", "ZeroDivisionError")


def test_text_after_the_end_is_separate() -> None:
    window = Window(tallies(rule("secret", action="mask")))

    assert stream(window, ["a secret, sec"]) == ("a [WORD], sec", None)
    assert stream(window, ["ret secret"]) == ("ret [WORD]", None)


@pytest.mark.parametrize("shape", SHAPES)
def test_pieces_take_linear_time(shape: str) -> None:
    result = SHAPES[shape]

    assert grown(_streamed, result(SIZE // 8), result(SIZE // 8 * TIMES)) < LINEAR


@pytest.mark.parametrize("shape", SHAPES)
def test_long_lookback_rereads_no_more(shape: str) -> None:
    text = SHAPES[shape](SIZE // 2)

    assert (
        grown(lambda lookback: _streamed(text, lookback), 100, 800, maximum=TIMES / 2) < TIMES / 2
    )


def test_many_findings_take_linear_time() -> None:
    def at_once(size: int) -> None:
        stream(Window(tallies(rule("secret", action="mask"))), ["secret, " * size])

    assert grown(at_once, SIZE // 8, SIZE // 8 * TIMES) < LINEAR


def _streamed(text: str, lookback: int = 400) -> None:
    stream(Window(tallies(rule("x" * lookback, action="mask", on_error="open"))), text)


@pytest.mark.parametrize(("size", "count"), [(BATCH_CHARS, 2), (BATCH_CHARS + 3, 1)])
def test_unbounded_rule_sees_a_long_text_raw(size: int, count: int) -> None:
    readings: list[Text] = []
    ear = GuardRule("ear", TextCollector("content", readings), "flag")
    stream(Window([RuleTally(ear, Ticks())]), ["\uff41\uff42 " * (size // 3)])

    assert len(readings) == count
