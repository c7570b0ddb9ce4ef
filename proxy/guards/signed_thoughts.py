"""Signed thoughts that a virtual key was shown: they return with the next turns of a conversation.

A provider refuses a signed thought that was changed, so that masking one would break the
conversation. One that returns as it was shown, to the upstream that made it, tells that upstream
nothing new: guards leave it alone. Only digests are kept, in the memory of this process.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b
from typing import Any

from proxy.call.record import Record
from proxy.guards.text.walk import Path, Texts
from proxy.runtime.frozen import frozen
from proxy.types import Json, Plan
from proxy.types.events import Attach, Begin, Delta, Frame

MAX_THOUGHTS = 65_536  # the latest ones; some 10 MB
_DIGEST_BYTES = 16


class ShownThoughts:
    """The thoughts, by virtual key, upstream, text and signature."""

    __slots__ = ("_digests",)

    def __init__(self) -> None:
        self._digests: dict[bytes, None] = {}

    def add(self, thought: Thought) -> None:
        self._digests.pop(thought.digest, None)
        self._digests[thought.digest] = None
        if len(self._digests) > MAX_THOUGHTS:
            del self._digests[next(iter(self._digests))]

    def known_blocks(self, body: Json, plan: Plan, key: str | None) -> frozenset[Path]:
        """Return the paths of the blocks of a Messages request that all upstreams of its plan have
        shown to this key."""
        if not self._digests:
            return frozenset()
        upstreams = {target.upstream.name for call in plan.model_calls for target in call.targets}
        return frozenset(
            path
            for path, text, signature in _signed_blocks(body)
            if all(
                Thought(key=key, upstream=name, text=text, signature=signature).digest
                in self._digests
                for name in upstreams
            )
        )


@frozen
class Thought:
    """A signed thought; one that is redacted has no text but its data, which stands for the
    signature."""

    key: str | None
    upstream: str
    text: str
    signature: str

    @property
    def digest(self) -> bytes:
        digest = blake2b(digest_size=_DIGEST_BYTES)
        for part in (self.key or "", self.upstream, self.text, self.signature):
            encoded = part.encode("utf-8", "surrogatepass")
            digest.update(len(encoded).to_bytes(8, "big") + encoded)
        return digest.digest()


class ThoughtReader:
    """Notes the signed thoughts of one answer, whose frames it gets as they are shown."""

    __slots__ = ("_record", "_shown", "_texts")

    def __init__(self, shown: ShownThoughts, record: Record) -> None:
        self._shown = shown
        self._record = record
        self._texts: list[str] = []  # of the block that is open

    def feed(self, frame: Frame) -> None:
        """Note the signed thoughts of a frame."""
        for event in frame.events:
            match event:
                case Begin():
                    self._texts = []
                case Delta(part=part, text=text) if part.kind == "reasoning":
                    self._texts.append(text)
                case Attach(name="signature", value=str(signature)):
                    self._add(frame.model_call, "".join(self._texts), signature)
                case _:
                    pass
        match frame.doc if frame.family == "messages" else None:
            case {"type": "content_block_start", "content_block": block}:
                self._add_block(frame.model_call, block)
            case {"type": "message", "content": [*blocks]}:
                for block in blocks:
                    self._add_block(frame.model_call, block)
            case _:
                pass

    def _add_block(self, leg: int, block: Any) -> None:
        match block:
            case {"type": "thinking", "thinking": str(text), "signature": str(signature)}:
                self._add(leg, text, signature)
            case {"type": "redacted_thinking", "data": str(data)}:
                self._add(leg, "", data)
            case _:
                pass

    def _add(self, leg: int, text: str, signature: str) -> None:
        attempt = self._record.used_attempts.get(leg)
        if attempt is not None and signature:
            self._shown.add(
                Thought(
                    key=self._record.key,
                    upstream=attempt.target.upstream.name,
                    text=text,
                    signature=signature,
                )
            )


def _signed_blocks(body: Json) -> Iterator[tuple[Path, str, str]]:
    """Yield the path, the text and the signature of each signed thought of a request."""
    messages = body.get("messages")
    for at, message in enumerate(messages if isinstance(messages, list) else ()):
        content: Any = message.get("content") if isinstance(message, dict) else None
        for number, block in enumerate(content if isinstance(content, list) else ()):
            path: Path = ("messages", at, "content", number)
            match block:
                case {"type": "thinking", "thinking": str(text), "signature": str(signature)}:
                    if len(block) == 3:  # nothing else stands in it
                        yield path, text, signature
                case {"type": "redacted_thinking", "data": str(data)} if len(block) == 2:
                    yield path, "", data


def without_blocks(read: Texts, known: frozenset[Path]) -> Texts:
    """Return the texts of a request but for those of known thoughts."""
    if not known:
        return read
    depth = 4  # messages, number, content, number
    return Texts(
        texts=tuple(text for text in read.texts if text.path[:depth] not in known),
        opaque=tuple(each for each in read.opaque if each.path[:depth] not in known),
        unread=read.unread,
        apart=read.apart,
    )
