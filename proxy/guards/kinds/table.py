"""Table of guard kinds by their name in policies, in the order of `docs/guards.md`.

A kind is imported when a policy uses it. The first import also imports the guard runner.
"""

from __future__ import annotations

from typing import Any

from proxy.guards.guard_kind import GuardKind
from proxy.runtime.lazy import LazyTable

KINDS: LazyTable[GuardKind[Any]] = LazyTable(
    {
        "keywords": "proxy.guards.kinds.keywords:KIND",
        "pii": "proxy.guards.kinds.pii:KIND",
        "secrets": "proxy.guards.kinds.secrets:KIND",
        "urls": "proxy.guards.kinds.urls:KIND",
        "code": "proxy.guards.kinds.code:KIND",
        "length": "proxy.guards.kinds.length:KIND",
        "sponge": "proxy.guards.kinds.sponge:KIND",
        "json_schema": "proxy.guards.kinds.json_schema:KIND",
        "injection": "proxy.guards.kinds.injection:KIND",
        "toxicity": "proxy.guards.kinds.toxicity:KIND",
        "nsfw": "proxy.guards.kinds.nsfw:KIND",
        "topic": "proxy.guards.kinds.topic:KIND",
        "language": "proxy.guards.kinds.language:KIND",
        "onnx": "proxy.guards.kinds.onnx:KIND",
        "copyright": "proxy.guards.kinds.copyright:KIND",
        "system_prompt": "proxy.guards.kinds.system_prompt:KIND",
        "grounded": "proxy.guards.kinds.grounded:KIND",
        "relevant": "proxy.guards.kinds.relevant:KIND",
        "economics": "proxy.guards.kinds.economics:KIND",
        "judge": "proxy.guards.services.judge:KIND",
        "policy_violation": "proxy.guards.services.judge:POLICY_VIOLATION",
        "bias": "proxy.guards.services.judge:BIAS_GUARD",
        "webhook": "proxy.guards.services.webhook:KIND",
        "presidio": "proxy.guards.services.presidio:KIND",
        "moderation": "proxy.guards.services.moderation:KIND",
    },
    companion="proxy.guards.run",
)
