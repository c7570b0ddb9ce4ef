"""Passthrough calls: how they are sent, when they may be sent again, how responses are read, and
the usage in responses of other APIs: images, transcriptions, Anthropic, Cohere and Gemini."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from proxy.call.meter import Meter
from proxy.dialects import DIALECTS
from proxy.dialects.documents import Documents
from proxy.dialects.frame_reader import FrameReader
from proxy.dialects.passthrough.request import build_passthrough
from proxy.dialects.passthrough.response import (
    PassthroughBytes,
    PassthroughDocument,
    parse_passthrough_head,
    shown_headers,
)
from proxy.dialects.upstream_request import UpstreamRequest
from proxy.errors import ProxyError
from proxy.money.usage import Json, Tokens, read_usage
from proxy.types import ResponseHead, Target
from proxy.types.passthrough import PassthroughPath
from proxy.types.way import MODEL_FREE_METHODS
from proxy.upstream.answer_reader import ANSWER_BYTES, check_encoding, shown_of
from proxy.upstream.forwarded import OpenAttempt
from proxy.upstream.reply import Reply
from proxy.upstream.retry import AttemptContext, is_untaken

CACHES = ("cache_read_input_tokens", "cache_creation_input_tokens")
"""Input tokens that Anthropic counts separately: read from a cache, and written to one."""
BESIDE = ("cache_creation", "server_tool_use")
MODALITIES = {"audio_tokens": "AUDIO", "image_tokens": "IMAGE"}
"""Gemini's names of modalities, by the members of a chat's token details."""


def request_of(context: AttemptContext, target: Target) -> UpstreamRequest:
    """Return the request of a passthrough call for a target. Raises ``BadRequest``."""
    passed, path = context.call.head.passthrough, context.plan.passed
    if passed is None or path is None:
        raise RuntimeError("the call is not passed on")
    spoken = DIALECTS[target.upstream.dialect]
    return build_passthrough(context.call, passed, path, target, spoken)


def new_meter(method: str) -> Meter:
    """Return a meter that estimates nothing. The usage is unknown if the response reports none. A
    method that runs no model uses nothing, whatever its response says."""
    return Meter(unreported="none" if method in MODEL_FREE_METHODS else "unknown", estimates=False)


def is_safe_again(context: AttemptContext, path: PassthroughPath, failure: ProxyError) -> bool:
    """Return True if a failed call may be sent again, to any target: no upstream can have received
    it, or it changes nothing."""
    upload = context.call.upload
    if upload is not None and upload.begun:
        return False
    if path.may_repeat(context.call.head.method):
        return True
    return is_untaken(failure, context.record.attempts)


def head_of(asked: OpenAttempt, reply: Reply) -> ResponseHead | None:
    """Return the head of a passthrough response, None for an error status."""
    if not 200 <= reply.status < 300:
        return None
    check_encoding(asked, reply)
    most = asked.target.upstream.max_answer_bytes or ANSWER_BYTES
    passed = parse_passthrough_head(reply.status, reply.headers, most)
    shown = (*shown_of(asked, reply), *shown_headers(reply.headers))
    return ResponseHead(streamed=not passed.read, headers=shown, passed=passed)


def reader_of(asked: OpenAttempt, head: ResponseHead) -> FrameReader:
    """Return the reader of a passthrough response."""
    leg, upstream = asked.attempt.model_call, asked.target.upstream
    find_usage = no_tokens if asked.request.method in MODEL_FREE_METHODS else passed_tokens
    if head.passed is None or head.streamed:
        media_type = "" if head.passed is None else head.passed.media_type
        return PassthroughBytes(leg, media_type, find_usage)
    documents = Documents(upstream.max_answer_values)
    limit = upstream.max_answer_bytes or ANSWER_BYTES
    return PassthroughDocument(leg, documents, limit, find_usage)


def no_tokens(data: Json) -> None:
    """Return None: the method runs no model."""


def passed_tokens(data: Json) -> Tokens | None:
    """Return the tokens that a response reports, None if it reports none or invalid ones."""
    usage = data.get("usage")
    known = _of_usage(usage) or _of_units(usage) or _of_units(data.get("meta"))
    return known or _of_usage(_of_gemini(data.get("usageMetadata")))


def _of_usage(usage: Any) -> Tokens | None:
    if type(usage) is not dict:
        return None
    known = read_usage(usage)
    if known is not None:
        return known
    if "input_tokens" in usage:
        return read_usage(_of_input(usage))
    if "total_tokens" in usage:
        return read_usage({"prompt_tokens": usage["total_tokens"]})
    return None


def _of_input(usage: Json) -> Json:
    """Return usage with ``input_tokens`` as that of a chat."""
    made = {
        "prompt_tokens": usage["input_tokens"],
        "completion_tokens": usage.get("output_tokens"),
        "total_tokens": usage.get("total_tokens"),
        "prompt_tokens_details": usage.get("input_tokens_details")
        or usage.get("input_token_details"),
        "completion_tokens_details": usage.get("output_tokens_details"),
    }
    if any(usage.get(name) for name in CACHES):
        read, written = (usage.get(name) or 0 for name in CACHES)
        made["prompt_tokens"] = _sum((usage["input_tokens"], read, written))
        made["prompt_tokens_details"] = {"cached_tokens": read, "cache_write_tokens": written}
    return made | {name: usage[name] for name in BESIDE if name in usage}


def _of_gemini(metadata: Any) -> Json | None:
    """Return the usage of Gemini as that of a chat. Gemini counts thoughts and the results of
    tools separately."""
    if type(metadata) is not dict or "promptTokenCount" not in metadata:
        return None
    thought = metadata.get("thoughtsTokenCount") or 0
    asked = (metadata["promptTokenCount"], metadata.get("toolUsePromptTokenCount") or 0)
    return {
        "prompt_tokens": _sum(asked),
        "completion_tokens": _sum((metadata.get("candidatesTokenCount") or 0, thought)),
        "prompt_tokens_details": {
            "cached_tokens": metadata.get("cachedContentTokenCount"),
            **_modalities(metadata.get("promptTokensDetails")),
        },
        "completion_tokens_details": {
            "reasoning_tokens": thought,
            **_modalities(metadata.get("candidatesTokensDetails")),
        },
    }


def _modalities(details: Any) -> dict[str, Any]:
    """Return the tokens of audio and images in a list of tokens by modality."""
    return {
        name: each.get("tokenCount")
        for each in (details if type(details) is list else ())
        if type(each) is dict
        for name, modality in MODALITIES.items()
        if each.get("modality") == modality
    }


def _sum(counts: Iterable[Any]) -> int | None:
    """Return the sum of counts, None if one of them is invalid."""
    whole = 0
    for count in counts:
        if type(count) is not int or count < 0:
            return None
        whole += count
    return whole


def _of_units(holder: Any) -> Tokens | None:
    """Return the tokens that Cohere has billed."""
    units = holder.get("billed_units") if type(holder) is dict else None
    return _of_usage(units)
