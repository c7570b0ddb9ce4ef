"""What a question says beside the words that frame it.

"Lock my card" and "unlock my card" are as near to each other as two wordings of one question, so
nearness must never serve an answer. A fingerprint is the words that are left when a question's
frame ("could you tell me how to ...") is off: all of them, numbers, names, negations and words that
no list knows, in their order. Two questions have the same one when these are the same; only what
one preposition ties to another word may stand elsewhere ("the price of tea", "the tea price"). A
word that is not known as part of a frame counts, so text in other languages, code and the like is
the same only when it is the very same.

Words are kept as keyed hashes: a fingerprint can be compared, and not read.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator

from proxy.cache.wording import ASKING, FRAMES, LOOSE, SAME, TYING
from proxy.frozen import frozen

WORD_BYTES = 8
MOST_TIES = 8  # of a question; one with more says too much to be the same in another order
_QUOTES = "\"'‘’“”"  # noqa: RUF001  # quotes as people type them
_MARKS = ".,!?;:…"
_WORDY = re.compile(r"[^\W\d_]+(?:'[^\W\d_]+)?")
_OWN = frozenset({"arms", "customs", "glasses", "goods", "means", "news", "shorts"})  # no plurals
_FRAMES = tuple((re.compile(rf"\b(?:{pattern})(?!\w)"), means) for pattern, means in FRAMES)


@frozen
class Fingerprint:
    """The words of a question, hashed and in their order: ``asks`` are what kind of answer it
    wants, ``words`` the others. ``ties`` are the runs of these that a preposition ties to another
    word, with which they begin. ``untied`` are the words without prepositions, in no order: the
    same for any two questions that are ``same_as`` each other."""

    asks: tuple[int, ...]
    words: tuple[int, ...]
    ties: tuple[slice, ...]
    untied: tuple[int, ...]

    def same_as(self, other: Fingerprint) -> bool:
        """True if the two differ in nothing but their frames and the place of one tie."""
        if self.asks != other.asks or not self.words:
            return False
        return self.words == other.words or _moved(self, other) or _moved(other, self)


def _moved(one: Fingerprint, other: Fingerprint) -> bool:
    """True if the other has one of the ties elsewhere, or untied before what it is tied to:
    "pay for Bob" is not "pay Bob"."""
    untied = len(one.words) - len(other.words)  # it has its preposition no more
    if len(one.ties) > MOST_TIES or untied not in (0, 1):
        return False
    for tie in one.ties:
        tied, rest = one.words[tie][untied:], _without(one.words, tie)
        places = _before(tie.start, len(tied)) if untied else other.ties
        for place in places:
            if other.words[place] == tied and _without(other.words, place) == rest:
                return True
    return False


def _before(end: int, size: int) -> Iterator[slice]:
    """Yield the runs of so many words that begin before a place."""
    return (slice(start, start + size) for start in range(end))


def _without(words: tuple[int, ...], run: slice) -> tuple[int, ...]:
    return words[: run.start] + words[run.stop :]


def fingerprint(text: str, secret: bytes) -> Fingerprint:
    """Read a question. ``secret`` has at most 64 bytes."""
    asks: list[str] = []
    words: list[str] = []
    ties: list[list[int]] = []
    tying = False
    for word in _tokens(text):
        if word in ASKING:
            asks.append(word)
        elif word not in LOOSE:
            if word in TYING:
                ties.append([len(words), 0])
                tying = True
            words.append(word)
            if tying:
                ties[-1][1] = len(words)
            continue
        tying = tying and word != "," and ties[-1][1] - ties[-1][0] == 1
    hashed = tuple(_hashed(word, secret) for word in words)
    return Fingerprint(
        asks=tuple(_hashed(word, secret) for word in asks),
        words=hashed,
        ties=tuple(slice(*tie) for tie in ties if tie[1] - tie[0] > 1),
        untied=tuple(sorted(n for n, word in zip(hashed, words, strict=True) if word not in TYING)),
    )


def _hashed(word: str, secret: bytes) -> int:
    text = word.encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.blake2b(text, digest_size=WORD_BYTES, key=secret).digest(), "big")


def _tokens(text: str) -> Iterator[str]:
    """Yield words in one form each, and all else as it stands."""
    framed = " ".join(map(_lowered, text.replace("’", "'").split()))  # noqa: RUF001
    for pattern, means in _FRAMES:
        framed = pattern.sub(means, framed)
    for part in framed.split():
        yield from _parts(part)


def _bare(part: str) -> str:
    """Take off what ends a sentence, and quotes around words; all else may mean something."""
    bare = part.lstrip(_QUOTES).rstrip(_MARKS + _QUOTES)
    return bare if _wordy(bare) else part.rstrip(_MARKS)


def _wordy(bare: str) -> bool:
    return all(_WORDY.fullmatch(word) for word in bare.split("-"))


def _lowered(part: str) -> str:
    """Keep the case where it may mean something: acronyms, and what is no word."""
    bare = _bare(part)
    return part if not _wordy(bare) or (bare.isupper() and len(bare) > 1) else part.lower()


def _parts(part: str) -> Iterator[str]:
    bare = _bare(part)
    if not _wordy(bare) or bare.isupper():
        if bare or part not in _MARKS:
            yield bare or part
    else:
        for word in bare.split("-"):
            yield from _forms(word)
    if bare and part[-1] in _MARKS:
        yield ","


def _forms(word: str) -> Iterator[str]:
    base, _, ending = word.partition("'")
    if base.endswith("n") and ending == "t":
        base = base.removesuffix("n")
        yield from (*([_form(base)] if base else []), "not")
        return
    yield _form(base)
    if ending:
        yield f"'{ending}"


def _form(word: str) -> str:
    """Return a word without the ending of a plural; of synonyms always the same one."""
    word = SAME.get(word, word)
    if word in LOOSE or word in _OWN or len(word) < 4 or not word.endswith("s"):
        return word
    single = word
    if word.endswith("ies") and len(word) > 4:
        single = word[:-3] + "y"
    elif word.endswith(("ches", "shes", "sses", "xes", "zes")):
        single = word[:-2]
    elif not word.endswith(("ss", "us", "is")):
        single = word[:-1]
    return SAME.get(single, single)
