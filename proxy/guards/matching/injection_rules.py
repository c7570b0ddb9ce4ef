"""Prompt injection rules in 15 languages, from `data/injection`.

`en.json` contains the rules for English. The file of any other language contains lists of words by
their role in an attack, and `common.json` combines them to rules, so that all languages cover the
same attacks. The README of that folder describes the format.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import orjson

from proxy.guards.matching.injection_negation import InstructionContext
from proxy.guards.matching.phrase_rules import (
    PhraseRule,
    PhraseRules,
    alternatives,
    fill,
    live,
    phrase,
    read_rules,
    unfolded,
)
from proxy.guards.matching.re2set import PatternSet, encodable
from proxy.runtime.frozen import frozen
from proxy.types.guard import Finding
from proxy.types.hold import PartialMatcher

FOLDER = Path(__file__).parent / "data" / "injection"
LANGUAGES = ("de", "fr", "es", "pt", "it", "nl", "pl", "ru", "tr", "zh", "ja", "ko", "ar", "hi")
_ASCII_FORMS = {"ß": "ss", "ł": "l", "ı": "i"}  # noqa: RUF001  # Turkish
_ACCENTED = re.compile(r"\[[^\]]*\]?|[^\x00-\x7f]")  # or a character class, which may have some
_GAP = re.compile(r" <\d+>")


@frozen
class LanguageRules:
    """Rules of one language. A text that does not match ``opening`` matches no rule."""

    name: str
    rules: tuple[PhraseRule, ...]
    context: InstructionContext
    opening: str


@cache
def english() -> LanguageRules:
    return _language("en", _read("en"))


@cache
def other_languages() -> tuple[LanguageRules, ...]:
    """Return the rules of all languages except English."""
    common = _read("common")
    texts = {name: _read(name) for name in LANGUAGES}
    return tuple(
        _language(name, {**common, **text, "lists": {**common["lists"], **text["lists"]}})
        for name, text in texts.items()
    )


def _read(name: str) -> Any:
    return orjson.loads((FOLDER / f"{name}.json").read_bytes())


def _language(name: str, data: Any) -> LanguageRules:
    lists = {key: alternatives(value) for key, value in data["lists"].items()}
    rules = tuple(
        PhraseRule(f"rule:{rule.kind}", rule.score, _with_ascii_forms(rule.pattern))
        for rule in read_rules(data)
    )
    operands = {key: [lists[each] for each in keys if each in lists] for key, keys in _OPERANDS}
    if "laws" in lists:  # within one clause
        laws = fill(lists["laws"], lists).replace("[^", "[^,，、：:")  # noqa: RUF001
        operands["object"].insert(1, laws)
    opening = [each for key in data.get("opening", ()) for each in data["lists"].get(key, ())]
    return LanguageRules(
        name=name,
        rules=rules,
        context=InstructionContext(data["context"], operands, _with_ascii_forms),
        opening=_with_ascii_forms(phrase("|".join(dict.fromkeys(map(_piece, opening))))),
    )


_OPERANDS = (
    ("verb", ("drop", "reveal", "disable")),
    ("verb_last", ("drop_last", "reveal_last", "disable_last")),
    ("object", ("prompt", "safety")),
)
"""Lists that an instruction of a context may contain, by their name there."""


def _piece(alternative: str) -> str:
    """Return the longest piece between gaps: all matches contain it, and it compiles faster."""
    pieces = _GAP.split(alternative)
    if any(piece.count("(") != piece.count(")") for piece in pieces):
        return alternative
    return max(pieces, key=len)


def _with_ascii_forms(pattern: str) -> str:
    """Return a pattern in which accented letters also match their ASCII spelling."""
    return _ACCENTED.sub(_both_forms, pattern)


def _both_forms(match: re.Match[str]) -> str:
    text = match[0]
    if text[0] == "[":
        return text if text.isascii() else "".join(each + _ascii_form(each) for each in text)
    form = _ascii_form(text)
    return f"(?:{text}|{form})" if form else text


@cache
def _ascii_form(letter: str) -> str:
    """Return the ASCII spelling of an accented letter, or an empty string for other letters."""
    base = unicodedata.normalize("NFD", letter)[0]
    form = _ASCII_FORMS.get(letter, base if base.isascii() and base.isalpha() else letter)
    return "" if form == letter else form


class LanguageBook:
    """Rules of all languages except English.

    One pass finds the languages that a text may contain. The rules of a language are compiled when
    a text first contains it, or by ``prepare``. Matches longer than ``longest`` characters are
    ignored. The ``after`` characters behind a match are its context.
    """

    def __init__(self, longest: int, *, after: int = 0) -> None:
        self._after = after
        self._rules = [PhraseRules(language.rules, longest) for language in other_languages()]
        self.openings = PatternSet(f"(?i){unfolded(each.opening)}" for each in other_languages())

    def may_find(self, lines: bytes) -> bool:
        """Return False only if none of the lines has a finding."""
        return any(self._rules[index].may_find(lines) for index in self.openings.hits(lines))

    @cached_property
    def hold(self) -> PartialMatcher:
        """Partial matches of the rules of all languages."""
        return live(
            [rule for language in other_languages() for rule in language.rules], self._after
        )

    def prepare(self) -> None:
        """Compile the pattern sets of all languages."""
        for rules in self._rules:
            rules.sets  # noqa: B018  # compiled at the first use

    def load_rest(self) -> Iterator[None]:
        """Compile the single rules of all languages."""
        for rules in self._rules:
            yield from rules.load_rest()

    def find(self, text: str) -> Iterator[Finding]:
        text = encodable(text)
        for index in self.openings.hits(text.encode()):
            is_harmless = other_languages()[index].context.is_harmless
            for finding in self._rules[index].find(text):
                if not is_harmless(text, finding.start, finding.end):
                    yield finding
