"""Semantic cache: a prompt gets the cached response to a similar one, as a policy allows.

Only the last user message of a chat may differ. All else that is in the cache key is equal. The
messages are compared by the cosine of their embeddings, which a deployment of the policy computes
and this process holds in memory.
"""

from __future__ import annotations

import asyncio
import math
from array import array
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass, field, replace
from functools import partial
from heapq import nsmallest
from operator import mul
from typing import Any

from proxy.cache.cached_answer import CachedAnswer
from proxy.call.facts import SemanticResult
from proxy.call.record import Record
from proxy.ports import Embedder
from proxy.runtime.frozen import frozen
from proxy.types import CacheRule, Call, Json, Plan, SemanticCacheRule

MAX_VECTORS = 512
MAX_DIMENSIONS = 8192
MAX_CANDIDATES = 4
ENTRY_BYTES = 800  # memory of an entry without its vector


@frozen
class Vector:
    """Embedding of Euclidean length 1. Each bit of ``sign_bits`` is 1 for a positive number.

    Vectors of different models or dimensions never match.
    """

    model: str
    numbers: array[float]
    sign_bits: int

    @property
    def size(self) -> int:
        return ENTRY_BYTES + len(self.numbers) * self.numbers.itemsize + len(self.numbers) // 8

    def is_comparable(self, vector: Vector) -> bool:
        return self.model == vector.model and len(self.numbers) == len(vector.numbers)

    def compute_cosine(self, vector: Vector) -> float:
        cosine: float = sum(map(mul, self.numbers, vector.numbers))
        return round(cosine, 6)


def parse_vector(model: str, document: Any) -> Vector:
    """Parse a response with one embedding. Raises ``ValueError``."""
    try:
        [item] = document["data"]
        numbers = item["embedding"]
        if type(numbers) is not list or len(numbers) > MAX_DIMENSIONS:
            raise ValueError(f"the embedding is not a list of at most {MAX_DIMENSIONS} numbers")
        length = math.hypot(*numbers)
    except (KeyError, TypeError, OverflowError) as error:
        raise ValueError("the response has no valid embedding") from error
    if not 0 < length < math.inf:
        raise ValueError("the embedding has length 0 or infinity")
    sign_bits = int("".join("1" if number > 0 else "0" for number in numbers), 2)
    return Vector(model, array("f", [number / length for number in numbers]), sign_bits)


@dataclass(slots=True)
class VectorIndex:
    """Vectors of prompts by space and cache key.

    Prompts of one space differ only in their last message. Beyond ``max_bytes``, the oldest vector
    of the least recently used space is evicted. ``on_change`` gets the number of vectors and their
    bytes.
    """

    max_bytes: int
    on_change: Callable[[int, int], None]
    _spaces: OrderedDict[Hashable, dict[bytes, Vector]] = field(default_factory=OrderedDict)
    _entries: int = 0
    _size: int = 0

    def find(self, space: Hashable, vector: Vector, threshold: float) -> list[bytes]:
        """Return the cache keys of the vectors that match, nearest first."""
        if space not in self._spaces:
            return []
        self._spaces.move_to_end(space)
        vectors = self._spaces[space].items()
        comparable = (pair for pair in vectors if vector.is_comparable(pair[1]))
        closest = nsmallest(
            MAX_CANDIDATES,
            comparable,
            key=lambda pair: (vector.sign_bits ^ pair[1].sign_bits).bit_count(),
        )
        cosines = [(vector.compute_cosine(match), key) for key, match in closest]
        return [key for cosine, key in sorted(cosines, reverse=True) if cosine >= threshold]

    def add(self, space: Hashable, key: bytes, vector: Vector) -> None:
        """Add a vector under a cache key, in place of an earlier one."""
        self.remove(space, key)
        vectors = self._spaces.setdefault(space, {})
        self._spaces.move_to_end(space)
        if len(vectors) == MAX_VECTORS:
            self.remove(space, next(iter(vectors)))
        vectors[key] = vector
        self._adjust_totals(1, vector.size)
        while self._size > self.max_bytes:
            oldest = next(iter(self._spaces))
            self.remove(oldest, next(iter(self._spaces[oldest])))

    def remove(self, space: Hashable, key: bytes) -> None:
        """Remove a vector if it exists."""
        vectors = self._spaces.get(space, {})
        vector = vectors.pop(key, None)
        if vector is not None:
            if not vectors:
                del self._spaces[space]
            self._adjust_totals(-1, -vector.size)

    def _adjust_totals(self, entries: int, size: int) -> None:
        self._entries += entries
        self._size += size
        self.on_change(self._entries, self._size)


ReadAnswer = Callable[[bytes], Awaitable[CachedAnswer | None]]
"""Reads a cached response by its key."""
MAX_CHARACTERS = 1024  # embedding models truncate or blur longer prompts
DEFAULT_TEMPERATURE = 1.0  # of a request without a temperature
CLEAN_VERDICTS = frozenset({"passed", "not_applicable"})


@frozen
class SemanticCache:
    """Parts that all lookups share. ``on_lookup`` gets the result of each."""

    index: VectorIndex
    embedder: Embedder
    on_lookup: Callable[[SemanticResult], None]


@dataclass(slots=True)
class SemanticLookup:
    """Lookup of one prompt. Adds its vector to the index once its response is cached."""

    cache: SemanticCache
    rule: CacheRule
    semantic: SemanticCacheRule
    plan: Plan
    call: Call
    compute_call_key: Callable[[Call], Awaitable[bytes]]
    _space: Hashable = None
    _vector: Vector | None = None
    _key: bytes | None = None

    async def find(self, record: Record, read_answer: ReadAnswer) -> CachedAnswer | None:
        """Return the cached response to a similar prompt.

        Shadow mode only counts matches, in a background task.
        """
        prompt = find_short_prompt(self.call.body)
        if prompt is None or not self._may_use_semantic_cache(record):
            self.cache.on_lookup("ineligible")
            return None
        search = partial(self._search, prompt, record, read_answer)
        if self.semantic.mode == "serve":
            return await search()
        on_lookup = self.cache.on_lookup
        await record.run_in_background(
            search, lambda reason: on_lookup("busy" if reason == "busy" else "failed")
        )
        return None

    def index_answer(self, key: bytes) -> None:
        """Make the response that is cached under ``key`` available to similar prompts."""
        self._key = key
        self._index_vector_of_cached_answer()

    async def _search(
        self, prompt: str, record: Record, read_answer: ReadAnswer
    ) -> CachedAnswer | None:
        vector = await self._embed_prompt(prompt, record)
        if vector is None:
            return None
        *earlier, message = self.call.body["messages"]
        body = {**self.call.body, "messages": [*earlier, {**message, "content": None}]}
        space_key = await self.compute_call_key(replace(self.call, body=body))
        self._space = self.rule.store, self.semantic.embeddings, space_key
        for match in self.cache.index.find(self._space, vector, self.semantic.threshold):
            answer = await read_answer(match)
            if answer is not None:
                record.semantic_match = True
                self.cache.on_lookup("hit" if self.semantic.mode == "serve" else "would_hit")
                return replace(answer, is_semantic=True)
            self.cache.index.remove(self._space, match)
        self.cache.on_lookup("miss")
        self._vector = vector
        self._index_vector_of_cached_answer()
        return None

    async def _embed_prompt(self, prompt: str, record: Record) -> Vector | None:
        """Return the embedding of a prompt. Without one, count the reason and return None."""
        result: SemanticResult = "failed"
        try:
            async with asyncio.timeout(self.semantic.deadline):
                model, document = await self.cache.embedder.embed(
                    record,
                    self.semantic.embeddings,
                    prompt,
                    call_waits=self.semantic.mode == "serve",
                )
            result = "invalid"
            return parse_vector(model, document)
        except TimeoutError:
            result = "timeout"
        except Exception:  # noqa: BLE001, S110  # the record of the embedding call has the error
            pass
        self.cache.on_lookup(result)
        return None

    def _index_vector_of_cached_answer(self) -> None:
        """Add the vector to the index once it is computed and its response is cached."""
        if self._key is not None and self._vector is not None:
            self.cache.index.add(self._space, self._key, self._vector)

    def _may_use_semantic_cache(self, record: Record) -> bool:
        """Return True if the semantic cache may serve the call.

        Its temperature must be low, and no guard may have a finding in its prompt. It must not be
        over budget, because the embedding costs money. Under a rule that caches tool calls, it must
        not offer tools.
        """
        body = self.call.body
        offers_tools = body.get("tools") or body.get("functions")
        if record.is_over_budget or (self.rule.tool_calls and offers_tools):
            return False
        verdicts = {result.verdict for stage, result in record.guards if stage == "input"}
        if not verdicts <= CLEAN_VERDICTS:
            return False
        return _get_temperature(self.plan, body) <= self.semantic.max_temperature


def find_short_prompt(body: Json) -> str | None:
    """Return the only user message of a chat if it is one line of at most ``MAX_CHARACTERS``."""
    match body.get("messages"):
        case [*earlier, {"role": "user", "content": str(text)}]:
            roles = [m.get("role") if isinstance(m, dict) else None for m in earlier]
            is_only = all(role in ("system", "developer") for role in roles)
            is_short = len(text) <= MAX_CHARACTERS and len(text.splitlines()) == 1
            return text if is_only and is_short and text.strip() else None
        case _:
            return None


def _get_temperature(plan: Plan, body: Json) -> float:
    model_call = plan.model_calls[0]
    changes = model_call.get_overrides(model_call.targets[0])
    requested = changes.set.get("temperature", body.get("temperature"))
    if not isinstance(requested, int | float):
        return DEFAULT_TEMPERATURE
    return min(float(requested), changes.cap.get("temperature", float(requested)))
