"""What attacks on a model say in languages beside English: the same tricks, in each one's words.

A language is a list of words; the tricks are built of them here, so that each language knows all. A
text is read once for words that some rule of a language needs, of all languages together, and by
the rules of those languages alone whose words it has.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import replace
from functools import cache, cached_property, lru_cache
from typing import NamedTuple

from proxy.frozen import frozen
from proxy.guardrails.matching.injection_negation import InstructionContext
from proxy.guardrails.matching.injection_words import NAMES, LanguageWords, read_language
from proxy.guardrails.matching.phrase_rules import PhraseRule, PhraseRules, encodable, live
from proxy.guardrails.matching.phrases import BETWEEN, phrase, unfolded
from proxy.guardrails.matching.re2set import PatternSet, prefilter
from proxy.guardrails.matching.worked_out import digest, worked_out
from proxy.types.guard import Finding, MayFind
from proxy.types.hold import Hold

GAP = "\ufdd0"  # what separates words, in a string that a rule needs
SURE, LIKELY, MAYBE = 0.99, 0.97, 0.9
ADDRESS = r"(?:https?://[^\s]{1,100}|[\w.+\-]+@[\w.\-]+|[\w\-]+\.(?:com|net|io|org|example|test)\b)"
LINE = r"(?:^|[\n.!?。！？#\]>*\-])\s{0,3}"  # noqa: RUF001  # full-width signs
LANGUAGES = tuple(map(read_language, NAMES))
# RE2 knows the edge of a word in ASCII alone; where endings are written on, none is asked for.
EDGES = {"ru": r"(?:^|\PL)", "ar": r"(?:^|\PL)"}
# As they are typed where keys for them lack.
OTHER_LETTERS = {"ß": "ss", "ł": "l", "ı": "i"}  # noqa: RUF001  # Turkish
ACCENTED = re.compile(r"\[[^\]]*\]?|[^\x00-\x7f]")  # or a class, which may have such letters

Rule = tuple[str, float, str]


@frozen
class LanguageRules:
    """One language's rules, what is in each text that one of them hits, and its negations."""

    name: str
    opening: str
    rules: tuple[PhraseRule, ...]
    context: InstructionContext


class LanguageBook:
    """Compiles a language when a text first opens it, or all of them beforehand."""

    def __init__(self, longest: int, *, after: int = 0) -> None:
        """``longest`` bounds a finding in characters: a longer match is none. ``after`` is how many
        characters behind a match decide about it."""
        self._longest, self._after = longest, after
        self._languages = all_languages()
        self._opened: list[CompiledLanguage | None] = [None] * len(self._languages)
        self.openings = PatternSet(f"(?i){unfolded(each.opening)}" for each in self._languages)

    def may_find(self, lines: bytes) -> bool:
        """False only if none of these lines has a finding. A word that opens a language is mostly
        one of another: its rules tell."""
        for index in self.openings.hits(lines):
            may_hit = (self._opened[index] or self._open(index)).may_hit
            if may_hit is None or may_hit(lines):
                return True
        return False

    @cached_property
    def hold(self) -> Hold:
        """Return what tells of a stream how a rule of one of the languages may go on."""
        return live([rule for each in self._languages for rule in each.rules], self._after)

    def prepare(self) -> None:
        """Compile what tells whether a rule may hit, of all languages: one has words of others."""
        for index, opened in enumerate(self._opened):
            if opened is None:
                self._open(index)

    def load_rest(self) -> Iterator[None]:
        """Compile what tells where rules hit, of all languages."""
        for index, opened in enumerate(self._opened):
            yield from (opened or self._open(index)).rules.load_rest()

    def _open(self, index: int) -> CompiledLanguage:
        opened = self._opened[index] = _compiled(self._languages[index], self._longest)
        return opened

    def find(self, text: str) -> Iterator[Finding]:
        text = encodable(text)
        for index in self.openings.hits(text.encode()):
            rules, _ = self._opened[index] or self._open(index)
            is_harmless = self._languages[index].context.is_harmless
            for found in rules.find(text):
                if not is_harmless(text, found.start, found.end):
                    yield found


class CompiledLanguage(NamedTuple):
    """One language's rules, and what tells of lines whether a rule may hit."""

    rules: PhraseRules
    may_hit: MayFind | None


def _compiled(language: LanguageRules, longest: int) -> CompiledLanguage:
    rules = PhraseRules(language.rules, longest)
    return CompiledLanguage(rules, prefilter(rules.sets))


@lru_cache(maxsize=1)
def all_languages() -> tuple[LanguageRules, ...]:
    return tuple(map(_built, LANGUAGES))


def _built(words: LanguageWords) -> LanguageRules:
    rules = phrases_of(words)
    needed = worked_out()["needed"]
    needs = set[str]().union(*(needed[digest(rule.pattern)] for rule in rules))
    opened = [re.escape(each).replace(GAP, f"{BETWEEN}+") for each in sorted(needs)]
    return LanguageRules(
        name=words.name,
        opening=_plain("|".join(opened)),
        rules=tuple(replace(rule, pattern=_plain(rule.pattern)) for rule in rules),
        context=InstructionContext(words.context, _parts(words), _plain),
    )


def _parts(words: LanguageWords) -> dict[str, list[str]]:
    """Return the verbs and objects that a negation may be about."""
    laws = _laws(words).replace("[^", "[^,，、：:")  # noqa: RUF001  # gaps of one clause
    parts = {
        "verb": [words.drop, words.reveal, words.disable],
        "verb_last": [words.drop_last, words.reveal_last, words.disable_last],
        "object": [words.prompt, laws, words.safety],
    }
    return {name: [each for each in patterns if each] for name, patterns in parts.items()}


def phrases_of(words: LanguageWords) -> list[PhraseRule]:
    """Return the rules of a language, its letters as they are written."""
    return [
        PhraseRule(f"rule:{kind}", score, phrase(written)) for kind, score, written in _rules(words)
    ]


def _rules(words: LanguageWords) -> Iterator[Rule]:
    """Yield the rules of a language: of those that it has words for."""
    two, four, five, seven = (_gap(words, count) for count in (2, 4, 5, 7))
    edge = EDGES.get(words.name, "" if not words.latin else r"\b")
    url, all_heard = f"{five}{ADDRESS}", f"(?:{words.everything}){five}"
    laws = _laws(words)
    for kind, score, first, gap, then in (
        ("override", SURE, _drop(words, edge), four, laws),
        ("override", SURE, laws if words.drop_last else "", four, words.drop_last),
        (
            "override",
            LIKELY,
            _drop(words, edge),
            two,
            words.heard and f"{all_heard}(?:{words.heard})",
        ),
        ("reveal_prompt", LIKELY, _begun(edge, words.reveal), five, words.prompt),
        ("reveal_prompt", LIKELY, words.prompt, seven, words.reveal_last),
        ("no_limits", LIKELY, words.being, seven, words.unbound),
        ("disable_safety", LIKELY, _begun(edge, words.disable), four, words.safety),
        ("disable_safety", LIKELY, words.safety, four, words.disable_last),
        ("mode", LIKELY, words.developer_mode, five, words.unbound),
        ("mode", LIKELY, words.unbound, four, words.developer_mode),
        ("exfiltrate", LIKELY, _begun(edge, words.send), five, f"(?:{words.secrets}){url}"),
        ("exfiltrate", LIKELY, f"(?:{words.secrets}){url}", _gap(words, 1), words.send_last),
    ):
        if first and then:
            yield kind, score, f"(?:{first}){gap}(?:{then})"
    yield "new_orders", LIKELY, rf"{LINE}(?:{words.orders})\s{{0,2}}[:：=]"  # noqa: RUF001  # full width
    yield "mode", LIKELY, f"(?:{words.mode})"
    yield "to_the_model", LIKELY, f"(?:{words.to_model})"
    yield "in_secret", MAYBE, f"(?:{words.quiet})"
    if words.everything_last:
        yield "override", LIKELY, words.everything_last


def _begun(edge: str, verbs: str) -> str:
    return verbs and f"{edge}(?:{verbs})"


def _drop(words: LanguageWords, edge: str) -> str:
    """Return the verbs of leaving rules aside."""
    if not words.drop:
        return ""
    return f"{edge}(?:{words.drop}|{words.refuse})" if words.refuse else f"{edge}(?:{words.drop})"


def _laws(words: LanguageWords) -> str:
    laws = f"(?:{words.old}){_gap(words, 2)}(?:{words.law})"
    if words.since:
        laws = f"(?:{laws}|(?:{words.law}){_gap(words, 4)}(?:{words.since}))"
    return laws


def _gap(words: LanguageWords, count: int) -> str:
    """Return what may stand between two parts of a phrase: up to so many words, or letters in their
    measure where words do not stand apart."""
    if words.spaced:
        return f" <{count}>"
    return rf"[^.。!！\n]{{0,{3 * count + 2}}}"  # noqa: RUF001  # full-width signs


def _plain(pattern: str) -> str:
    """Let a letter with an accent stand for the one without as well, as it is often typed."""
    return ACCENTED.sub(_both, pattern)


def _both(written: re.Match[str]) -> str:
    """Return a letter, or the letters of a class, with those that are typed for them."""
    text = written[0]
    if text[0] == "[":
        return text if text.isascii() else "".join(each + _typed(each) for each in text)
    typed = _typed(text)
    return f"(?:{text}|{typed})" if typed else text


@cache
def _typed(letter: str) -> str:
    """Return what is typed for a letter; nothing where that is the letter itself."""
    base = unicodedata.normalize("NFD", letter)[0]
    plain = OTHER_LETTERS.get(letter, base if base.isascii() and base.isalpha() else letter)
    return "" if plain == letter else plain
