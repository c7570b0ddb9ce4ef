"""Inspects the request of a trial by the guards of its plan, except those that call a service."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from dataclasses import replace
from secrets import token_hex

from proxy.console import Data
from proxy.errors import GuardBlocked
from proxy.guards.engine import Engine, bind_to_prompt
from proxy.guards.run import OPAQUE_MESSAGE
from proxy.guards.text.walk import Path, Texts, walk_passthrough_request, walk_request
from proxy.types import Call, Plan
from proxy.types.guard import GuardRule

MAX_TEXTS = 200
RESULT_FIELDS = ("guard", "verdict", "action", "shadow", "findings", "error")


async def inspect_request(plan: Plan, call: Call) -> Data:
    """Return the verdicts of the input guards, and the inspected texts with marked findings."""
    engine = Engine(time.thread_time)
    walk = walk_request if call.head.passthrough is None else walk_passthrough_request
    texts = await engine.read_texts(walk, call.body, call.size)
    rules = bind_to_prompt(plan.guards.input_stage, call.body)
    inspection = await engine.inspect(rules.detectors, texts)
    marked = await _mark_findings(engine, rules.detectors, texts)
    blocked = inspection.blocked
    if texts.opaque and not plan.guards.allows_opaque and plan.guards.input_stage.enforces:
        kind = texts.opaque[0].kind
        blocked = GuardBlocked(OPAQUE_MESSAGE.format(kind), guard="opaque", kind=kind)
    return {
        "blocked": None
        if blocked is None
        else {"guard": blocked.guard, "message": blocked.message},
        "results": [
            {name: getattr(result, name) for name in RESULT_FIELDS} for result in inspection.results
        ],
        "not_asked": [rule.name for rule in rules.services],
        "opaque": sorted({part.kind for part in texts.opaque}),
        "texts": [
            {
                "path": ".".join(map(str, text.path)),
                "parts": marked.get(text.path, [{"text": text.text}]),
                "sent": inspection.changes.get(text.path, text.text),
            }
            for text in texts.texts[:MAX_TEXTS]
            if text.path in marked or text.kind == "content"
        ],
    }


async def _mark_findings(
    engine: Engine, detectors: Sequence[GuardRule], texts: Texts
) -> dict[Path, list[Data]]:
    """Return the texts with findings, in parts: plain ones, and those that a guard found."""
    nonce = token_hex(8)

    def mark(rule: GuardRule, kind: str, text: str) -> str:
        return f"<{nonce}|{rule.name}|{kind}|{text}|{nonce}>"

    masking = [replace(rule, action="mask", shadow=False, restore=False) for rule in detectors]
    inspection = await engine.inspect(masking, texts, mark)
    pattern = re.compile(rf"<{nonce}\|([^|]*)\|([^|]*)\|(.*?)\|{nonce}>", re.DOTALL)
    marked: dict[Path, list[Data]] = {}
    for path, text in inspection.changes.items():
        parts: list[Data] = []
        end = 0
        for match in pattern.finditer(text):
            parts.append({"text": text[end : match.start()]})
            parts.append({"text": match[3], "guard": match[1], "kind": match[2]})
            end = match.end()
        marked[path] = [*parts, {"text": text[end:]}]
    return marked
