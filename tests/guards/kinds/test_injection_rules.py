"""Each injection rule finds its attacks and no similar harmless texts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from proxy.guards.kinds.injection import FINDING_KINDS, MAX_FINDING_CHARS, load_language_rules
from proxy.guards.matching.phrase_rules import PhraseRules
from tests.for_each import for_each

BOOK = PhraseRules(load_language_rules("en").rules, MAX_FINDING_CHARS)
FILE = Path(__file__).parents[1] / "injection_attacks.yaml"
TEXTS: dict[str, Any] = yaml.safe_load(FILE.read_text("utf-8"))
ATTACKS: dict[str, list[str]] = TEXTS["attacks"]


@for_each(("name", "text"), [(name, text) for name, texts in ATTACKS.items() for text in texts])
def test_attack_is_found_by_its_rule(name: str, text: str) -> None:
    assert f"rule:{name}" in {finding.kind for finding in BOOK.find(text)}


@for_each("text", TEXTS["harmless"])
def test_similar_harmless_text_passes(text: str) -> None:
    assert BOOK.find(text) == []


def test_every_rule_has_an_attack() -> None:
    assert {f"rule:{name}" for name in ATTACKS} == set(FINDING_KINDS)
