"""Findings of several readings and rules become one text."""

from __future__ import annotations

import json

from proxy.guards.findings.mask import TextMatch, find_matches, masked, named, within_json
from proxy.guards.text.normalize import variants
from tests.guards.doubles import rule, tallies

RULES = [rule("x", name="one"), rule("y", name="two")]


def test_the_same_found_in_several_readings_is_found_once() -> None:
    text = "a secret, a \uff53ecret and s e c r e t"
    (tally,) = tallies(rule("secret"))

    found = find_matches(tally, 0, variants(text))

    assert [text[match.start : match.end] for match in found] == [
        "secret",
        "\uff53ecret",
        "s e c r e t",
    ]


def test_spots_can_be_looked_for_from_a_place_on() -> None:
    text = "a secret, a \uff53ecret"
    (tally,) = tallies(rule("secret"))

    assert [match.start for match in find_matches(tally, 0, variants(text), since=3)] == [12]


def test_overlapping_spots_lose_no_character() -> None:
    found = [TextMatch(1, 4, 0, "a"), TextMatch(2, 3, 1, "b"), TextMatch(3, 6, 1, "b")]
    kept: list[str] = []

    def put(rule: object, kind: str, text: str) -> str:
        kept.append(text)
        return f"<{kind}>"

    assert masked("0123456789", found, RULES, put) == "0<a><b>6789"
    assert "".join(kept) == "12345"


def test_a_mask_names_what_was_found() -> None:
    assert masked("0123", [TextMatch(1, 3, 0, "email")], RULES, named) == "0[EMAIL]3"


def test_masks_inside_of_json_are_given_the_plain_text_and_escaped() -> None:
    seen: list[str] = []

    def put(rule: object, kind: str, text: str) -> str:
        seen.append(text)
        return '"\n'

    stead = within_json(put)(RULES[0], "x", r"a\"\u00e9")

    assert seen == ['a"é']
    assert json.loads(f'"{stead}"') == '"\n'
