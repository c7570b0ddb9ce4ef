"""An answer that was read is found again by the very value of the store, and by no other."""

from __future__ import annotations

from proxy.cache.cached_answer import AnswerMetadata, CachedAnswer
from proxy.cache.decoded import LARGEST, MOST, DecodedAnswers
from proxy.usage import Tokens

ABOUT = AnswerMetadata(at=1.0, streamed=False, upstream="openai", model="m", tokens=Tokens())
KEY = b"k" * 32


def answer(size: int = 10) -> CachedAnswer:
    return CachedAnswer(ABOUT, (b"x" * size,), ({"choices": []},))


def test_an_answer_is_found_by_its_key_its_value_and_the_bound_it_was_read_within() -> None:
    decoded, kept = DecodedAnswers(), answer()
    decoded.keep(KEY, b"value", 100, kept)

    assert decoded.find(KEY, b"value", 100) is kept
    assert decoded.find(KEY, b"another value", 100) is None
    assert decoded.find(KEY, b"value", 99) is None
    assert decoded.find(b"j" * 32, b"value", 100) is None


def test_a_later_value_takes_the_place_of_one_before() -> None:
    decoded, later = DecodedAnswers(), answer()
    decoded.keep(KEY, b"value", 100, answer())
    decoded.keep(KEY, b"later", 100, later)

    assert decoded.find(KEY, b"value", 100) is None
    assert decoded.find(KEY, b"later", 100) is later


def test_large_answers_are_not_held() -> None:
    decoded, most = DecodedAnswers(), answer(LARGEST)
    decoded.keep(KEY, b"value", 10**6, answer(LARGEST + 1))
    decoded.keep(b"j" * 32, b"value", 10**6, most)

    assert decoded.find(KEY, b"value", 10**6) is None
    assert decoded.find(b"j" * 32, b"value", 10**6) is most


def test_what_nobody_asked_for_longest_goes_first() -> None:
    decoded = DecodedAnswers()
    keys = [bytes([number]) * 32 for number in range(MOST + 1)]
    for key in keys[:-1]:
        decoded.keep(key, b"value", 100, answer())
    assert decoded.find(keys[0], b"value", 100) is not None

    decoded.keep(keys[-1], b"value", 100, answer())

    assert [decoded.find(key, b"value", 100) is None for key in keys[:3]] == [False, True, False]
