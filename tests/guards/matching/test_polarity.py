"""A clause that negates, opposes or counts otherwise what another one says contradicts it."""

from __future__ import annotations

from proxy.guards.matching.polarity import OPPOSITES, find_contradiction, parse_clauses
from proxy.guards.matching.word_overlap import stem
from tests.for_each import for_each


@for_each(
    ("answer", "known_text", "kind"),
    [
        ("Dogs are not admitted.", "Dogs are admitted.", "negation"),
        ("Overtime is paid.", "Overtime isn't paid.", "negation"),
        ("The fee can be refunded.", "The fee cannot be refunded.", "negation"),
        ("Motor boats are allowed here.", "Motor boats are forbidden here.", "negation"),
        ("The island has an airport.", "The island has no airport.", "negation"),
        ("The door is open at night.", "The door is closed at night.", "negation"),
        ("The staircase is unsafe.", "The staircase is safe.", "negation"),
        ("Photography is not allowed.", "Photography is allowed without flash.", "negation"),
        ("Simmer it for 10 minutes.", "Simmer it for 12 minutes, rest it for 10.", "number"),
        ("Requests end on 30 March.", "Requests end on 30 April.", "name"),
    ],
)
def test_a_contradiction_is_told_by_its_kind(answer: str, known_text: str, kind: str) -> None:
    assert find_contradiction(parse_clauses(answer), parse_clauses(known_text)) == kind
    assert find_contradiction(parse_clauses(known_text), parse_clauses(answer)) == kind


@for_each(
    ("answer", "known_text"),
    [
        ("Dogs are admitted.", "Dogs are admitted on a lead."),
        ("The shop does not open on Mondays.", "The shop is closed on Mondays."),
        ("You are not permitted to take photographs.", "Photographs are not permitted."),
        ("No motor boats are permitted here.", "Motor boats are banned here."),
        ("It takes no lorries, and 60 cars.", "It carries 60 cars, but no lorries."),
        ("Not only pupils may join the choir.", "Pupils may join the choir."),
        ("It needs no more than 4 eggs.", "It needs 4 eggs."),
        ("Cats like milk.", "The bridge is not open."),
        ("", "Dogs are not admitted."),
    ],
)
def test_what_says_the_same_or_something_else_is_none(answer: str, known_text: str) -> None:
    assert find_contradiction(parse_clauses(answer), parse_clauses(known_text)) is None


def test_each_clause_is_held_against_its_own() -> None:
    context_clauses = parse_clauses("The pool is not heated, but the sauna is heated.")

    assert (
        find_contradiction(parse_clauses("The sauna is heated every day."), context_clauses) is None
    )
    assert (
        find_contradiction(parse_clauses("The pool is heated every day."), context_clauses)
        == "negation"
    )


def test_opposites_know_each_other() -> None:
    assert stem("closed") in OPPOSITES["open"]
    assert all(
        side in OPPOSITES[opposite]
        for side, opposites in OPPOSITES.items()
        for opposite in opposites
    )
    assert all(side not in opposites for side, opposites in OPPOSITES.items())
