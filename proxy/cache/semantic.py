"""Questions in other words than one that was answered: which may be looked for, and which is found.

Looked for are questions of a single turn whose surroundings are the same to the byte: all that is
in the key of an exact question, but for the last thing the user said. That is compared twice, by
its vector and by its gist. Neither is the text, which is not kept.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal

from proxy.cache.fingerprint import Fingerprint, fingerprint
from proxy.cache.key import PARTS, digest
from proxy.cache.vector_index import IndexEntry, VectorIndex
from proxy.offload import Offload
from proxy.ports import Embedder, Vector
from proxy.record import Record
from proxy.types import CacheRule, Call, Json, Plan, Semantic

Result = Literal["hit", "would_hit", "gone", "other_words", "not_near", "no_vector", "unfit"]
WAIT_S = 0.25  # for a vector; a question that waits for more than that is asked at once
CHARACTERS = 1024  # of a question, of one line: what is longer or code says more than a question
DEFAULT_TEMPERATURE = 1.0  # of a call that does not say one
QUIET = frozenset({"passed", "not_applicable"})

_UNFIT = """
    audio best_of echo function_call functions images inference_extra_headers
    inference_extra_params input modalities parallel_tool_calls prediction prompt suffix
    tool_choice tools web_search_options
"""
UNFIT = frozenset(_UNFIT.split())  # fields whose presence makes a call more than a question
FIT = frozenset(PARTS) - UNFIT


@dataclass(frozen=True, slots=True)
class SemanticIndex:
    """What finds questions again in other words. ``on_lookup`` gets the result of each lookup."""

    embedder: Embedder
    vectors: VectorIndex
    on_lookup: Callable[[Result], None]
    now: Callable[[], float]

    async def question(
        self,
        secret: bytes,
        plan: Plan,
        call: Call,
        record: Record,
        namespace: str,
        offload: Offload,
    ) -> SemanticQuery | None:
        """Return the question of a call that may be looked for; None where that would be a risk."""
        rule = plan.cache
        if rule is None or rule.semantic is None:
            return None
        text = asked(call.body)
        if text is None or not _fits(rule.semantic, plan, call, record):
            self.on_lookup("unfit")
            return None
        keyed = partial(
            digest,
            secret,
            scope=plan.key,
            plan=plan,
            call=replace(call, body=_around(call.body)),
            rule=rule,
            namespace=namespace,
        )
        space = await offload.run(call.size, keyed, call.head.caller)
        place = (rule.store, rule.semantic.model, space)
        return SemanticQuery(
            index=self,
            rule=rule,
            semantic=rule.semantic,
            space=place,
            text=text,
            fingerprint=fingerprint(text, secret),
        )


@dataclass(slots=True)
class SemanticQuery:
    """One question to be found again, or to find another by."""

    index: SemanticIndex
    rule: CacheRule
    semantic: Semantic
    space: Hashable
    text: str = field(repr=False)
    fingerprint: Fingerprint
    _vector: Vector | None = None

    async def read(self) -> bool:
        """Make its vector, once, if that takes no longer than ``WAIT_S``. True if there is one."""
        if self._vector is None:
            try:
                async with asyncio.timeout(WAIT_S):
                    made = await self.index.embedder.vectors([self.text], self.semantic.model)
            except TimeoutError:
                return False
            self._vector = made[0]
        return self._vector is not None

    async def find(self) -> tuple[float, bytes] | None:
        """Return the score (0 to 1) of the nearest question with the same words, and the key of its
        answer; None where there is none."""
        if not await self.read() or self._vector is None:
            self.index.on_lookup("no_vector")
            return None
        near = self.index.vectors.near(self.space, self._vector, self.semantic.threshold)
        for score, entry in near:
            if entry.fingerprint.same_as(self.fingerprint):
                return score, entry.key
        self.index.on_lookup("other_words" if near else "not_near")
        return None

    def keep(self, key: bytes) -> None:
        """Let others find the answer that is now kept under a key."""
        if self._vector is not None:
            entry = IndexEntry(key, self.fingerprint, self.index.now() + self.rule.ttl)
            self.index.vectors.put(self.space, entry, self._vector)

    def gone(self, key: bytes) -> None:
        """Note that the answer found is kept no more."""
        self.index.on_lookup("gone")
        if self._vector is not None:
            self.index.vectors.drop(self.space, self._vector, key)


def asked(body: Json) -> str | None:
    """Return what the user of a single turn asks; None for a conversation or other content."""
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        return None
    *before, last = [message if isinstance(message, dict) else {} for message in messages]
    text: Any = last.get("content")
    if last.get("role") != "user" or not isinstance(text, str) or not text.strip():
        return None
    if len(text) > CHARACTERS or len(text.splitlines()) > 1:
        return None
    return (
        text if all(message.get("role") in ("system", "developer") for message in before) else None
    )


def _around(body: Json) -> Json:
    """Return a body without the text of its last message."""
    *before, last = body["messages"]
    return {**body, "messages": [*before, {**last, "content": None}]}


def _fits(rule: Semantic, plan: Plan, call: Call, record: Record) -> bool:
    """True if a call is nothing but a question: no tools or pictures, no wish for an answer that
    differs each time, nothing that a guard has found in it."""
    body = call.body
    if any(value is not None and name not in FIT for name, value in body.items()):
        return False
    if any(stage == "input" and result.verdict not in QUIET for stage, result in record.guards):
        return False
    return _temperature(plan, body) <= rule.max_temperature


def _temperature(plan: Plan, body: Json) -> float:
    leg = plan.model_calls[0]
    changes = leg.changes_for(leg.targets[0])
    asked = changes.set.get("temperature", body.get("temperature"))
    temperature = float(asked) if isinstance(asked, int | float) else DEFAULT_TEMPERATURE
    cap = changes.cap.get("temperature") if asked is not None else None
    return temperature if cap is None else min(temperature, cap)
