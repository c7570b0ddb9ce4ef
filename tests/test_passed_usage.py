"""The usage that answers of other APIs say."""

from __future__ import annotations

from typing import Any

from proxy.passed_usage import passed_tokens
from proxy.usage import Tokens
from tests.for_each import for_each

PICTURE = {
    "input_tokens": 50,
    "input_tokens_details": {"image_tokens": 40, "text_tokens": 10, "cached_tokens": 8},
    "output_tokens": 4160,
    "total_tokens": 4210,
}
SPEECH = {
    "type": "tokens",
    "input_tokens": 14,
    "input_token_details": {"text_tokens": 4, "audio_tokens": 10},
    "output_tokens": 45,
    "total_tokens": 59,
}
CLAUDE = {
    "input_tokens": 10,
    "cache_read_input_tokens": 1000,
    "cache_creation_input_tokens": 500,
    "cache_creation": {"ephemeral_5m_input_tokens": 400, "ephemeral_1h_input_tokens": 100},
    "server_tool_use": {"web_search_requests": 2},
    "output_tokens": 5,
}
GEMINI = {
    "promptTokenCount": 100,
    "cachedContentTokenCount": 60,
    "toolUsePromptTokenCount": 7,
    "candidatesTokenCount": 20,
    "thoughtsTokenCount": 30,
    "totalTokenCount": 157,
    "promptTokensDetails": [
        {"modality": "TEXT", "tokenCount": 90},
        {"modality": "AUDIO", "tokenCount": 10},
    ],
}
COHERE = {
    "billed_units": {"input_tokens": 5, "output_tokens": 418},
    "tokens": {"input_tokens": 71, "output_tokens": 418},
}


@for_each(
    ("data", "tokens"),
    [
        ({"usage": {"total_tokens": 7}}, Tokens(input=7)),
        ({"usage": {"prompt_tokens": 5, "completion_tokens": 3}}, Tokens(input=5, output=3)),
        ({"usage": PICTURE}, Tokens(input=42, cached_input=8, output=4160)),
        ({"usage": SPEECH}, Tokens(input=4, audio_input=10, output=45)),
        ({"meta": {"billed_units": {"input_tokens": 9, "output_tokens": 2}}}, Tokens(9, output=2)),
        ({"meta": {"billed_units": {"search_units": 1}}}, None),
        ({"usage": COHERE}, Tokens(input=5, output=418)),
        (
            {"usage": CLAUDE},
            Tokens(10, 1000, 500, output=5, cache_write_1h=100, web_searches=2),
        ),
        ({"usage": CLAUDE | {"cache_read_input_tokens": "7"}}, None),
        (
            {"usageMetadata": GEMINI},
            Tokens(input=37, cached_input=60, audio_input=10, output=20, reasoning=30),
        ),
        ({"usageMetadata": {"promptTokenCount": 4, "totalTokenCount": 4}}, Tokens(input=4)),
        ({"usageMetadata": {"promptTokenCount": -4}}, None),
        ({"usageMetadata": {"totalTokenCount": 4}}, None),
        ({"usage": {"type": "duration", "seconds": 3}}, None),
        ({"usage": {"total_tokens": -1}}, None),
        ({"usage": {"input_tokens": "7"}}, None),
        ({"usage": [7]}, None),
        ({"usage": 7, "meta": 7}, None),
        ({}, None),
    ],
)
def test_usage_is_read_in_whatever_words(data: dict[str, Any], tokens: Tokens | None) -> None:
    assert passed_tokens(data) == tokens
