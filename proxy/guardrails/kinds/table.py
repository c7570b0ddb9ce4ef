"""The kinds of guards: a line here for each, by the word that policies use, in the page's order."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from proxy.guardrails.guard_kind import GuardKind
from proxy.guardrails.kinds import (
    code,
    copyright,
    economics,
    grounded,
    injection,
    json_schema,
    keywords,
    language,
    length,
    nsfw,
    onnx,
    pii,
    relevant,
    secrets,
    sponge,
    system_prompt,
    topic,
    toxicity,
    urls,
)
from proxy.guardrails.services import (
    bias,
    judge,
    moderation,
    policy_violation,
    presidio,
    webhook,
)

KINDS: Mapping[str, GuardKind[Any]] = {
    "keywords": keywords.KIND,
    "pii": pii.KIND,
    "secrets": secrets.KIND,
    "urls": urls.KIND,
    "code": code.KIND,
    "length": length.KIND,
    "sponge": sponge.KIND,
    "json_schema": json_schema.KIND,
    "injection": injection.KIND,
    "toxicity": toxicity.KIND,
    "nsfw": nsfw.KIND,
    "topic": topic.KIND,
    "language": language.KIND,
    "onnx": onnx.KIND,
    "copyright": copyright.KIND,
    "system_prompt": system_prompt.KIND,
    "grounded": grounded.KIND,
    "relevant": relevant.KIND,
    "economics": economics.KIND,
    "judge": judge.KIND,
    "policy_violation": policy_violation.KIND,
    "bias": bias.KIND,
    "webhook": webhook.KIND,
    "presidio": presidio.KIND,
    "moderation": moderation.KIND,
}
