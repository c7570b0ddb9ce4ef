"""What of an answer may be kept: all of it, once its last chunk is out and nothing was amiss."""

from __future__ import annotations

from typing import Any, ClassVar

from proxy.dialects.findings import DETECTIONS, HOOKS, is_flagged
from proxy.dialects.pieces import dump
from proxy.types import CacheRule, Call, Chunk, Json, Untouched
from proxy.types.events import FamilyName

_AMISS = frozenset({"content_filter", "error"})
_CALLS = frozenset({"tool_calls", "function_call"})


def choices_wanted(call: Call, body: Json) -> int:
    """Return how many choices, or vectors, an upstream owes for a body that it was sent."""
    if call.head.endpoint == "embeddings":
        return _texts(body.get("input"))
    n = body.get("n")
    choices = n if type(n) is int and n > 0 else 1
    return choices * _texts(body["prompt"]) if "prompt" in body else choices


def _texts(value: Any) -> int:
    """Return how many texts there are; a list of numbers is one text in tokens."""
    return len(value) if isinstance(value, list) and value and not isinstance(value[0], int) else 1


class AnswerRecorder:
    """Fed with an answer as it was shown; ``lines`` are there to be kept once it is ``whole``.

    It is not kept when it is larger than the rule allows, holds an error, was filtered, was
    ``flagged`` by the upstream, has a choice that did not finish or fewer of them than were
    ``wanted``, or calls a tool and the rule does not want that.
    """

    __slots__ = (
        *("_finished", "_good", "_rule", "_seen", "_vectors", "_wanted"),
        *("flagged", "lines", "oversize", "size", "whole"),
    )
    family: ClassVar[FamilyName] = ""

    def __init__(self, rule: CacheRule, wanted: int = 1) -> None:
        self._rule = rule
        self._wanted = wanted
        self._good = True
        self._vectors = 0
        self._seen: set[int] = set()
        self._finished: set[int] = set()
        self.lines: list[bytes] = []
        self.size = 0
        self.oversize = False
        self.flagged = False
        self.whole = False

    def write(self, chunk: Chunk) -> bytes:
        """Return a chunk as JSON on one line."""
        raw = chunk.raw
        if raw is not None and b"\n" not in raw and not isinstance(raw, Untouched):
            return raw
        # A copy, as the writer keeps some 4 KiB for each of its results, however short.
        return bytes(bytearray(dump(chunk.data, chunk.size)))

    def feed(self, chunk: Chunk, line: bytes | None = None) -> None:
        """Take the next chunk, and its line where that was made before. What is too large is
        counted no further and holds no memory."""
        if chunk.data is not None and not self.oversize:
            self._take(chunk.data, self.write(chunk) if line is None else line)
        if chunk.last:
            enough = len(self._seen) + self._vectors >= self._wanted
            good = self._good and not self.flagged and enough
            self.whole = good and self._seen == self._finished

    def _take(self, data: Json, line: bytes) -> None:
        self.size += len(line) + 1
        self.oversize = self.size > self._rule.max_bytes
        if self.oversize or data.get("error"):
            self._good = False
        if DETECTIONS in data or HOOKS in data:
            self.flagged = self.flagged or is_flagged(data)
        if "data" in data and isinstance(data["data"], list):
            self._vectors += len(data["data"])
        choices = data.get("choices")
        for choice in choices if type(choices) is list else ():
            if type(choice) is dict:
                self._judge(choice)
        if self._good:
            self.lines.append(line)
        else:
            self.lines.clear()

    def _judge(self, choice: Json) -> None:
        at, end = choice.get("index", 0), choice.get("finish_reason")
        if type(at) is not int or not (end is None or type(end) is str):
            self._good = False
            return
        if at not in self._seen:
            self._seen.add(at)
        if end is not None:
            self._finished.add(at)
            self._good = self._good and end not in _AMISS
        if not self._rule.tool_calls and (end in _CALLS or _calls_a_tool(choice)):
            self._good = False


def _calls_a_tool(choice: Json) -> bool:
    message: Any = choice.get("delta") or choice.get("message") or choice
    if type(message) is not dict or _CALLS.isdisjoint(message):
        return False
    return any(message.get(name) for name in _CALLS)
