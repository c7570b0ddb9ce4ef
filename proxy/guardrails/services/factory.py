"""How guards that ask somebody else are made of what a policy says of them.

Beside its keys they are given their name and stage, and what its references stand for.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from proxy.guardrails.services.judge import BIAS, GROUNDED, RELEVANT, ByQuestion, Check, Judge
from proxy.guardrails.services.moderation import Moderation
from proxy.guardrails.services.presidio import Presidio
from proxy.guardrails.services.webhook import Webhook

Options = Mapping[str, Any]


def judge(options: Options) -> Judge | ByQuestion:
    if options["check"] == "grounded":
        return ByQuestion(_judge(options, GROUNDED, "unsupported", "grounded"))
    if options["check"] == "relevant":
        return ByQuestion(_judge(options, RELEVANT, "irrelevant", "relevant"))
    return _judge(options, options["criteria"], "violation")


def policy_violation(options: Options) -> Judge:
    rule = f"A text must not break this policy:\n{options['policy']}"
    return _judge(options, rule, "policy_violation")


def bias(options: Options) -> Judge:
    return _judge(options, BIAS, "bias")


def _judge(options: Options, rule: str, kind: str, check: Check = "criteria") -> Judge:
    common = {
        name: options[name] for name in ("name", "stage", "deployment", "threshold", "longest")
    }
    return Judge(**common, rule=rule, kind=kind, check=check)


def webhook(options: Options) -> Webhook:
    return Webhook(**{**options, "kinds": frozenset(options["kinds"])})


def presidio(options: Options) -> Presidio:
    url, entities = options["url"].rstrip("/"), tuple(options["entities"])
    return Presidio(
        url=url, entities=entities, language=options["language"], threshold=options["threshold"]
    )


def moderation(options: Options) -> Moderation:
    return Moderation(options["upstream"], options["model"], options["categories"])
