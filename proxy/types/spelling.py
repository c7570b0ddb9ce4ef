"""When two names of a request's field are one: servers differ in what they hold apart."""

from __future__ import annotations

from unicodedata import normalize

from proxy.words import MAX_NAME

MARKS = str.maketrans("", "", "_-")


def folded(name: str) -> str:
    """Return the name that servers may take a name for that compare without regard to the size and
    the form of letters: Go's JSON reads a long s as an s, and the sign of the Kelvin as a k.

    A longer name than ``MAX_NAME`` is returned as it is: to fold it may take minutes, and what
    is folded to a name in ASCII is no longer than that."""
    if len(name) > MAX_NAME:
        return name
    if name.isascii():
        return name.lower()
    return normalize("NFKC", normalize("NFKC", name).casefold())


def squeezed(name: str) -> str:
    """Return what a name has in common with the same in camel case or with hyphens, which servers
    of other languages take for it: ``maxTokens`` and ``max-tokens`` are ``max_tokens``."""
    return folded(name).translate(MARKS)
