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

PUBLISHED: Mapping[str, Published] = {
    "openai-chat-cached": Published(
        upstream="chat",
        price="input: 2.5, cached_input: 1.25, output: 10",
        usage={
            "prompt_tokens": 2006,
            "completion_tokens": 300,
            "total_tokens": 2306,
            "prompt_tokens_details": {"cached_tokens": 1920, "audio_tokens": 0},
            "completion_tokens_details": {
                "reasoning_tokens": 0,
                "audio_tokens": 0,
                "accepted_prediction_tokens": 0,
                "rejected_prediction_tokens": 0,
            },
        },
        paid=((86, "2.5"), (1920, "1.25"), (300, "10")),  # 2006 - 1920 = 86 were read anew
        shown=(2006, 300),
    ),
    "openai-chat-spoken": Published(
        upstream="chat",
        price="input: 2.5, output: 10, audio_input: 40, audio_output: 80",
        usage={
            "prompt_tokens": 17,
            "completion_tokens": 110,
            "total_tokens": 127,
            "prompt_tokens_details": {"cached_tokens": 0, "audio_tokens": 12},
            "completion_tokens_details": {"reasoning_tokens": 0, "audio_tokens": 82},
        },
        paid=((5, "2.5"), (12, "40"), (28, "10"), (82, "80")),
        shown=(17, 110),
    ),
    "openai-responses-reasoning": Published(
        upstream="responses",
        price="input: 1.1, cached_input: 0.275, output: 4.4",
        usage={
            "input_tokens": 75,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": 1186,
            "output_tokens_details": {"reasoning_tokens": 1024},
            "total_tokens": 1261,
        },
        paid=((75, "1.1"), (1186, "4.4")),  # thoughts are part of the output
        shown=(75, 1186),
    ),
    "openai-responses-searched": Published(
        upstream="responses",
        price="input: 2.5, cached_input: 1.25, output: 10, web_search: 10",
        usage={
            "input_tokens": 328,
            "input_tokens_details": {"cached_tokens": 128, "cache_write_tokens": 0},
            "output_tokens": 356,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": 684,
        },
        paid=((200, "2.5"), (128, "1.25"), (356, "10"), (1, "10000")),  # a search is 0.01 USD
        shown=(328, 356),
        more={"output": [SEARCHED]},
    ),
    "anthropic-written-for-both": Published(
        upstream="messages",
        price=CLAUDE,
        usage={
            "input_tokens": 2048,
            "cache_read_input_tokens": 1800,
            "cache_creation_input_tokens": 248,
            "cache_creation": {"ephemeral_5m_input_tokens": 148, "ephemeral_1h_input_tokens": 100},
            "output_tokens": 503,
        },
        paid=((2048, "5"), (1800, "0.5"), (148, "6.25"), (100, "10"), (503, "25")),
        shown=(4096, 503),
        begun={"input_tokens": 2048, "output_tokens": 1},
    ),
    "anthropic-searched": Published(
        upstream="messages",
        price=f"{CLAUDE}, web_search: 10",
        usage={
            "input_tokens": 105,
            "output_tokens": 6039,
            "cache_read_input_tokens": 7123,
            "cache_creation_input_tokens": 7345,
            "server_tool_use": {"web_search_requests": 1},
        },
        paid=((105, "5"), (7123, "0.5"), (7345, "6.25"), (6039, "25"), (1, "10000")),
        shown=(14573, 6039),
        begun={"input_tokens": 90, "output_tokens": 3},  # the counts of the end win
    ),
    "anthropic-thoughts": Published(
        upstream="messages",
        price=CLAUDE,
        usage={
            "input_tokens": 62,
            "output_tokens": 1240,
            "output_tokens_details": {"thinking_tokens": 1000},
        },
        paid=((62, "5"), (1240, "25")),
        shown=(62, 1240),
    ),
    "gemini": Published(  # whose completion leaves thoughts out; the total has them
        upstream="chat",
        price="input: 0.3, output: 2.5",
        usage={"prompt_tokens": 20, "completion_tokens": 198, "total_tokens": 623},
        paid=((20, "0.3"), (198, "2.5"), (405, "2.5")),
        shown=(20, 603),
    ),
    "gemini-nothing-but-thoughts": Published(
        upstream="chat",
        price="input: 0.3, output: 2.5",
        usage={
            "prompt_tokens": 21,
            "completion_tokens": 0,
            "total_tokens": 81,
            "completion_tokens_details": {"reasoning_tokens": 60},
        },
        paid=((21, "0.3"), (60, "2.5")),
        shown=(21, 60),
    ),
    "deepseek": Published(
        upstream="chat",
        price="input: 0.28, cached_input: 0.028, output: 0.42",
        usage={
            "prompt_tokens": 1105,
            "completion_tokens": 240,
            "total_tokens": 1345,
            "prompt_cache_hit_tokens": 1024,
            "prompt_cache_miss_tokens": 81,
            "completion_tokens_details": {"reasoning_tokens": 190},
        },
        paid=((81, "0.28"), (1024, "0.028"), (240, "0.42")),
        shown=(1105, 240),
    ),
    "xai": Published(  # thoughts are beside the completion
        upstream="chat",
        price="input: 0.3, cached_input: 0.075, output: 0.5",
        usage={
            "prompt_tokens": 32,
            "completion_tokens": 9,
            "total_tokens": 135,
            "prompt_tokens_details": {
                "text_tokens": 32,
                "audio_tokens": 0,
                "image_tokens": 0,
                "cached_tokens": 6,
            },
            "completion_tokens_details": {
                "reasoning_tokens": 94,
                "audio_tokens": 0,
                "accepted_prediction_tokens": 0,
                "rejected_prediction_tokens": 0,
            },
            "num_sources_used": 0,
        },
        paid=((26, "0.3"), (6, "0.075"), (9, "0.5"), (94, "0.5")),
        shown=(32, 103),
    ),
    "xai-responses": Published(
        upstream="responses",
        price="input: 0.2, cached_input: 0.05, output: 0.5",
        usage={
            "input_tokens": 125,
            "output_tokens": 48,
            "total_tokens": 173,
            "input_tokens_details": {"cached_tokens": 98},
            "output_tokens_details": {"reasoning_tokens": 0},
        },
        paid=((27, "0.2"), (98, "0.05"), (48, "0.5")),
        shown=(125, 48),
    ),
    "mistral": Published(
        upstream="chat",
        price="input: 0.4, cached_input: 0.04, output: 2",
        usage={
            "prompt_tokens": 1034,
            "completion_tokens": 36,
            "total_tokens": 1070,
            "prompt_audio_seconds": None,
            "prompt_tokens_details": {"cached_tokens": 1024},
        },
        paid=((10, "0.4"), (1024, "0.04"), (36, "2")),
        shown=(1034, 36),
    ),
    "groq": Published(
        upstream="chat",
        price="input: 0.15, cached_input: 0.075, output: 0.75",
        usage={
            "queue_time": 0.037493756,
            "prompt_tokens": 4641,
            "prompt_time": 0.000680594,
            "completion_tokens": 1817,
            "completion_time": 0.463333333,
            "total_tokens": 6458,
            "total_time": 0.464013927,
            "prompt_tokens_details": {"cached_tokens": 4608},
        },
        paid=((33, "0.15"), (4608, "0.075"), (1817, "0.75")),
        shown=(4641, 1817),
    ),
    "together": Published(
        upstream="chat",
        price="input: 0.6, cached_input: 0.2, output: 1.7",
        usage={
            "prompt_tokens": 1200,
            "completion_tokens": 40,
            "total_tokens": 1240,
            "cached_tokens": 1100,
        },
        paid=((100, "0.6"), (1100, "0.2"), (40, "1.7")),
        shown=(1200, 40),
    ),
    "openrouter": Published(
        upstream="chat",
        price="input: 3, cached_input: 0.3, cache_write: 3.75, output: 15",
        usage={
            "prompt_tokens": 194,
            "prompt_tokens_details": {
                "cached_tokens": 64,
                "cache_write_tokens": 100,
                "audio_tokens": 0,
            },
            "completion_tokens": 12,
            "completion_tokens_details": {"reasoning_tokens": 4},
            "total_tokens": 206,
            "cost": 0.0006642,
            "cost_details": {"upstream_inference_cost": 0.0006642},
        },
        paid=((30, "3"), (64, "0.3"), (100, "3.75"), (12, "15")),
        shown=(194, 12),
    ),
    "a-gateway-before-anthropic": Published(  # whose prompt leaves out what caches had
        upstream="chat",
        price=CLAUDE,
        usage={
            "prompt_tokens": 21,
            "completion_tokens": 393,
            "total_tokens": 2414,
            "cache_read_input_tokens": 1500,
            "cache_creation_input_tokens": 500,
        },
        paid=((21, "5"), (1500, "0.5"), (500, "6.25"), (393, "25")),
        shown=(2021, 393),
    ),
}
