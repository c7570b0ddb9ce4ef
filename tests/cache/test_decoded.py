"""An answer that was read is found again by the very value of the store, and by no other."""

from __future__ import annotations

from proxy.cache.cached_answer import AnswerMetadata, CachedAnswer
from proxy.cache.decoded import LARGEST, MOST, DecodedAnswers
from proxy.money.usage import Tokens

ABOUT = AnswerMetadata(
    at=1.0, streamed=False, upstream="openai", model="m", tokens=Tokens(), family="chat"
)
KEY = b"k" * 32


def answer(size: int = 10) -> CachedAnswer:
    return CachedAnswer(ABOUT, (), size)


def test_an_answer_is_found_by_its_name_and_its_value() -> None:
    decoded, kept = DecodedAnswers(), answer()
    decoded.keep((KEY, 100), b"value", kept)

    assert decoded.find((KEY, 100), b"value") is kept
    assert decoded.find((KEY, 100), b"another value") is None
    assert decoded.find((KEY, 99), b"value") is None


def test_a_later_value_takes_the_place_of_one_before() -> None:
    decoded, later = DecodedAnswers(), answer()
    decoded.keep(KEY, b"value", answer())
    decoded.keep(KEY, b"later", later)

    assert decoded.find(KEY, b"value") is None
    assert decoded.find(KEY, b"later") is later


def test_large_answers_are_not_held() -> None:
    decoded, most = DecodedAnswers(), answer(LARGEST)
    decoded.keep(KEY, b"value", answer(LARGEST + 1))
    decoded.keep(b"j" * 32, b"value", most)

    assert decoded.find(KEY, b"value") is None
    assert decoded.find(b"j" * 32, b"value") is most


def test_what_nobody_asked_for_longest_goes_first() -> None:
    decoded = DecodedAnswers()
    keys = [bytes([number]) * 32 for number in range(MOST + 1)]
    for key in keys[:-1]:
        decoded.keep(key, b"value", answer())
    assert decoded.find(keys[0], b"value") is not None

    decoded.keep(keys[-1], b"value", answer())

    assert [decoded.find(key, b"value") is None for key in keys[:3]] == [False, True, False]
