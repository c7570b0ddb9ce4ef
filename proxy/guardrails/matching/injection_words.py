"""Words of prompt injections in other languages than English, one file per language.

`data/injection/de.json` maps each field of ``LanguageWords`` to a list of alternatives in RE2's
syntax. ``matching.phrases`` documents what it adds: a space stands for what separates words,
``<3>`` for up to three words. A letter with an accent also matches the letter without it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import Any

import orjson

from proxy.frozen import frozen

FOLDER = Path(__file__).parent / "data" / "injection"
NAMES = ("de", "fr", "es", "pt", "it", "nl", "pl", "ru", "tr", "zh", "ja", "ko", "ar", "hi")


@frozen
class LanguageWords:
    """The patterns of one language, by their role in an attack. An empty field makes no rule."""

    name: str  # ISO 639-1
    drop: str = ""  # ignore, forget
    law: str = ""  # instructions, rules
    old: str = ""  # previous, your: words before ``law``
    since: str = ""  # that you were given: words behind ``law``
    everything: str = ""
    heard: str = ""  # you were told, is above
    reveal: str = ""
    prompt: str = ""  # your system prompt
    being: str = ""  # you are, an AI
    unbound: str = ""  # without restrictions
    disable: str = ""
    safety: str = ""  # your safety filter
    mode: str = ""  # jailbreak mode is on
    developer_mode: str = ""  # a mode that is harmless unless it has no limits
    orders: str = ""  # new instructions
    to_model: str = ""  # addresses any model that reads this
    send: str = ""
    secrets: str = ""  # passwords, API keys
    quiet: str = ""  # do not tell the user
    drop_last: str = ""  # ``drop`` in languages that put the verb behind its object; so the next
    everything_last: str = ""
    reveal_last: str = ""
    being_last: str = ""
    disable_last: str = ""
    send_last: str = ""
    refuse: str = ""  # do not follow: means the same as ``drop``
    context: Mapping[str, Any] = field(default_factory=dict)  # see ``matching.injection_negation``
    spaced: bool = True  # whether spaces separate words
    latin: bool = True


def read_language(name: str) -> LanguageWords:
    """Read the file of a language, given its ISO 639-1 code."""
    found = orjson.loads((FOLDER / f"{name}.json").read_bytes())
    fields: dict[str, Any] = {
        key: "|".join(each) if isinstance(each, list) else each for key, each in found.items()
    }
    return LanguageWords(name, **fields)
