"""Profiles: attributes for backends that do not read the conventions, by name in the settings.

A profile also adds the end user and the session of a call. Without a profile no span has them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal

from proxy.emit import semconv
from proxy.emit.attributes import Attributes, Value, format_tags, usd
from proxy.record import Record
from proxy.summary import facts_of
from proxy.usage import UNCOUNTED
from proxy.words import MAX_ID, MAX_NAME, word, word_of

SpanOf = Literal["server", "model", "attempt"]
Profile = Callable[[SpanOf, Record, Attributes], Attributes]
"""Returns what to add to a span of a call that already has some attributes."""


def openinference(of: SpanOf, record: Record, attributes: Attributes) -> Attributes:
    """Return OpenInference's attributes, which Phoenix reads."""
    if of != "model":
        return {semconv.OPENINFERENCE_KIND: "CHAIN"}
    facts = facts_of(record)
    tokens = facts.tokens
    added: dict[str, Value | None] = {
        semconv.OPENINFERENCE_KIND: _kind(record),
        semconv.LLM_MODEL: attributes.get(semconv.RESPONSE_MODEL)
        or attributes[semconv.REQUEST_MODEL],
        semconv.LLM_PROVIDER: attributes[semconv.PROVIDER],
        semconv.LLM_COST: usd(facts.cost),
        semconv.INPUT_VALUE: attributes.get(semconv.INPUT_MESSAGES),
        semconv.OUTPUT_VALUE: attributes.get(semconv.OUTPUT_MESSAGES),
        **_user_and_session(record),
    }
    if facts.source not in UNCOUNTED:
        added |= {
            semconv.LLM_PROMPT: tokens.prompt_total,
            semconv.LLM_COMPLETION: tokens.completion_total,
            semconv.LLM_TOTAL: tokens.total,
            semconv.LLM_CACHE_READ: tokens.cached_input or None,
            semconv.LLM_CACHE_WRITE: tokens.cache_write or None,
            semconv.LLM_REASONING: tokens.reasoning or None,
        }
    return added


def langfuse(of: SpanOf, record: Record, attributes: Attributes) -> Attributes:
    """Return Langfuse's attributes, which it reads from every span."""
    facts = facts_of(record)
    added: dict[str, Value | None] = {**_user_and_session(record)}
    if of == "model":
        added[semconv.USAGE_COST] = usd(facts.cost)
    if facts.deployment is not None and facts.tags is not None:
        added[semconv.LANGFUSE_METADATA + "deployment"] = facts.deployment
        added[semconv.LANGFUSE_TAGS] = format_tags(facts.tags.items()) or None
        for name, value in facts.tags.items():
            added[semconv.LANGFUSE_METADATA + name] = word(value, MAX_NAME)
    return added


PROFILES: Mapping[str, Profile] = {"openinference": openinference, "langfuse": langfuse}


def _kind(record: Record) -> str:
    return "EMBEDDING" if record.head and record.head.endpoint == "embeddings" else "LLM"


def _user_and_session(record: Record) -> Attributes:
    if record.call is None:
        return {}
    head, body = record.call.head, record.call.body
    session = head.headers.get("x-headrace-session") or head.session
    user = head.user or body.get("user")
    return {
        semconv.USER: word_of(user, MAX_ID),
        semconv.SESSION: word_of(session, MAX_ID),
        semconv.CONVERSATION: word_of(session, MAX_ID),
    }
