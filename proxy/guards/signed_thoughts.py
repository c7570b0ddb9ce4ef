"""Signed thoughts of providers, which return with the next turns of a conversation.

A provider rejects a signed thought that was changed. A thought that returns unchanged to the
upstream that made it reveals nothing new to that upstream, so guards skip it. Only digests are
kept, in memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import Any

from proxy.call.record import Record
from proxy.guards.text.walk import Path, Texts
from proxy.types import Json, Plan
from proxy.types.events import Attach, Delta, Frame, PartStart

MAX_THOUGHTS = 65_536  # the latest ones, about 10 MB
_DIGEST_BYTES = 16
_SIGNATURE_MEMBERS = frozenset({"encrypted_content", "signature"})
_BLOCK_STEPS = 4  # steps to a block of a message: ``messages``, its index, ``content``, its index


class DeliveredThoughts:
    """Digests of thoughts that were sent to clients, by virtual key and upstream."""

    __slots__ = ("_digests",)

    def __init__(self) -> None:
        self._digests: dict[bytes, None] = {}

    def add(self, virtual_key: str | None, upstream: str, text: str, signature: str) -> None:
        digest = _digest_thought(virtual_key, upstream, text, signature)
        self._digests.pop(digest, None)
        self._digests[digest] = None
        if len(self._digests) > MAX_THOUGHTS:
            del self._digests[next(iter(self._digests))]

    def find_delivered_blocks(
        self, body: Json, plan: Plan, virtual_key: str | None
    ) -> frozenset[Path]:
        """Return the paths of thoughts that every upstream of the plan has sent to the key."""
        if not self._digests:
            return frozenset()
        upstreams = {target.upstream.name for call in plan.model_calls for target in call.targets}
        return frozenset(
            path
            for path, *thought in _iter_signed_thoughts(body)
            if all(_digest_thought(virtual_key, n, *thought) in self._digests for n in upstreams)
        )


def _digest_thought(virtual_key: str | None, upstream: str, text: str, signature: str) -> bytes:
    digest = blake2b(digest_size=_DIGEST_BYTES)
    for part in (virtual_key or "", upstream, text, signature):
        encoded = part.encode("utf-8", "surrogatepass")
        digest.update(len(encoded).to_bytes(8, "big") + encoded)
    return digest.digest()


@dataclass(slots=True, eq=False, repr=False)
class ThoughtRecorder:
    """Remembers the signed thoughts in one response, so that guards skip them when they return."""

    delivered: DeliveredThoughts
    record: Record
    _texts: list[str] = field(default_factory=list)
    """Texts of the open block."""

    def feed(self, frame: Frame) -> None:
        for event in frame.events:
            match event:
                case PartStart():
                    self._texts = []
                case Delta(part=part, text=text) if part.kind == "reasoning":
                    self._texts.append(text)
                case Attach(name="signature", value=str(signature)):
                    self._record_thought(frame.model_call, "".join(self._texts), signature)
                case _:
                    pass
        match frame.doc if frame.family == "messages" else None:
            case {"type": "content_block_start", "content_block": block}:
                blocks = [block]
            case {"type": "message", "content": [*blocks]}:
                pass
            case _:
                return
        for thought in filter(None, map(_read_signed_thought, blocks)):
            self._record_thought(frame.model_call, *thought)

    def _record_thought(self, model_call: int, text: str, signature: str) -> None:
        attempt = self.record.used_attempts.get(model_call)
        if attempt is not None and signature:
            self.delivered.add(self.record.key, attempt.target.upstream.name, text, signature)


def _iter_signed_thoughts(body: Json) -> Iterator[tuple[Path, str, str]]:
    """Yield the path, text and signature of each signed thought of a request."""
    messages = body.get("messages")
    for index, message in enumerate(messages if isinstance(messages, list) else ()):
        content: Any = message.get("content") if isinstance(message, dict) else None
        for number, block in enumerate(content if isinstance(content, list) else ()):
            thought = _read_signed_thought(block)
            members = 2 if thought and block["type"] == "redacted_thinking" else 3
            if thought is not None and len(block) == members:  # the block has no other members
                yield ("messages", index, "content", number), *thought


def _read_signed_thought(block: Any) -> tuple[str, str] | None:
    """Return the text and the signature of a signed thought.

    The data of a redacted thought counts as its signature.
    """
    match block:
        case {"type": "thinking", "thinking": str(text), "signature": str(signature)}:
            return text, signature
        case {"type": "redacted_thinking", "data": str(data)}:
            return "", data
        case _:
            return None


def drop_texts_of_blocks(walked_texts: Texts, blocks: frozenset[Path]) -> Texts:
    """Return the texts of a request without those in ``blocks``."""
    texts = tuple(text for text in walked_texts.texts if text.path[:_BLOCK_STEPS] not in blocks)
    opaque = tuple(item for item in walked_texts.opaque if item.path[:_BLOCK_STEPS] not in blocks)
    return replace(walked_texts, texts=texts, opaque=opaque)


def remove_changed_thoughts(document_before: Json, document_after: Json) -> Json:
    """Return a request without the signed and encrypted thoughts that a guard has changed.

    An upstream rejects a changed signed thought, and an encrypted thought still contains the masked
    text. Messages with no other blocks are removed.
    """
    for name in ("input", "messages"):
        old, new = document_before.get(name), document_after.get(name)
        if old is not new and isinstance(old, list) and isinstance(new, list):
            pairs = zip(old, new, strict=True)
            items = [
                item
                for item_before, item_after in pairs
                for item in _list_item_without_changed_blocks(item_before, item_after)
            ]
            document_after = {**document_after, name: items}
    return document_after


def _list_item_without_changed_blocks(item_before: Any, item_after: Any) -> list[Any]:
    """Return the item without its changed signed blocks, or nothing if no block remains."""
    if item_after is item_before or not isinstance(item_after, dict):
        return [item_after]
    if item_after.get("encrypted_content") != item_before.get("encrypted_content"):
        return []
    blocks = item_after.get("content")
    if not isinstance(blocks, list):
        return [item_after]
    intact = [
        block
        for old, block in zip(item_before["content"], blocks, strict=True)
        if block == old
        or not isinstance(old, dict)
        or (_SIGNATURE_MEMBERS.isdisjoint(old) and old.get("type") != "redacted_thinking")
    ]
    if len(intact) == len(blocks):
        return [item_after]
    return [{**item_after, "content": intact}] if intact else []
