"""Tables of characters that look like another one, and of invisible characters.

Source of the latter is the Unicode Character Database (format characters, variation selectors,
fillers). `data/confusables.toml` names the source of the former.
"""

from __future__ import annotations

import tomllib
from pathlib import Path

_TABLES = tomllib.loads((Path(__file__).parent / "data" / "confusables.toml").read_text("utf-8"))

FOLDS: dict[int, str] = {
    ord(look): plain
    for table in _TABLES.values()
    for plain, looks in table.items()
    for look in looks
}
"""Maps a code point to the ASCII character that it looks like, so that positions stay."""

CONTROLS = "\0-\x08\x0b\x0c\x0e-\x1f\x7f"
"""Inside of a character class: invisible controls of ASCII, without tabs and line feeds."""

UNSEEN = (
    CONTROLS + "\x80-\x9f"  # controls, private use, what is no character or stands for one
    "\ue000-\uf8ff\ufdd0-\ufdef\ufff0-\uffff\U000f0000-\U0010ffff"
    + "".join(
        f"{chr(plane + 0xFFFE)}{chr(plane + 0xFFFF)}" for plane in range(0x10000, 0xF0000, 0x10000)
    )
    + "\u00ad\u034f\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u115f\u1160\u17b4\u17b5"
    "\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u2800\u3164\ufe00-\ufe0f\ufeff\uffa0"
    "\U000110bd\U000110cd\U00013430-\U0001343f\U0001bca0-\U0001bca3"
    "\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
"""Inside of a character class: invisible characters and changes of the writing direction."""

TAGS = "\U000e0020-\U000e007e"
"""Inside of a character class: invisible tags of ASCII, which a model reads."""

JOINING = frozenset(
    "\u09be\u09d7\u0b3e\u0b56\u0b57\u0bbe\u0bd7\u0cc2\u0cd5\u0cd6\u0d3e\u0d57\u0dcf\u0ddf\u102e"
    "\u1b35\U00011127\U0001133e\U00011357\U000114b0\U000114ba\U000114bd\U000115af\U00011930"
    + "".join(map(chr, [*range(0x1161, 0x1176), *range(0x11A8, 0x11C3)]))
)
"""Characters other than marks that compose with the one before them (vowel signs, jamo)."""

MARKS = (
    "\u0300-\u036f\u0483-\u0489\u0591-\u05c7\u0610-\u061a\u064b-\u065f\u0670\u0e31-\u0e3a\u0e47-\u0e4e"
    "\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\u3099\u309a\ufe20-\ufe2f"
)
"""Inside of a character class: marks that occur on letters of other scripts."""
