"""The kinds of guards: a detector and a line here for each, by the word that policies use."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from proxy.guardrails.kinds.code import Code
from proxy.guardrails.kinds.copyright import Copyright
from proxy.guardrails.kinds.grounded import Grounded
from proxy.guardrails.kinds.injection import Injection
from proxy.guardrails.kinds.json_schema import JsonSchema
from proxy.guardrails.kinds.keywords import Keywords, words_of
from proxy.guardrails.kinds.language import Language
from proxy.guardrails.kinds.length import Length
from proxy.guardrails.kinds.nli import Entailed
from proxy.guardrails.kinds.nsfw import Nsfw
from proxy.guardrails.kinds.onnx import Onnx
from proxy.guardrails.kinds.pii import Pii
from proxy.guardrails.kinds.relevant import Relevant
from proxy.guardrails.kinds.secrets import Secrets
from proxy.guardrails.kinds.sponge import Sponge
from proxy.guardrails.kinds.system_prompt import SystemPrompt
from proxy.guardrails.kinds.topic import Topic
from proxy.guardrails.kinds.toxicity import Toxicity
from proxy.guardrails.kinds.urls import Urls
from proxy.guardrails.services import factory
from proxy.guardrails.services.wire import SPOKEN_KINDS
from proxy.guardrails.text.normalize import folded
from proxy.types.guard import Looking

Options = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Kind:
    """How a way of looking is made of a policy's keys, which raises ``ValueError``; whether it
    reads texts with their capitals, which fields it looks at where the policy names none, whether
    it is for answers alone, and whether it asks somebody else."""

    make: Callable[[Options], Looking]
    cased: bool = True
    fields: frozenset[str] | None = None
    answers: bool = False
    asks: bool = False


@cache
def _secrets(reach: int) -> Secrets:
    """Made once for all policies: reading the rules takes longer than all else of a reload."""
    return Secrets(reach)


def _keywords(options: Options) -> Keywords:
    every = [*options["words"], *words_of(options["words_from"].splitlines())]
    words = [form for word in every for form in dict.fromkeys((word, folded(word)))]
    return Keywords("word", words, options["patterns"], whole_words=options["whole_words"])


def _injection(options: Options) -> Injection:
    return Injection(options["threshold"], rules=options["by_rules"], model=options["by_model"])


def _grounded(options: Options) -> Looking:
    folder, threshold = options["nli"], options["threshold"]
    return Entailed(folder, threshold) if folder else Grounded(threshold)


CONTENT = frozenset({"content"})
KINDS: dict[str, Kind] = {
    "keywords": Kind(_keywords, cased=False),
    "pii": Kind(lambda options: Pii(options["entities"], options["regions"], options["threshold"])),
    "secrets": Kind(lambda options: _secrets(options["reach"])),
    "urls": Kind(lambda options: Urls(options["allow"], options["deny"])),
    "code": Kind(lambda options: Code()),
    "length": Kind(lambda options: Length(**options)),
    "sponge": Kind(lambda options: Sponge()),
    "injection": Kind(_injection, cased=False),
    "toxicity": Kind(lambda options: Toxicity(options["threshold"]), cased=False),
    "nsfw": Kind(lambda options: Nsfw(options["threshold"]), cased=False),
    "topic": Kind(lambda options: Topic(**options)),
    "json_schema": Kind(lambda options: JsonSchema(options["json_schema"]), fields=CONTENT),
    "language": Kind(lambda options: Language(**options), fields=CONTENT | {"prompt"}),
    "onnx": Kind(lambda options: Onnx(options["folder"], options["labels"])),
    "copyright": Kind(
        lambda options: Copyright(
            [*options["texts"], *options["texts_from"]], options["words"], options["share"]
        )
    ),
    "system_prompt": Kind(lambda options: SystemPrompt(options["words"]), answers=True),
    "grounded": Kind(_grounded, fields=CONTENT, answers=True),
    "relevant": Kind(lambda options: Relevant(options["threshold"]), fields=CONTENT, answers=True),
    "judge": Kind(factory.judge, fields=SPOKEN_KINDS, asks=True),
    "policy_violation": Kind(factory.policy_violation, fields=SPOKEN_KINDS, asks=True),
    "bias": Kind(factory.bias, fields=SPOKEN_KINDS, asks=True),
    "webhook": Kind(factory.webhook, asks=True),
    "presidio": Kind(factory.presidio, asks=True),
    "moderation": Kind(factory.moderation, fields=SPOKEN_KINDS, asks=True),
}
