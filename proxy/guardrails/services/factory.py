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


def judge(said: Options) -> Judge | ByQuestion:
    if said["check"] == "grounded":
        return ByQuestion(_judge(said, GROUNDED, "unsupported", "grounded"))
    if said["check"] == "relevant":
        return ByQuestion(_judge(said, RELEVANT, "irrelevant", "relevant"))
    return _judge(said, said["criteria"], "violation")


def policy_violation(said: Options) -> Judge:
    rule = f"A text must not break this policy:\n{said['policy']}"
    return _judge(said, rule, "policy_violation")


def bias(said: Options) -> Judge:
    return _judge(said, BIAS, "bias")


def _judge(said: Options, rule: str, kind: str, check: Check = "criteria") -> Judge:
    common = {name: said[name] for name in ("name", "stage", "deployment", "threshold", "longest")}
    return Judge(**common, rule=rule, kind=kind, check=check)


def webhook(said: Options) -> Webhook:
    return Webhook(**{**said, "kinds": frozenset(said["kinds"])})


def presidio(said: Options) -> Presidio:
    url, entities = said["url"].rstrip("/"), tuple(said["entities"])
    return Presidio(
        url=url, entities=entities, language=said["language"], threshold=said["threshold"]
    )


def moderation(said: Options) -> Moderation:
    return Moderation(said["upstream"], said["model"], said["categories"])
