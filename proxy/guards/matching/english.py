"""Compares English texts by their stems, numbers and names, and finds contradicting clauses.

Two clauses that share words contradict each other if one negates the other, contains the opposite
of one of its words, or counts the same things differently. Subjects and objects are not compared.
Numbers and names work in most languages.
"""

from __future__ import annotations

import re
import tomllib
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence, Set
from functools import partial

from proxy.guards.matching.phrase_rules import DATA_FOLDER
from proxy.runtime.frozen import frozen

MAX_SENTENCE_CHARS = 600  # characters of a sentence; a longer one is cut at a word

_WORD = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]{1,3})?")  # noqa: RUF001  # the curly apostrophe
_NUMBER = re.compile(r"\d+(?:[.,]\d+)*")
_SENTENCE_END = re.compile(r"[.!?…]+(?=[\s\"'”)\]]|$)|[。！？]|\n+")  # noqa: RUF001  # full-width marks
_DATA = tomllib.loads((DATA_FOLDER / "english.toml").read_text("utf-8"))
_SUFFIXES = _DATA["suffixes"].split()
_MIN_STEM = 3  # minimum letters of a stem
STOP_WORDS = frozenset(_DATA["stop_words"].split())
_SKIPPED_WORDS = STOP_WORDS.union(_DATA["negating"].split())
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


def split_words(text: str) -> Iterator[str]:
    return (match[0].replace("’", "'") for match in _WORD.finditer(text))  # noqa: RUF001


def stem_word(word: str) -> str:
    """Remove the English suffix of a lower-case word."""
    word = word.removesuffix("'s")
    for suffix in _SUFFIXES:
        if word.endswith(suffix) and len(word) - len(suffix) >= _MIN_STEM:
            word = word.removesuffix(suffix)
            break
    return word[:-1] if len(word) > _MIN_STEM and word[-1] == word[-2] else word  # planned, plan


def find_content_stems(text: str) -> list[str]:
    """Return the stems of all words except stop words and negations. Stems may repeat."""
    words = map(str.lower, split_words(text))
    return [stem_word(word) for word in words if word not in _SKIPPED_WORDS]


def find_normalized_numbers(text: str) -> set[str]:
    """Return the numbers of a text in one notation: 1,250.00 becomes 1250, and four becomes 4."""
    values = {
        _NUMBER_WORDS[word] for word in map(str.lower, split_words(text)) if word in _NUMBER_WORDS
    }
    for match in _NUMBER.finditer(text):
        *groups, final = re.split(r"[.,]", match[0])
        fraction = ""
        if groups and len(final) != 3:  # groups of thousands have three digits
            fraction, final = f".{final}".rstrip("0").rstrip("."), ""
        values.add(("".join([*groups, final]).lstrip("0") or "0") + fraction)
    return values


def find_name_stems(text: str) -> set[str]:
    """Return the stems of capitalized words that are not the first word of a sentence."""
    result, starts_sentence = set(), True
    position = 0
    for match in _WORD.finditer(text):
        gap = text[position : match.start()]
        starts_sentence = starts_sentence or bool(_SENTENCE_END.search(gap + " "))
        if match[0][0].isupper() and not starts_sentence and match[0].lower() not in STOP_WORDS:
            result.add(stem_word(match[0].lower()))
        starts_sentence, position = False, match.end()
    return result


def split_sentences(text: str) -> Iterator[Sentence]:
    start = 0
    for stop in _find_sentence_ends(text):
        part = text[start:stop]
        if part.strip():
            yield Sentence(
                start=start + len(part) - len(part.lstrip()),
                end=start + len(part.rstrip()),
                text=part.strip(),
                stems=frozenset(find_content_stems(part)),
                numbers=frozenset(find_normalized_numbers(part)),
                names=frozenset(find_name_stems(part)),
            )
        start = stop


def rank_by_shared_stems(sentence: Sentence, candidates: Sequence[Sentence]) -> list[Sentence]:
    """Return the candidates, those that share the most stems with a sentence first."""
    return sorted(candidates, key=lambda candidate: -len(candidate.stems & sentence.stems))


def _find_sentence_ends(text: str) -> Iterator[int]:
    position = 0
    for end in [*(match.end() for match in _SENTENCE_END.finditer(text)), len(text)]:
        while end - position > MAX_SENTENCE_CHARS:
            space = text.rfind(" ", position + 1, position + MAX_SENTENCE_CHARS)
            position = space if space > 0 else position + MAX_SENTENCE_CHARS
            yield position
        position = end
        yield end


MIN_SIMILARITY = 0.5  # minimum share of common stems of comparable clauses
MIN_SHARED_STEMS = 2  # minimum shared stems, of which one may be an opposite
MIN_NEGATED_SHARE = 0.6  # minimum share of common stems if no negation applies to one
NEGATION_SCOPE = 3  # content words behind a negation in its scope
MIN_CLAUSE_WORDS = 2  # content words of a clause; shorter clauses are joined with the previous one

_CLAUSE_BREAK = re.compile(
    rf"[,;:()\u2013\u2014]+|\b(?:{'|'.join(_DATA['clause_breaks'])})\b", re.IGNORECASE
)
# Idioms with a negation that negate nothing.
_NEGATED_IDIOMS = re.compile(
    rf"\b(?:{'|'.join(_DATA['negated_idioms'])})\b|\bno\. ?(?=\d)", re.IGNORECASE
)
NEGATE_FOLLOWING, NEGATE_CLAUSE, NEGATE_PRECEDING = (
    frozenset(_DATA["negations"][scope].split()) for scope in ("following", "whole", "preceding")
)
NEGATIONS = NEGATE_FOLLOWING | NEGATE_CLAUSE | NEGATE_PRECEDING
_SKIPPED_BY_NEGATION = frozenset({"longer", "any", "anymore", "more"})  # no longer, not any more
CALENDAR_WORDS = frozenset(_DATA["calendar"].split())
_WORD_OR_NUMBER = re.compile(r"\d+(?:[.,]\d+)*|[^\W\d_]+(?:['’][^\W\d_]{1,3})?")  # noqa: RUF001  # curly

NEGATIVE_PREFIXES = _DATA["negative_prefixes"].split()


def _read_opposites() -> Mapping[str, frozenset[str]]:
    """Return the opposites of each stem, from pairs such as ``rise/fall``."""
    opposites: defaultdict[str, frozenset[str]] = defaultdict(frozenset)
    for pair in (DATA_FOLDER / "opposites_en.txt").read_text("utf-8").split():
        positive, negative = map(stem_word, pair.split("/"))
        if positive != negative:
            opposites[positive] |= {negative}
            opposites[negative] |= {positive}
    return {**opposites}


OPPOSITES = _read_opposites()
_NEGATION_STEMS = frozenset(map(stem_word, NEGATIONS))


@frozen
class Clause:
    """Stems, numbers and negations of a part of a sentence, which are compared."""

    stems: frozenset[str]
    directly_negated_stems: frozenset[str]  # directly after a negation
    negated_stems: frozenset[str]
    is_negated: bool  # True for an odd number of negations
    stems_with_opposite: frozenset[str]  # stems with an opposite
    numbers_by_unit: Mapping[str, Set[str]]  # numbers by the stem that they count
    calendar_words: frozenset[str]


def parse_clauses(sentence: str) -> tuple[Clause, ...]:
    """Return the clauses of a sentence, and the whole sentence if there are several clauses."""
    parts = list(_split_clause_texts(_NEGATED_IDIOMS.sub(" ", sentence)))
    read = [clause for part in parts if (clause := _parse_clause(part)).stems]
    return tuple(read) if len(read) < 2 else (*read, _parse_clause(" ".join(parts)))


def _split_clause_texts(sentence: str) -> Iterator[str]:
    pending, pending_count, start = "", 0, 0
    for end in [*(match.start() for match in _CLAUSE_BREAK.finditer(sentence)), len(sentence)]:
        part = sentence[start:end]
        count = len(find_content_stems(part))
        if min(pending_count, count) >= MIN_CLAUSE_WORDS:
            yield pending
            pending, pending_count = "", 0
        pending, pending_count, start = pending + part, pending_count + count, end
    if pending.strip():
        yield pending


def _parse_clause(text: str) -> Clause:
    pieces = [match[0].lower().replace("’", "'") for match in _WORD_OR_NUMBER.finditer(text)]  # noqa: RUF001
    all_stems = frozenset(map(stem_word, pieces))
    clause_stems = frozenset(find_content_stems(text)) - _NEGATION_STEMS
    directly_negated_stems, negated_stems, is_negated = _find_negations(pieces, clause_stems)
    return Clause(
        stems=clause_stems,
        directly_negated_stems=directly_negated_stems,
        negated_stems=negated_stems,
        is_negated=is_negated,
        stems_with_opposite=all_stems & OPPOSITES.keys(),
        numbers_by_unit=_find_numbers_by_unit(pieces),
        calendar_words=CALENDAR_WORDS.intersection(pieces),
    )


def _find_negations(
    pieces: Sequence[str], clause_stems: frozenset[str]
) -> tuple[frozenset[str], frozenset[str], bool]:
    """Return directly negated stems, all negated stems, and True for an odd number of negations.

    A negation of the whole clause negates all stems directly.
    """
    directly_negated_stems, negated_stems, remaining, is_negated = set[str](), set[str](), 0, False
    for piece, stem in zip(pieces, map(stem_word, pieces), strict=True):
        if piece in NEGATIONS or piece.endswith("n't"):
            is_negated, remaining = not is_negated, NEGATION_SCOPE
            if piece in NEGATE_CLAUSE or piece in NEGATE_PRECEDING:
                directly_negated_stems |= clause_stems
                negated_stems |= clause_stems
                remaining = 0
        elif remaining and piece not in _SKIPPED_BY_NEGATION and stem in clause_stems:
            if remaining == NEGATION_SCOPE:
                directly_negated_stems.add(stem)
            negated_stems.add(stem)
            remaining -= 1
    return frozenset(directly_negated_stems), frozenset(negated_stems), is_negated


def _find_numbers_by_unit(pieces: Sequence[str]) -> Mapping[str, Set[str]]:
    numbers: defaultdict[str, set[str]] = defaultdict(set)
    for index, piece in enumerate(pieces[:-1]):
        unit = next((word for word in pieces[index + 1 : index + 3] if word[0].isalpha()), "")
        if (values := find_normalized_numbers(piece)) and unit and unit not in STOP_WORDS:
            numbers[stem_word(unit)] |= values
    return numbers


def find_contradiction(response: Sequence[Clause], context: Sequence[Clause]) -> str | None:
    """Return the kind of a contradiction between a response and its context, or None.

    The kinds are ``number``, ``name`` and ``negation``.
    """
    results = []
    for clause in response:
        nearest = max(context, key=partial(_get_containment_and_jaccard, clause), default=None)
        if nearest is None or _get_containment_and_jaccard(clause, nearest) < (MIN_SIMILARITY, 0):
            continue
        if len(clause.stems & nearest.stems) + _has_opposite(clause, nearest) >= MIN_SHARED_STEMS:
            results.append(_classify_contradiction(clause, nearest))
    return next((kind for kind in results if kind), None)


def _get_containment_and_jaccard(clause: Clause, reference: Clause) -> tuple[float, float]:
    """Return the shared part of the stems of the clause, and of the stems of both clauses."""
    if not clause.stems or not reference.stems:
        return (0.0, 0.0)
    common = len(clause.stems & reference.stems)
    return (common / len(clause.stems), common / len(clause.stems | reference.stems))


def _classify_contradiction(clause: Clause, reference: Clause) -> str | None:
    for unit in clause.numbers_by_unit.keys() & reference.numbers_by_unit.keys():
        if not clause.numbers_by_unit[unit] & reference.numbers_by_unit[unit]:
            return "number"
    words, reference_words = clause.calendar_words, reference.calendar_words
    if words and reference_words and not words & reference_words:
        return "name"
    has_opposite = _has_opposite(clause, reference)
    return "negation" if _contradicts_by_negation(clause, reference) != has_opposite else None


def _contradicts_by_negation(clause: Clause, reference: Clause) -> bool:
    """Return True if one of two clauses negates the statement of both.

    Two negated clauses agree unless one negates a shared stem that the other affirms.
    """
    shared = clause.stems & reference.stems
    shared |= _find_opposites(clause, reference) | _find_opposites(reference, clause)
    if clause.is_negated == reference.is_negated:
        return any(
            (stems := negating.directly_negated_stems & shared) and not stems & other.negated_stems
            for negating, other in ((clause, reference), (reference, clause))
        )
    if (clause.directly_negated_stems | reference.directly_negated_stems) & shared:
        return True
    return len(shared) >= MIN_NEGATED_SHARE * len(clause.stems | reference.stems)


def _find_opposites(clause: Clause, reference: Clause) -> frozenset[str]:
    """Return the stems of a clause for which the other clause contains an opposite instead."""
    candidates = reference.stems_with_opposite - clause.stems_with_opposite
    clause_only = clause.stems_with_opposite - reference.stems_with_opposite
    return frozenset(stem for stem in clause_only if OPPOSITES[stem] & candidates)


def _has_opposite(clause: Clause, reference: Clause) -> bool:
    """Return True if one clause has the opposite of a stem of the other, and not that stem."""
    if _find_opposites(clause, reference):
        return True
    clause_only, reference_only = clause.stems - reference.stems, reference.stems - clause.stems
    return any(
        prefix + stem in other_stems
        for stems, other_stems in ((clause_only, reference_only), (reference_only, clause_only))
        for stem in stems
        for prefix in NEGATIVE_PREFIXES
    )
