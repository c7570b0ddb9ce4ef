"""What is found in all that there is of a text, be it the whole of one or what is held of it."""

from __future__ import annotations

from proxy.guards.findings.rule_cursor import RuleCursor
from proxy.guards.stream.looks import ShortTexts, find_held, glance
from proxy.guards.text.text_walker import SHEET
from tests.guards.doubles import rule, tallies


def test_of_what_is_held_only_what_is_not_decided_and_acts_is_found() -> None:
    acts, flags = tallies(rule("secret", action="mask"), rule("secret", action="flag"))
    cursors = [RuleCursor(acts, 0, 6), RuleCursor(flags, 1, 6)]
    for cursor in cursors:
        cursor.since = cursor.decided = 101  # where the text begins is decided already

    found = find_held(cursors, "secret s%65cret", "x", 100, escaped=False)

    assert [(match.start, match.end, match.rule) for match in found] == [(107, 115, 0)]


def test_a_short_text_is_looked_at_by_every_rule() -> None:
    acts, flags = tallies(rule("secret"), rule("is", action="flag"))
    short = ShortTexts([RuleCursor(acts, 0, 6), RuleCursor(flags, 1, 6)], escaped=False)

    found = short.find("a secret, it is")

    assert [(match.rule, match.start) for match in found] == [(0, 2)]
    assert flags.result().findings == {"word": 1}  # what only counts is counted


def test_a_rule_of_the_whole_text_sees_a_long_one_as_it_is_written() -> None:
    [short, long, bounded] = tallies(*[rule("secret", unbounded=True)] * 2, rule("secret"))

    glance([RuleCursor(short, 0, None), RuleCursor(bounded, 1, 6)], "s%65cret", escaped=False)
    glance([RuleCursor(long, 0, None)], "s%65cret" + "x" * SHEET + "secret", escaped=False)

    assert [each.result().findings for each in (short, long, bounded)] == [
        {"word": 1},
        {"word": 1},
        {},
    ]
