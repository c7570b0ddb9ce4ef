from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import re2

from proxy.guards.matching.re2set import (
    CharacterOffsets,
    Pattern,
    PatternSet,
    encode_utf8,
    replace_surrogates,
)
from tests.for_each import for_each


def test_a_set_tells_which_patterns_hit_and_gives_nothing_for_none() -> None:
    pattern_set = PatternSet(["refund", r"order \d+", "parcel"])

    assert list(pattern_set.matching_indexes(b"where is my parcel of order 17")) == [1, 2]
    assert list(pattern_set.matching_indexes(b"good morning")) == []
    assert list(PatternSet([]).matching_indexes(b"good morning")) == []


def test_a_set_that_gives_up_hides_nothing() -> None:
    # What RE2 answers when it runs out of memory is what it answers for a clean text.
    assert re2.Set.SearchSet().Match("mill") is None
    pattern_set = PatternSet(["mill", "wheel"])
    pattern_set.shared_prefilter = pattern_set.shared_prefilter._replace(
        match=re2.Set.SearchSet().Match
    )

    assert list(pattern_set.matching_indexes(b"a mill")) == [0, 1]


@for_each("pattern", ["(", "(?=a)", r"(a)\1", "a{2000}"])
def test_a_pattern_that_re2_does_not_know_is_refused_when_it_is_made(pattern: str) -> None:
    with pytest.raises(ValueError, match="not a valid RE2 pattern"):
        Pattern(pattern)


def test_matches_are_spans_of_the_whole_and_of_groups() -> None:
    pattern = Pattern("(a)|(b)c")

    assert pattern.search(b"xxbc") == [(2, 4), (-1, -1), (2, 3)]
    assert pattern.search(b"xxbc", 3) is None
    assert pattern.search(b"xxbc", 0, 3) is None
    assert pattern.match(b"abc") == (0, 1)
    assert [spans[0] for spans in pattern.find_all(b"abcbc")] == [(0, 1), (1, 3), (3, 5)]


def test_places_in_bytes_become_places_in_characters() -> None:
    text = "Grüße, 🙂 order"
    characters = CharacterOffsets(text, data := encode_utf8(text))

    words = ("ü", "ß", "🙂", "order")
    starts = [data.index(word.encode()) for word in words]
    spans = [
        characters.to_character_span(position, position + len(word.encode()))
        for position, word in zip(starts, words, strict=True)
    ]

    assert [text[start:end] for start, end in spans] == [*words]
    assert characters.seek(len(text)) == len(data)


def test_half_a_surrogate_pair_takes_one_place() -> None:
    assert encode_utf8("a\ud800b").decode() == replace_surrogates("a\ud800b") == "a\ufffdb"


def test_a_thread_beside_the_main_one_gives_way_for_as_long_as_it_has_compiled() -> None:
    def took() -> tuple[float, float]:
        clock, work = time.perf_counter(), time.thread_time()
        Pattern(r"(?:[a-z]{3,90}:){3}")
        return time.perf_counter() - clock, time.thread_time() - work

    with ThreadPoolExecutor(1) as pool:
        clock_s, work_s = pool.submit(took).result()

    assert clock_s > 1.8 * work_s
