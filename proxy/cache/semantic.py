"""Semantic cache: a prompt gets the cached response to a similar one, as a policy allows.

Only the last user message of a chat may differ. All else that is in the cache key is equal. The
messages are compared by their embeddings, which a deployment of the policy computes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from proxy.cache.cached_answer import CachedAnswer
from proxy.cache.vector_index import Vector, VectorIndex, parse_vector
from proxy.call.facts import SemanticResult
from proxy.call.record import Record
from proxy.ports import Embedder
from proxy.runtime.frozen import frozen
from proxy.types import CacheRule, Call, Json, Plan, SemanticCacheRule

MAX_CHARACTERS = 1024  # embedding models truncate or blur longer prompts
DEFAULT_TEMPERATURE = 1.0  # of a call that sets none
QUIET = frozenset({"passed", "not_applicable"})


@frozen
class SemanticCache:
    """Parts that all lookups share. ``on_lookup`` gets the result of each."""

    index: VectorIndex
    embedder: Embedder
    on_lookup: Callable[[SemanticResult], None]


@dataclass(slots=True)
class SemanticLookup:
    """Lookup of one prompt, and its index entry once the response is cached."""

    cache: SemanticCache
    rule: CacheRule
    semantic: SemanticCacheRule
    plan: Plan
    call: Call
    key_of: Callable[[Call], Awaitable[bytes]]
    _space: Hashable = None
    _vector: Vector | None = None
    _key: bytes | None = None

    async def find(
        self, record: Record, take: Callable[[bytes], Awaitable[CachedAnswer | None]]
    ) -> CachedAnswer | None:
        """Return the cached response to a similar prompt; ``take`` reads a response by key.

        Shadow mode only counts matches, in a background task.
        """
        prompt = prompt_of(self.call.body)
        if prompt is None or not self._is_eligible(record):
            self.cache.on_lookup("ineligible")
            return None
        search = partial(self._search, prompt, record, take)
        if self.semantic.mode == "serve":
            return await search()
        on_lookup = self.cache.on_lookup
        await record.run_in_background(
            search, lambda reason: on_lookup("busy" if reason == "busy" else "failed")
        )
        return None

    def keep(self, key: bytes) -> None:
        """Make the response, now cached under ``key``, available to similar prompts."""
        self._key = key
        self._add()

    async def _search(
        self, prompt: str, record: Record, take: Callable[[bytes], Awaitable[CachedAnswer | None]]
    ) -> CachedAnswer | None:
        vector = await self._embed(prompt, record)
        if vector is None:
            return None
        *earlier, message = self.call.body["messages"]
        body = {**self.call.body, "messages": [*earlier, {**message, "content": None}]}
        call_of_space = replace(self.call, body=body)
        self._space = self.rule.store, self.semantic.embeddings, await self.key_of(call_of_space)
        for match in self.cache.index.find(self._space, vector, self.semantic.threshold):
            answer = await take(match)
            if answer is not None:
                record.semantic_match = True
                self.cache.on_lookup("hit" if self.semantic.mode == "serve" else "would_hit")
                return replace(answer, is_semantic=True)
            self.cache.index.drop(self._space, match)
        self.cache.on_lookup("miss")
        self._vector = vector
        self._add()
        return None

    async def _embed(self, prompt: str, record: Record) -> Vector | None:
        """Return the embedding of a prompt. Without one, count the reason and return None."""
        result: SemanticResult = "failed"
        try:
            async with asyncio.timeout(self.semantic.deadline):
                model, document = await self.cache.embedder.embed(
                    record, self.semantic.embeddings, prompt, waits=self.semantic.mode == "serve"
                )
            result = "invalid"
            return parse_vector(model, document)
        except TimeoutError:
            result = "timeout"
        except Exception:  # noqa: BLE001, S110  # the record of the embedding call has the error
            pass
        self.cache.on_lookup(result)
        return None

    def _add(self) -> None:
        """Add the entry once both are known: its vector, and that its response is cached."""
        if self._key is not None and self._vector is not None:
            self.cache.index.add(self._space, self._key, self._vector)

    def _is_eligible(self, record: Record) -> bool:
        """Return True if the semantic cache may serve the call.

        Its temperature must be low, no guard may have a finding in its prompt, and it must not be
        over budget, because the embedding costs money. With ``tool_calls`` it may not offer tools.
        """
        body = self.call.body
        if self.rule.tool_calls and (body.get("tools") or body.get("functions")):
            return False
        if record.is_over_budget:  # the embedding would cost money
            return False
        if any(stage == "input" and result.verdict not in QUIET for stage, result in record.guards):
            return False
        return _temperature(self.plan, body) <= self.semantic.max_temperature


def prompt_of(body: Json) -> str | None:
    """Return the only user message of a chat if it is one line of at most ``MAX_CHARACTERS``."""
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        return None
    *earlier, prompt = [message if isinstance(message, dict) else {} for message in messages]
    text: Any = prompt.get("content")
    if prompt.get("role") != "user" or not isinstance(text, str) or not text.strip():
        return None
    if len(text) > MAX_CHARACTERS or len(text.splitlines()) > 1:
        return None
    return (
        text if all(message.get("role") in ("system", "developer") for message in earlier) else None
    )


def _temperature(plan: Plan, body: Json) -> float:
    model_call = plan.model_calls[0]
    changes = model_call.overrides_for(model_call.targets[0])
    requested = changes.set.get("temperature", body.get("temperature"))
    if not isinstance(requested, int | float):
        return DEFAULT_TEMPERATURE
    return min(float(requested), changes.cap.get("temperature", float(requested)))
