"""The syntax of rules for words: a space stands for what separates words, ``<3>`` for up to three
words. The result is plain RE2."""

from __future__ import annotations

import re
from collections.abc import Mapping

# Letters as far as phrases need to know them; RE2's own \W knows ASCII only, and \pL is hundreds of
# ranges, with which rules take thirty times as long to compile.
_LETTERS = r"A-Za-z\x{C0}-\x{1FFF}\x{2070}-\x{10FFFF}"
BETWEEN = f"[^0-9{_LETTERS}]"
_CLASSES = {r"[\pL\pN]": f"[0-9{_LETTERS}]", r"\pL": f"[{_LETTERS}]", r"\PL": f"[^{_LETTERS}]"}
_OF_EITHER_CASE = "\\x{B5}"  # beside them: the one whose other case is among them


def phrase(written: str, lists: Mapping[str, str] | None = None) -> str:
    """Return the RE2 pattern of a phrase. ``lists`` has the patterns of other names in brackets,
    which may use those behind them."""
    for name, words in (lists or {}).items():
        written = written.replace(f"<{name}>", words)
    written = re.sub(r"<(\d+)>", r"(?:[\\pL\\pN]+ ){0,\1}?", written)
    for known, cheap in _CLASSES.items():
        written = written.replace(known, cheap)
    return written.replace(" ?", f"(?:{BETWEEN}+)?").replace(" ", f"{BETWEEN}+")


def unfolded(pattern: str) -> str:
    """Return a pattern that matches the same in letters of either case, and compiles in half the
    time: RE2 looks for the other case of each letter of a class, wherever the class stands, and
    these have both."""
    for known in _CLASSES.values():
        whole = known.replace("]", f"{_OF_EITHER_CASE}]")
        pattern = pattern.replace(known, f"(?-i:{whole})")
    return pattern.replace(BETWEEN, f"(?-i:{BETWEEN[:-1]}{_OF_EITHER_CASE}])")
