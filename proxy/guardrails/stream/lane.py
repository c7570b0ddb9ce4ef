"""The usual way of a stream: its chunks go on with one text, and differ in nothing else.

Such a chunk is not walked again. What is around its text is what it was in the last chunk, and so
is all that was said of it.
"""

from __future__ import annotations

from typing import Any

from proxy.frozen import frozen
from proxy.guardrails.stream.text_stream import TextStream
from proxy.guardrails.text.walk import Path
from proxy.types import Json

CONTENT: Path = ("choices", 0, "delta", "content")


@frozen
class Lane:
    """The stream of a text, and what its last chunk had around that: ``head`` beside the choices,
    ``choice`` beside the delta."""

    stream: TextStream
    head: Json
    choice: Json

    @classmethod
    def of(cls, data: Json, stream: TextStream) -> Lane | None:
        """Return the lane of a chunk with a text at ``CONTENT``; None where there is more to it."""
        choices = data["choices"]
        if len(choices) > 1:
            return None
        return cls(stream, {**data, "choices": None}, {**choices[0], "delta": None})

    def text(self, data: Json) -> str:
        """Return the text of a chunk that differs in nothing else; nothing of any other."""
        choices: Any = data.get("choices")
        if choices.__class__ is not list or len(choices) != 1:
            return ""
        choice = choices[0]
        if choice.__class__ is not dict or {**choice, "delta": None} != self.choice:
            return ""
        delta = choice.get("delta")
        if delta.__class__ is not dict or len(delta) != 1 or {**data, "choices": None} != self.head:
            return ""
        text = delta.get("content")
        return text if text.__class__ is str else ""
