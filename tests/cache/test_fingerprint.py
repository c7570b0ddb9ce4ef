"""Gists: what tells two questions apart, and what does not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.cache.fingerprint import fingerprint
from tests.for_each import for_each
from tests.guardrails.growth import lines
from tools.alike import SETS, pairs

SECRET = b"s" * 32
LOOK_ALIKES = [pair for name in SETS for pair in pairs(name) if not pair.same]


def same(one: str, other: str) -> bool:
    there, back = (
        fingerprint(a, SECRET).same_as(fingerprint(b, SECRET))
        for a, b in ((one, other), (other, one))
    )
    assert there == back
    return there


@for_each("pair", LOOK_ALIKES, ids=lambda pair: f"{pair.one} - {pair.other}")
def test_questions_that_only_look_alike_are_told_apart(pair: object) -> None:
    assert not same(pair.one, pair.other)  # type: ignore[attr-defined]


@for_each(
    ("one", "other"),
    [
        ("How do I reset my password?", "Could you please tell me how to reset my password"),
        ("How do I sort a list in Python?", "In Python, how can I sort a list?"),
        ("What is the capital of Portugal?", "what's the Portugal capital"),
        ("Can I buy two tickets?", "Am I allowed to purchase 2 tickets?"),
        ("When are photos deleted?", "When are pictures deleted"),
        ("Is the shop open?", "is the shop open ?"),
        ("日本の首都は?", "日本の首都は"),
    ],
)
def test_frames_marks_and_one_moved_tie_make_no_difference(one: str, other: str) -> None:
    assert same(one, other)


@for_each(
    ("one", "other"),
    [
        ("Can I pay for Bob?", "Can I pay Bob?"),
        ("How do I contact you?", "How do you contact me?"),
        ("Whose is it?", "Who is it?"),
        ("Is the US cold?", "Is us cold?"),
        ("What is 0.5?", "What is 5?"),
        ("What is -5?", "What is 5?"),
        ('What is "5" + 3?', "What is 5 + 3?"),
        ("What does !ready mean?", "What does ready mean?"),
        ("Who is the boss of Mia and the aunt of Tom?", "Who is the boss of Tom and aunt of Mia?"),
        ("What did the man who called want?", "Who did the man that called want?"),
        ("Can I park here?", "Can't I park here?"),
        ("Is it mother's brother?", "Is it brother's mother?"),
        ("milk chocolate", "chocolate milk"),
        ("What happened on May 3?", "What happened on March 3?"),
        ("¿Cuánto cuesta?", "¿Cuándo cuesta?"),
        ("Write to anna@example.test", "Write to anne@example.test"),
        ("", ""),
        ("What is it?", "What is that?"),
    ],
)
def test_small_differences_count(one: str, other: str) -> None:
    assert not same(one, other)


@given(st.text(max_size=60))
def test_any_text_is_the_same_as_itself_unless_it_says_nothing(text: str) -> None:
    read = fingerprint(text, SECRET)

    assert read.same_as(fingerprint(text, SECRET)) == bool(read.words)


@given(
    st.lists(st.sampled_from(["mia", "tom", "pays", "of", "for", "not", "3"]), max_size=6),
    st.data(),
)
def test_another_order_of_plain_words_is_another_question(
    words: list[str], data: st.DataObject
) -> None:
    other = data.draw(st.permutations(words))
    plain = [word for word in words if word not in ("of", "for")]
    mixed = [word for word in other if word not in ("of", "for")]

    if same(" ".join(plain), " ".join(mixed)):
        assert plain == mixed


def test_a_gist_cannot_be_read_and_another_secret_makes_another() -> None:
    read = fingerprint("Lock the card of Mia", SECRET)

    assert "card" not in repr(read)
    assert not read.same_as(fingerprint("Lock the card of Mia", b"t" * 32))


@pytest.mark.parametrize("more", [" zz", " of zz", ""], ids=["a word", "a tie", "nothing"])
def test_the_same_words_tied_again_and_again_are_compared_in_few_steps(more: str) -> None:
    one = " ".join(["of b"] * 200)
    question, other = (fingerprint(text, SECRET) for text in (f"zz {one}", f"{one}{more}"))

    assert lines(lambda: question.same_as(other)) < 100
    assert lines(lambda: other.same_as(question)) < 100
