"""The rules for prompt injections in English, read from `data/injection/en.json`.

A rule is there because its words have hardly another use: instructions alone are none, as manuals
are full of them. `docs/guard-quality.md` counts what the rules find. Rules for what may be harmless
have a score below the default threshold. A phrase or list may be split into several strings, and
``<drop>`` in a phrase stands for the list of that name.
"""

from __future__ import annotations

from typing import Any

import orjson

from proxy.guardrails.matching.injection_negation import InstructionContext
from proxy.guardrails.matching.injection_words import FOLDER
from proxy.guardrails.matching.phrase_rules import PhraseRule
from proxy.guardrails.matching.phrases import phrase


def _read(found: Any) -> tuple[PhraseRule, ...]:
    lists = {name: "".join(parts) for name, parts in found["lists"].items()}
    return tuple(
        PhraseRule(
            rule["kind"], rule["score"], phrase("|".join(map("".join, rule["phrases"])), lists)
        )
        for rule in found["rules"]
    )


_FILE = orjson.loads((FOLDER / "en.json").read_bytes())
RULES = _read(_FILE)
CONTEXT = InstructionContext(_FILE["context"], {})
NAMES = tuple(dict.fromkeys(rule.kind for rule in RULES))
