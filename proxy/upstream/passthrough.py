"""Passthrough calls: their requests and responses, repeats, and the usage that responses report.

Usage is read in the formats of OpenAI (images, transcriptions), Anthropic, Cohere and Gemini.
"""

from __future__ import annotations

from typing import Any

from proxy.call.meter import Meter
from proxy.dialects.frames.reader import FrameReader
from proxy.dialects.messages import schema as messages_schema
from proxy.dialects.passthrough import response
from proxy.dialects.passthrough.request import build_passthrough_request
from proxy.dialects.requests.upstream_request import UpstreamRequest
from proxy.dialects.responses import schema as responses_schema
from proxy.dialects.wire.strict_json import DocumentParser
from proxy.errors import ProxyError
from proxy.money.usage import USAGE_GROUPS, Json, Tokens, read_chat_usage
from proxy.types import ResponseHead, Target
from proxy.types.endpoints import MODEL_FREE_METHODS
from proxy.types.passthrough import PassthroughPath
from proxy.upstream import attempt
from proxy.upstream.errors import is_surely_unprocessed
from proxy.upstream.reply import Reply

ANTHROPIC_FIELDS = (*USAGE_GROUPS, "cache_read_input_tokens", "cache_creation_input_tokens")
GEMINI_MODALITIES = {"audio_tokens": "AUDIO", "image_tokens": "IMAGE"}


def build_request(context: attempt.AttemptContext, target: Target) -> UpstreamRequest:
    """Return the request for a target. Raises ``InvalidField``."""
    passthrough, path = context.call.head.passthrough, context.plan.passthrough
    if passthrough is None or path is None:
        raise RuntimeError("the call is no passthrough call")
    return build_passthrough_request(context.call, passthrough, path, target)


def make_reported_usage_meter(method: str) -> Meter:
    """Return a meter without estimates. A method that runs no model has no usage."""
    return Meter(unreported="none" if method in MODEL_FREE_METHODS else "unknown", estimates=False)


def may_repeat(context: attempt.AttemptContext, path: PassthroughPath, failure: ProxyError) -> bool:
    """Return True if the call changes nothing, or no upstream can have executed it."""
    upload = context.call.upload
    if upload is not None and upload.has_begun:
        return False
    method = context.call.head.method
    return path.may_repeat(method) or is_surely_unprocessed(failure, context.record.attempts)


def build_success_head(open_attempt: attempt.OpenAttempt, reply: Reply) -> ResponseHead | None:
    """Return the head of a response, None for an error status."""
    if not 200 <= reply.status < 300:
        return None
    attempt.check_encoding(open_attempt, reply)
    max_bytes = open_attempt.target.upstream.max_answer_bytes or attempt.MAX_RESPONSE_BYTES
    head = response.parse_passthrough_head(reply.status, reply.headers, max_bytes)
    headers = (
        *attempt.select_client_headers(open_attempt, reply),
        *response.make_nosniff_and_disposition_headers(reply.headers),
    )
    return ResponseHead(streamed=not head.parses_json, headers=headers, passthrough=head)


def make_reader(open_attempt: attempt.OpenAttempt, head: ResponseHead) -> FrameReader:
    model_call, upstream = open_attempt.attempt.model_call, open_attempt.target.upstream
    find_usage = read_no_usage if open_attempt.request.method in MODEL_FREE_METHODS else find_tokens
    if head.passthrough is None or head.streamed:
        media_type = "" if head.passthrough is None else head.passthrough.media_type
        return response.PassthroughByteReader(model_call, media_type, find_usage)
    documents = DocumentParser(upstream.max_answer_values)
    max_bytes = upstream.max_answer_bytes or attempt.MAX_RESPONSE_BYTES
    return response.PassthroughDocumentReader(model_call, documents, max_bytes, find_usage)


def read_no_usage(data: Json) -> None:
    """Return None, because the method runs no model."""


def find_tokens(data: Json) -> Tokens | None:
    """Return the tokens that a response reports, None if it reports none or invalid ones."""
    usage = data.get("usage")
    tokens = _read_usage(usage) or _read_billed_units(usage) or _read_billed_units(data.get("meta"))
    return tokens or _read_usage(_convert_gemini_usage(data.get("usageMetadata")))


def _read_usage(usage: Any) -> Tokens | None:
    if type(usage) is not dict:
        return None
    if (tokens := read_chat_usage(usage)) is not None:
        return tokens
    if "input_tokens" in usage:
        return read_chat_usage(_convert_usage_to_chat(usage))
    if "total_tokens" in usage:
        return read_chat_usage({"prompt_tokens": usage["total_tokens"]})
    return None


def _convert_usage_to_chat(usage: Json) -> Json:
    """Return usage with ``input_tokens`` in the format of a chat.

    Counts of Anthropic exclude cached input from ``input_tokens``.
    """
    # ``input_token_details`` is the name in transcriptions.
    details = usage.get("input_tokens_details") or usage.get("input_token_details")
    usage = {**usage, "input_tokens_details": details}
    chat = responses_schema.to_chat_usage({"usage": usage}) or {}
    if any(usage.get(name) for name in ANTHROPIC_FIELDS):
        chat |= messages_schema.to_chat_usage(usage) or {}
        chat["total_tokens"] = usage.get("total_tokens")
    return chat


def _convert_gemini_usage(metadata: Any) -> Json | None:
    """Return Gemini's usage in the format of a chat.

    Gemini counts reasoning and tool results separately.
    """
    if type(metadata) is not dict or "promptTokenCount" not in metadata:
        return None
    reasoning = metadata.get("thoughtsTokenCount") or 0
    tool_results = metadata.get("toolUsePromptTokenCount") or 0
    return {
        "prompt_tokens": _sum_if_valid(metadata["promptTokenCount"], tool_results),
        "completion_tokens": _sum_if_valid(metadata.get("candidatesTokenCount") or 0, reasoning),
        "prompt_tokens_details": {
            "cached_tokens": metadata.get("cachedContentTokenCount"),
            **_rename_gemini_modality_counts(metadata.get("promptTokensDetails")),
        },
        "completion_tokens_details": {
            "reasoning_tokens": reasoning,
            **_rename_gemini_modality_counts(metadata.get("candidatesTokensDetails")),
        },
    }


def _rename_gemini_modality_counts(details: Any) -> dict[str, Any]:
    """Return Gemini's token counts by modality, under our names."""
    return {
        name: detail.get("tokenCount")
        for detail in (details if type(details) is list else ())
        if type(detail) is dict
        for name, modality in GEMINI_MODALITIES.items()
        if detail.get("modality") == modality
    }


def _sum_if_valid(*counts: Any) -> int | None:
    """Return the sum of counts, None if one of them is invalid."""
    return sum(counts) if all(type(count) is int and count >= 0 for count in counts) else None


def _read_billed_units(holder: Any) -> Tokens | None:
    return _read_usage(holder.get("billed_units") if type(holder) is dict else None)
