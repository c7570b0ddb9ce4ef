"""The tables agree with the Unicode data that this Python knows."""

from __future__ import annotations

import re
import sys
from unicodedata import category, combining, decomposition, normalize

from proxy.guards.text.confusables import FOLDS, JOINING, UNSEEN

EVERY = [chr(code) for code in range(sys.maxunicode + 1)]


def test_a_fold_goes_from_what_nfkc_leaves_to_one_ascii_character() -> None:
    assert all(code > 127 and len(plain) == 1 and plain.isascii() for code, plain in FOLDS.items())
    assert [chr(code) for code in FOLDS if normalize("NFKC", chr(code)) != chr(code)] == []


def test_every_format_character_is_unseen() -> None:
    unseen = re.compile(f"[{UNSEEN}]")

    assert [each for each in EVERY if category(each) == "Cf" and not unseen.match(each)] == []


def test_every_character_that_composes_backwards_is_known() -> None:
    seconds = set()
    for whole in EVERY:
        parts = decomposition(whole).split()
        if len(parts) == 2 and not parts[0].startswith("<"):
            pair = "".join(chr(int(part, 16)) for part in parts)
            if normalize("NFC", pair) == whole and combining(pair[1]) == 0:
                seconds.add(pair[1])

    assert seconds <= JOINING
