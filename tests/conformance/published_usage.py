"""Usage in the shapes that providers publish, each with what it costs by hand.

A price is USD per million tokens, so a count times its price is millionths of a USD: ``paid`` has
these products as numbers. Counts are those of the providers' own examples where they show some.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

Json = dict[str, Any]


@dataclass(frozen=True)
class Published:
    """A usage as ``upstream`` tells it, and what it costs by hand, in millionths of a USD.

    ``shown`` are the tokens of the prompt and of the answer that a client of any form is told.
    ``price`` is USD per million tokens, of ``web_search`` per thousand. ``more`` is what else of
    the answer counts; ``begun`` is what a stream of Messages says at its begin.
    """

    upstream: str
    price: str
    usage: Json
    paid: tuple[tuple[int, str], ...]
    shown: tuple[int, int]
    more: Json = field(default_factory=dict)
    begun: Json | None = None

    @property
    def usd(self) -> Decimal:
        return sum((count * Decimal(price) for count, price in self.paid), Decimal(0)) / 10**6


CLAUDE = "input: 5, cached_input: 0.5, cache_write: 6.25, cache_write_1h: 10, output: 25"
SEARCHED: Json = {
    "id": "ws_1",
    "type": "web_search_call",
    "status": "completed",
    "action": {"type": "search", "query": "Paris"},
}


def chat(
    prompt: int,
    completion: int,
    total: int,
    prompt_details: Json | None = None,
    completion_details: Json | None = None,
    **options: Any,
) -> Json:
    usage = {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": total,
        **options,
    }
    usage |= {"prompt_tokens_details": prompt_details} if prompt_details else {}
    return usage | ({"completion_tokens_details": completion_details} if completion_details else {})


def responses(
    prompt: int, output: int, total: int, prompt_details: Json, reasoning: int = 0
) -> Json:
    return {
        "input_tokens": prompt,
        "input_tokens_details": prompt_details,
        "output_tokens": output,
        "output_tokens_details": {"reasoning_tokens": reasoning},
        "total_tokens": total,
    }


def claude(prompt: int, output: int, read: int, written: int, **options: Any) -> Json:
    caches = {"cache_read_input_tokens": read, "cache_creation_input_tokens": written}
    return {"input_tokens": prompt, "output_tokens": output, **caches, **options}


PREDICTED = {"accepted_prediction_tokens": 0, "rejected_prediction_tokens": 0}
NO_OUTPUT = {"reasoning_tokens": 0, "audio_tokens": 0, **PREDICTED}
TEXT = {"text_tokens": 32, "audio_tokens": 0, "image_tokens": 0}
PUBLISHED: Mapping[str, Published] = {
    "openai-chat-cached": Published(
        "chat",
        "input: 2.5, cached_input: 1.25, output: 10",
        chat(2006, 300, 2306, {"cached_tokens": 1920, "audio_tokens": 0}, NO_OUTPUT),
        paid=((86, "2.5"), (1920, "1.25"), (300, "10")),  # 2006 - 1920 = 86 were not cached
        shown=(2006, 300),
    ),
    "openai-chat-spoken": Published("chat",
        "input: 2.5, output: 10, audio_input: 40, audio_output: 80", chat(*(17, 110, 127),
        {"cached_tokens": 0, "audio_tokens": 12}, {"reasoning_tokens": 0, "audio_tokens": 82}),
        paid=((5, "2.5"), (12, "40"), (28, "10"), (82, "80")), shown=(17, 110)),
    "openai-responses-reasoning": Published(
        "responses",
        "input: 1.1, cached_input: 0.275, output: 4.4",
        responses(75, 1186, 1261, {"cached_tokens": 0}, 1024),
        paid=((75, "1.1"), (1186, "4.4")),  # thoughts are part of the output
        shown=(75, 1186),
    ),
    "openai-responses-searched": Published(
        "responses",
        "input: 2.5, cached_input: 1.25, output: 10, web_search: 10",
        responses(328, 356, 684, {"cached_tokens": 128, "cache_write_tokens": 0}),
        paid=((200, "2.5"), (128, "1.25"), (356, "10"), (1, "10000")),  # a search is 0.01 USD
        shown=(328, 356),
        more={"output": [SEARCHED]},
    ),
    "anthropic-written-for-both": Published("messages", CLAUDE, claude(*(2048, 503, 1800, 248),
        cache_creation={"ephemeral_5m_input_tokens": 148, "ephemeral_1h_input_tokens": 100}),
        paid=((2048, "5"), (1800, "0.5"), (148, "6.25"), (100, "10"), (503, "25")),
        shown=(4096, 503), begun={"input_tokens": 2048, "output_tokens": 1}),
    "anthropic-read": Published("messages", CLAUDE, claude(21, 393, 188086, 0),
        paid=((21, "5"), (188086, "0.5"), (393, "25")), shown=(188107, 393)),
    "anthropic-more-for-an-hour-than-was-written": Published("messages", CLAUDE,
        {**{"input_tokens": 8, "output_tokens": 1, "cache_creation_input_tokens": 4},
        **{"cache_read_input_tokens": None, "cache_creation": {"ephemeral_1h_input_tokens": 9}}},
        paid=((8, "5"), (4, "10"), (1, "25")), shown=(12, 1)),
    "anthropic-fetched": Published(  # fetched pages cost only their tokens
        "messages",
        f"{CLAUDE}, web_search: 10",
        claude(
            *(25039, 931, 0, 0),
            server_tool_use={"web_fetch_requests": 1, "web_search_requests": 0},
        ),
        paid=((25039, "5"), (931, "25")),
        shown=(25039, 931),
    ),
    "anthropic-searched": Published(
        "messages",
        f"{CLAUDE}, web_search: 10",
        claude(105, 6039, 7123, 7345, server_tool_use={"web_search_requests": 1}),
        paid=((105, "5"), (7123, "0.5"), (7345, "6.25"), (6039, "25"), (1, "10000")),
        shown=(14573, 6039),
        begun={"input_tokens": 90, "output_tokens": 3},  # the final counts apply
    ),
    "anthropic-thoughts": Published("messages", CLAUDE,
        {**{"input_tokens": 62, "output_tokens": 1240},
        "output_tokens_details": {"thinking_tokens": 1000}}, paid=((62, "5"), (1240, "25")),
        shown=(62, 1240)),
    "gemini": Published(  # the completion excludes thoughts; the total includes them
        "chat",
        "input: 0.3, output: 2.5",
        chat(20, 198, 623),
        paid=((20, "0.3"), (198, "2.5"), (405, "2.5")),
        shown=(20, 603),
    ),
    "gemini-nothing-but-thoughts": Published("chat", "input: 0.3, output: 2.5",
        chat(21, 0, 81, None, {"reasoning_tokens": 60}), paid=((21, "0.3"), (60, "2.5")),
        shown=(21, 60)),
    "deepseek": Published("chat", "input: 0.28, cached_input: 0.028, output: 0.42",
        chat(*(1105, 240, 1345), None, {"reasoning_tokens": 190}, prompt_cache_hit_tokens=1024,
        prompt_cache_miss_tokens=81), paid=((81, "0.28"), (1024, "0.028"), (240, "0.42")),
        shown=(1105, 240)),
    "xai": Published(  # thoughts are not part of the completion
        "chat",
        "input: 0.3, cached_input: 0.075, output: 0.5",
        chat(
            *(32, 9, 135),
            {**TEXT, "cached_tokens": 6},
            {**NO_OUTPUT, "reasoning_tokens": 94},
            num_sources_used=0,
        ),
        paid=((26, "0.3"), (6, "0.075"), (9, "0.5"), (94, "0.5")),
        shown=(32, 103),
    ),
    "xai-responses": Published("responses", "input: 0.2, cached_input: 0.05, output: 0.5",
        responses(125, 48, 173, {"cached_tokens": 98}),
        paid=((27, "0.2"), (98, "0.05"), (48, "0.5")), shown=(125, 48)),
    "mistral": Published("chat", "input: 0.4, cached_input: 0.04, output: 2",
        chat(1034, 36, 1070, {"cached_tokens": 1024}, prompt_audio_seconds=None),
        paid=((10, "0.4"), (1024, "0.04"), (36, "2")), shown=(1034, 36)),
    "groq": Published("chat", "input: 0.15, cached_input: 0.075, output: 0.75",
        chat(*(4641, 1817, 6458), {"cached_tokens": 4608}, queue_time=0.037493756,
        prompt_time=0.000680594, completion_time=0.463333333, total_time=0.464013927),
        paid=((33, "0.15"), (4608, "0.075"), (1817, "0.75")), shown=(4641, 1817)),
    "together": Published("chat", "input: 0.6, cached_input: 0.2, output: 1.7",
        chat(1200, 40, 1240, cached_tokens=1100), paid=((100, "0.6"), (1100, "0.2"), (40, "1.7")),
        shown=(1200, 40)),
    "openrouter": Published("chat", "input: 3, cached_input: 0.3, cache_write: 3.75, output: 15",
        chat(*(194, 12, 206), {"cached_tokens": 64, "cache_write_tokens": 100, "audio_tokens": 0},
        {"reasoning_tokens": 4}, cost=0.0006642,
        cost_details={"upstream_inference_cost": 0.0006642}),
        paid=((30, "3"), (64, "0.3"), (100, "3.75"), (12, "15")), shown=(194, 12)),
    "a-gateway-before-anthropic": Published(  # the prompt excludes cached tokens
        "chat",
        CLAUDE,
        chat(21, 393, 2414, cache_read_input_tokens=1500, cache_creation_input_tokens=500),
        paid=((21, "5"), (1500, "0.5"), (500, "6.25"), (393, "25")),
        shown=(2021, 393),
    ),
}  # fmt: skip
