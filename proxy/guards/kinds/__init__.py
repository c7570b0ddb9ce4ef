"""Table of guard kinds by their name in policies, in the order of `docs/guards.md`.

A kind is imported when a policy uses it. The first import also imports the guard runner.
"""

from __future__ import annotations

from typing import Any

from proxy.guards.guard_kind import GuardKind
from proxy.runtime.lazy import LazyImportTable

KINDS: LazyImportTable[GuardKind[Any]] = LazyImportTable(
    {
        "keywords": "proxy.guards.kinds.keywords:KIND",
        "pii": "proxy.guards.kinds.pii:KIND",
        "secrets": "proxy.guards.kinds.secrets:KIND",
        "urls": "proxy.guards.kinds.urls:KIND",
        "code": "proxy.guards.kinds.code:KIND",
        "length": "proxy.guards.kinds.resources:LENGTH_GUARD",
        "sponge": "proxy.guards.kinds.resources:SPONGE_GUARD",
        "json_schema": "proxy.guards.kinds.json_schema:KIND",
        "injection": "proxy.guards.kinds.injection:KIND",
        "toxicity": "proxy.guards.kinds.wordlist:TOXICITY_GUARD",
        "nsfw": "proxy.guards.kinds.wordlist:NSFW_GUARD",
        "topic": "proxy.guards.kinds.topic:KIND",
        "language": "proxy.guards.kinds.language:KIND",
        "onnx": "proxy.guards.kinds.onnx:KIND",
        "copyright": "proxy.guards.kinds.passages:COPYRIGHT_GUARD",
        "system_prompt": "proxy.guards.kinds.passages:SYSTEM_PROMPT_GUARD",
        "grounded": "proxy.guards.kinds.evidence:GROUNDED_GUARD",
        "relevant": "proxy.guards.kinds.evidence:RELEVANT_GUARD",
        "economics": "proxy.guards.kinds.resources:ECONOMICS_GUARD",
        "judge": "proxy.guards.services.judge:KIND",
        "policy_violation": "proxy.guards.services.judge:POLICY_VIOLATION",
        "bias": "proxy.guards.services.judge:BIAS_GUARD",
        "webhook": "proxy.guards.services.webhook:KIND",
        "presidio": "proxy.guards.services.presidio:KIND",
        "moderation": "proxy.guards.services.moderation:KIND",
    },
    companion="proxy.guards.run",
)
