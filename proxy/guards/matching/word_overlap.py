"""Extracts stems, numbers and names of texts, for comparing texts by words.

Stems are English. Numbers and names work in most languages.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

from proxy.runtime.frozen import frozen

MAX_SENTENCE = 600  # characters of a sentence; a longer one is cut at a word

_WORD = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]{1,3})?")  # noqa: RUF001  # the curly apostrophe
_NUMBER = re.compile(r"\d+(?:[.,]\d+)*")
_SENTENCE_END = re.compile(r"[.!?…]+(?=[\s\"'”)\]]|$)|[。！？]|\n+")  # noqa: RUF001  # full-width marks
DATA = Path(__file__).parent / "data"
_DATA = tomllib.loads((DATA / "english.toml").read_text("utf-8"))
_SUFFIXES = _DATA["suffixes"].split()
_MIN_STEM = 3  # minimum letters of a stem
STOP = frozenset(_DATA["stop_words"].split())
_NEGATING = frozenset(_DATA["negating"].split())
_NUMBER_WORDS = {word: str(number) for number, word in enumerate(_DATA["numbers"].split(), start=2)}


@frozen
class Sentence:
    """A sentence with its stems, numbers and names."""

    start: int
    end: int
    text: str
    stems: frozenset[str]
    numbers: frozenset[str]
    names: frozenset[str]


def words(text: str) -> Iterator[str]:
    return (match[0].replace("’", "'") for match in _WORD.finditer(text))  # noqa: RUF001


def stem(word: str) -> str:
    """Remove the English suffix of a lower-case word."""
    word = word.removesuffix("'s")
    for suffix in _SUFFIXES:
        if word.endswith(suffix) and len(word) - len(suffix) >= _MIN_STEM:
            word = word.removesuffix(suffix)
            break
    return word[:-1] if len(word) > _MIN_STEM and word[-1] == word[-2] else word  # planned, plan


def stems(text: str) -> list[str]:
    """Return the stems of all words except stop words and negations. Stems may repeat."""
    lowered = (word.lower() for word in words(text))
    return [stem(word) for word in lowered if word not in STOP and word not in _NEGATING]


def numbers(text: str) -> set[str]:
    """Return the numbers of a text in one notation: 1,250.00 becomes 1250, and four becomes 4."""
    values = {_number(match[0]) for match in _NUMBER.finditer(text)}
    return values | {
        _NUMBER_WORDS[word] for word in map(str.lower, words(text)) if word in _NUMBER_WORDS
    }


def _number(notation: str) -> str:
    *groups, final = re.split(r"[.,]", notation)
    if groups and len(final) != 3:  # a fraction: groups of thousands have three digits
        return ("".join(groups).lstrip("0") or "0") + ("." + final.rstrip("0")).rstrip(".")
    return "".join([*groups, final]).lstrip("0") or "0"


def names(text: str) -> set[str]:
    """Return the stems of capitalized words that are not the first word of a sentence."""
    result, starts_sentence = set(), True
    position = 0
    for match in _WORD.finditer(text):
        gap = text[position : match.start()]
        starts_sentence = starts_sentence or bool(_SENTENCE_END.search(gap + " "))
        if match[0][0].isupper() and not starts_sentence and match[0].lower() not in STOP:
            result.add(stem(match[0].lower()))
        starts_sentence, position = False, match.end()
    return result


def sentences(text: str) -> Iterator[Sentence]:
    start = 0
    for stop in _stops(text):
        part = text[start:stop]
        if part.strip():
            yield Sentence(
                start=start + len(part) - len(part.lstrip()),
                end=start + len(part.rstrip()),
                text=part.strip(),
                stems=frozenset(stems(part)),
                numbers=frozenset(numbers(part)),
                names=frozenset(names(part)),
            )
        start = stop


def _stops(text: str) -> Iterator[int]:
    position = 0
    for end in [*(match.end() for match in _SENTENCE_END.finditer(text)), len(text)]:
        while end - position > MAX_SENTENCE:
            space = text.rfind(" ", position + 1, position + MAX_SENTENCE)
            position = space if space > 0 else position + MAX_SENTENCE
            yield position
        position = end
        yield end
