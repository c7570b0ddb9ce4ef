"""Start, usage and finish reasons of responses, read and written."""

from __future__ import annotations

from collections.abc import Mapping

from proxy.dialects.responses.tables import BY_CALL, member, objects, string
from proxy.money.usage import Tokens, read_usage
from proxy.types import Json
from proxy.types.events import Event, Finish, FinishReason, Start, UsageReport

_FINISHES: Mapping[str, FinishReason] = {
    "max_output_tokens": "length",
    "content_filter": "content_filter",
}
"""By the reason of an incomplete response. Any other is an end like any."""
_REASONS: Mapping[str, str] = {each: reason for reason, each in _FINISHES.items()}


def start_of(response: Json) -> Start:
    created = response.get("created_at")
    return Start(
        string(response.get("id")) or None,
        string(response.get("model")) or None,
        int(created) if isinstance(created, int | float) else None,
    )


def chat_usage(response: Json) -> Json | None:
    """Return the usage of a response as that of a chat, None if it has none."""
    usage = response.get("usage")
    if not isinstance(usage, dict):
        return None
    made: Json = {
        "prompt_tokens": usage.get("input_tokens"),
        "completion_tokens": usage.get("output_tokens"),
    }
    if "total_tokens" in usage:
        made["total_tokens"] = usage["total_tokens"]
    for own, name in (("input", "prompt"), ("output", "completion")):
        if isinstance(usage.get(f"{own}_tokens_details"), dict):
            made[f"{name}_tokens_details"] = usage[f"{own}_tokens_details"]
    searches = _searches(response)
    return made | ({"server_tool_use": {"web_search_requests": searches}} if searches else {})


def _searches(response: Json) -> int:
    """Return the number of web searches of the provider: as reported, or that of its items."""
    count = member(member(response.get("tool_usage")).get("web_search")).get("num_requests")
    if type(count) is int:
        return count
    calls = [each for each in objects(response.get("output")) if each.get("type") == _SEARCH]
    return sum(member(each.get("action")).get("type", "search") == "search" for each in calls)


_SEARCH = "web_search_call"


def ending(response: Json, *, has_calls: bool = False) -> list[Event]:
    """Return finish and usage of a response. `has_calls`: a stream had calls of tools before."""
    events: list[Event] = []
    usage = chat_usage(response)
    if usage is not None:
        events.append(UsageReport(read_usage(usage), response["usage"]))
    native = string(response.get("status")) or None
    if native == "incomplete":
        native = string(member(response.get("incomplete_details")).get("reason")) or None
        reason = _FINISHES.get(native or "", "stop")
    else:
        items = objects(response.get("output"))
        has_calls = has_calls or any(string(each.get("type")) in BY_CALL for each in items)
        reason = "stop"
    if reason == "stop" and has_calls:
        reason = "tool_calls"
    return [Finish(0, reason, native), *events]


def response_usage(tokens: Tokens | None) -> Json | None:
    """Return usage as an object of the API."""
    if tokens is None:
        return None
    return {
        "input_tokens": tokens.prompt_total,
        "input_tokens_details": {
            "cached_tokens": tokens.cached_input,
            "cache_write_tokens": tokens.cache_write,
        },
        "output_tokens": tokens.completion_total,
        "output_tokens_details": {"reasoning_tokens": tokens.reasoning},
        "total_tokens": tokens.total,
    }


def status_of(reason: FinishReason) -> Json:
    """Return the members that tell why a response has ended."""
    incomplete = _REASONS.get(reason)
    if incomplete is None:
        return {"status": "completed", "incomplete_details": None}
    return {"status": "incomplete", "incomplete_details": {"reason": incomplete}}
