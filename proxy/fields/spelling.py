"""Spellings of field names that some servers take for the same name."""

from __future__ import annotations

import re
from collections.abc import Iterable
from unicodedata import normalize

from proxy.errors.words import MAX_NAME

_FORMS_OF_ASCII = re.compile(
    r"[\x00-\x7f\xa0-\u02ff\u1d2c-\u1dbf\u1e00-\u1eff\u2000-\u20cf\u2100-\u218f\u2460-\u24ff"
    r"\u2c60-\u2c7f\u3000\u3200-\u33ff\ua700-\ua7ff\uab30-\uab6f\ufb00-\ufb06\ufe10-\ufe19"
    r"\ufe30-\ufe6f\uff00-\uffef\U00010780-\U000107ba\U0001d400-\U0001d7ff\U0001f100-\U0001f1ff"
    r"\U0001fbf0-\U0001fbf9]*"
)
"""The Unicode blocks with forms of ASCII letters, digits and marks. Folding takes constant time for
each of their characters."""
NAME_SEPARATORS = str.maketrans("", "", "_-")
MIN_MISSPELLED_LENGTH = 6
"""Shortest name in characters for which misspellings are found: ``top_k`` is none of ``top_p``."""


def casefold_name(name: str) -> str:
    """Return a name in lower case and plain letters, as case-insensitive servers read it.

    Go's JSON reads a long s as an s, and the Kelvin sign as a k.

    Names of more than ``MAX_NAME`` characters, which may take minutes, and names with characters
    that are no form of an ASCII character are returned unchanged.
    """
    if len(name) > MAX_NAME:
        return name
    if name.isascii():
        return name.lower()
    if _FORMS_OF_ASCII.fullmatch(name) is None:
        return name
    return normalize("NFKC", normalize("NFKC", name).casefold())


def normalize_name(name: str) -> str:
    """Return a case-folded name without underscores and hyphens.

    ``maxTokens``, ``max-tokens`` and ``max_tokens`` give the same name.
    """
    return casefold_name(name).translate(NAME_SEPARATORS)


def suggest_name(name: str, field_names: Iterable[str]) -> str | None:
    """Return the known name that differs from ``name`` by one edit, or None."""
    low, high = max(len(name) - 1, MIN_MISSPELLED_LENGTH), len(name) + 1
    if high < low:
        return None
    first_letter, last_letter = name[0], name[-1]
    similar = [candidate for candidate in field_names if low <= len(candidate) <= high]
    similar = [
        candidate
        for candidate in similar
        if candidate[0] == first_letter or candidate[-1] == last_letter
    ]
    return next((candidate for candidate in similar if _is_one_edit_apart(name, candidate)), None)


def _is_one_edit_apart(name: str, candidate: str) -> bool:
    """Return True if the names differ by one missing, added or changed character, or one swap."""
    pairs = enumerate(zip(name, candidate, strict=False))
    start = next((n for n, (a, b) in pairs if a != b), min(len(name), len(candidate)))
    end = start + 2
    if name[start:end] == candidate[start:end][::-1] and name[end:] == candidate[end:]:
        return True
    skip, skip_known = len(name) >= len(candidate), len(candidate) >= len(name)
    return name[start + skip :] == candidate[start + skip_known :]
