"""Removes signed and sealed thoughts that a guard has changed.

An upstream rejects a changed thought, and a sealed one still contains what a guard has masked.
"""

from __future__ import annotations

from typing import Any

from proxy.types import Json

_SIGNS = frozenset({"encrypted_content", "signature"})


def without_broken(before: Json, after: Json) -> Json:
    """Return a request without the signed blocks that a guard has changed, and without messages
    that consist of such blocks only."""
    after = _without_sealed(before, after)
    old, new = before.get("messages"), after.get("messages")
    if old is new or not isinstance(old, list) or not isinstance(new, list):
        return after
    result: list[Any] = []
    for was, now in zip(old, new, strict=True):
        blocks = now.get("content") if isinstance(now, dict) else None
        if now is was or not isinstance(blocks, list):
            result.append(now)
            continue
        whole = [
            block
            for place, block in enumerate(blocks)
            if block == was["content"][place] or not _is_signed(was["content"][place])
        ]
        if len(whole) == len(blocks):
            result.append(now)
        elif whole:
            result.append({**now, "content": whole})
    return {**after, "messages": result}


def _without_sealed(before: Json, after: Json) -> Json:
    """Return a request without the items of Responses whose sealed thoughts have changed."""
    old, new = before.get("input"), after.get("input")
    if old is new or not isinstance(old, list) or not isinstance(new, list):
        return after
    pairs = zip(old, new, strict=True)
    result = [now for was, now in pairs if now is was or _sealed(now) == _sealed(was)]
    return {**after, "input": result}


def _sealed(item: Any) -> Any:
    return item.get("encrypted_content") if isinstance(item, dict) else None


def _is_signed(block: Any) -> bool:
    return isinstance(block, dict) and (
        not _SIGNS.isdisjoint(block) or block.get("type") == "redacted_thinking"
    )
