"""When two names of a request's field are one: servers differ in what they hold apart."""

from __future__ import annotations

import re
from collections.abc import Iterable
from unicodedata import normalize

from proxy.words import MAX_NAME

_FORMS_OF_ASCII = re.compile(
    r"[\x00-\x7f\xa0-\u02ff\u1d2c-\u1dbf\u1e00-\u1eff\u2000-\u20cf\u2100-\u218f\u2460-\u24ff"
    r"\u2c60-\u2c7f\u3000\u3200-\u33ff\ua700-\ua7ff\uab30-\uab6f\ufb00-\ufb06\ufe10-\ufe19"
    r"\ufe30-\ufe6f\uff00-\uffef\U00010780-\U000107ba\U0001d400-\U0001d7ff\U0001f100-\U0001f1ff"
    r"\U0001fbf0-\U0001fbf9]*"
)
"""The blocks of all letters, digits and marks that are forms of those of ASCII. None of their
characters is a combining one, or many in another form: to fold them takes no time."""
MARKS = str.maketrans("", "", "_-")
MIN_MISSPELLED = 6
"""Characters of the shortest name that a similar one may be a typing error of: ``top_k`` is none of
``top_p``."""


def folded(name: str) -> str:
    """Return the name that servers may take a name for that compare without regard to the size and
    the form of letters: Go's JSON reads a long s as an s, and the sign of the Kelvin as a k.

    A longer name than ``MAX_NAME`` is returned as it is: to fold it may take minutes, and what
    is folded to a name in ASCII is no longer than that. So is one with a character that is no form
    of one of ASCII, as no server takes it for a name that is known."""
    if len(name) > MAX_NAME:
        return name
    if name.isascii():
        return name.lower()
    if _FORMS_OF_ASCII.fullmatch(name) is None:
        return name
    return normalize("NFKC", normalize("NFKC", name).casefold())


def squeezed(name: str) -> str:
    """Return what a name has in common with the same in camel case or with hyphens, which servers
    of other languages take for it: ``maxTokens`` and ``max-tokens`` are ``max_tokens``."""
    return folded(name).translate(MARKS)


def meant_by(name: str, known: Iterable[str]) -> str | None:
    """Return the known name from which one edit leads to a name, or None."""
    low, high = max(len(name) - 1, MIN_MISSPELLED), len(name) + 1
    if high < low:
        return None
    first, last = name[0], name[-1]
    similar = [each for each in known if low <= len(each) <= high]
    similar = [each for each in similar if each[0] == first or each[-1] == last]
    return next((each for each in similar if _is_one_edit(name, each)), None)


def _is_one_edit(name: str, known: str) -> bool:
    """Return True if one character is missing, added or changed, or two are swapped."""
    pairs = enumerate(zip(name, known, strict=False))
    start = next((n for n, (a, b) in pairs if a != b), min(len(name), len(known)))
    end = start + 2
    if name[start:end] == known[start:end][::-1] and name[end:] == known[end:]:
        return True
    skip, skip_known = len(name) >= len(known), len(known) >= len(name)
    return name[start + skip :] == known[start + skip_known :]
