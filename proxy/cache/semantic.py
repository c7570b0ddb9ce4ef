"""Questions in other words than one that was answered: which may be looked for, and which is found.

Looked for are questions of a single turn whose surroundings are the same to the byte: all that is
in the key of an exact question, but for the last thing the user said. That is compared by its
fingerprint; the text is not kept.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import replace
from functools import partial
from typing import Any, Literal

from proxy.cache.fingerprint import Fingerprint, fingerprint
from proxy.cache.key import PARTS, digest
from proxy.cache.word_index import IndexEntry, WordIndex
from proxy.frozen import frozen
from proxy.offload import Offload
from proxy.record import Record
from proxy.types import CacheRule, Call, Json, Plan, Semantic

Result = Literal["hit", "would_hit", "gone", "other_words", "unfit"]
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


@frozen
class SemanticIndex:
    """What finds questions again in other words. ``on_lookup`` gets the result of each lookup."""

    words: WordIndex
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
        space = await offload.run(call.size, keyed, call.caller)
        return SemanticQuery(
            index=self,
            rule=rule,
            semantic=rule.semantic,
            space=(rule.store, space),
            fingerprint=fingerprint(text, secret),
        )


@frozen
class SemanticQuery:
    """One question to be found again, or to find another by."""

    index: SemanticIndex
    rule: CacheRule
    semantic: Semantic
    space: Hashable
    fingerprint: Fingerprint

    def find(self) -> bytes | None:
        """Return the key of the answer to a question with the same words; None without one."""
        key = self.index.words.find(self.space, self.fingerprint)
        if key is None:
            self.index.on_lookup("other_words")
        return key

    def keep(self, key: bytes) -> None:
        """Let others find the answer that is now kept under a key."""
        entry = IndexEntry(key, self.fingerprint, self.index.now() + self.rule.ttl)
        self.index.words.put(self.space, entry)

    def gone(self, key: bytes) -> None:
        """Note that the answer found is kept no more."""
        self.index.on_lookup("gone")
        self.index.words.drop(self.space, self.fingerprint, key)


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
