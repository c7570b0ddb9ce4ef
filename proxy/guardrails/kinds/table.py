"""Table of guard kinds, by their name in policies, in the order of the page of guards.

A kind is imported when a policy names it. The code that runs guards is imported with the first.
"""

from __future__ import annotations

from typing import Any

from proxy.guardrails.guard_kind import GuardKind
from proxy.lazy import LazyTable

KINDS: LazyTable[GuardKind[Any]] = LazyTable(
    {
        "keywords": "proxy.guardrails.kinds.keywords:KIND",
        "pii": "proxy.guardrails.kinds.pii:KIND",
        "secrets": "proxy.guardrails.kinds.secrets:KIND",
        "urls": "proxy.guardrails.kinds.urls:KIND",
        "code": "proxy.guardrails.kinds.code:KIND",
        "length": "proxy.guardrails.kinds.length:KIND",
        "sponge": "proxy.guardrails.kinds.sponge:KIND",
        "json_schema": "proxy.guardrails.kinds.json_schema:KIND",
        "injection": "proxy.guardrails.kinds.injection:KIND",
        "toxicity": "proxy.guardrails.kinds.toxicity:KIND",
        "nsfw": "proxy.guardrails.kinds.nsfw:KIND",
        "topic": "proxy.guardrails.kinds.topic:KIND",
        "language": "proxy.guardrails.kinds.language:KIND",
        "onnx": "proxy.guardrails.kinds.onnx:KIND",
        "copyright": "proxy.guardrails.kinds.copyright:KIND",
        "system_prompt": "proxy.guardrails.kinds.system_prompt:KIND",
        "grounded": "proxy.guardrails.kinds.grounded:KIND",
        "relevant": "proxy.guardrails.kinds.relevant:KIND",
        "economics": "proxy.guardrails.kinds.economics:KIND",
        "judge": "proxy.guardrails.services.judge:KIND",
        "policy_violation": "proxy.guardrails.services.judge:POLICY_VIOLATION",
        "bias": "proxy.guardrails.services.judge:BIAS_KIND",
        "webhook": "proxy.guardrails.services.webhook:KIND",
        "presidio": "proxy.guardrails.services.presidio:KIND",
        "moderation": "proxy.guardrails.services.moderation:KIND",
    },
    beside="proxy.guardrails.run",
)
