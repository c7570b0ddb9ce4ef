"""What of an answer may be kept: all of it, once its last chunk is out and nothing was amiss."""

from __future__ import annotations

from typing import Any

import orjson

from proxy.types import CacheRule, Chunk, Json

_AMISS = frozenset({"content_filter", "error"})
_CALLS = frozenset({"tool_calls", "function_call"})


class Keep:
    """Fed with an answer as it was shown; ``lines`` are there to be kept once it is ``whole``.

    It is not kept when it is larger than the rule allows, holds an error, was filtered, has a
    choice that did not finish, or calls a tool and the rule does not want that.
    """

    __slots__ = ("_finished", "_good", "_rule", "_seen", "_vectors", "lines", "size", "whole")

    def __init__(self, rule: CacheRule) -> None:
        self._rule = rule
        self._good = True
        self._vectors = False
        self._seen: set[int] = set()
        self._finished: set[int] = set()
        self.lines: list[bytes] = []
        self.size = 0
        self.whole = False

    @property
    def oversize(self) -> bool:
        return self.size > self._rule.max_bytes

    def feed(self, chunk: Chunk) -> None:
        """Take the next chunk. What is too large is counted no further and holds no memory."""
        if chunk.data is not None and not self.oversize:
            self._take(chunk.data, chunk.raw)
        if chunk.last:
            says = bool(self._seen) or self._vectors
            self.whole = self._good and says and self._seen == self._finished

    def _take(self, data: Json, raw: bytes | None) -> None:
        line = raw if raw is not None and b"\n" not in raw else orjson.dumps(data)
        self.size += len(line) + 1
        self._good = self._good and not self.oversize and not data.get("error")
        self._vectors = self._vectors or isinstance(data.get("data"), list)
        choices = data.get("choices")
        for choice in choices if isinstance(choices, list) else ():
            if isinstance(choice, dict):
                self._judge(choice)
        if self._good:
            self.lines.append(line)
        else:
            self.lines.clear()

    def _judge(self, choice: Json) -> None:
        index, end = choice.get("index"), choice.get("finish_reason")
        at = index if type(index) is int else 0
        self._seen.add(at)
        if end is not None:
            self._finished.add(at)
            self._good = self._good and end not in _AMISS
        if not self._rule.tool_calls:
            self._good = self._good and end not in _CALLS and not _calls_a_tool(choice)


def _calls_a_tool(choice: Json) -> bool:
    said: Any = choice.get("delta") or choice.get("message") or choice
    return isinstance(said, dict) and any(said.get(name) for name in _CALLS)
