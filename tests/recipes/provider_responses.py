"""Chat responses of each provider, whole and streamed, written after its API reference.

None is recorded. All contain the text `` Paris.``; ``THOUGHT`` is the reasoning of providers that
show it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from proxy.money.usage import Tokens
from tests.doubles import Script, event, head, http_chunk, sends

Json = dict[str, Any]
THOUGHT = "France has one capital."


@dataclass(frozen=True)
class ProviderAnswer:
    """``whole`` and ``events`` are what a provider answers, ``tokens`` what that has used; a bytes
    among the events stands on the wire as it is."""

    whole: Json
    events: Sequence[Json | bytes]
    tokens: Tokens
    thought: bool = False


def streamed(answer: ProviderAnswer) -> Script:
    """Return a script that streams the response unchanged."""

    begin = head(200, "text/event-stream; charset=utf-8", "transfer-encoding: chunked")
    events = [item if isinstance(item, bytes) else event(item) for item in answer.events]
    return sends(begin, *map(http_chunk, events), http_chunk(event(b"[DONE]")), b"0\r\n\r\n")


@dataclass(frozen=True)
class Words:
    """The members by which the answers of a provider differ from one another.

    ``top`` stands in an answer and in each chunk, ``choice`` in each choice, ``message`` and
    ``delta`` in what is said.
    """

    top: Json = field(default_factory=dict)
    choice: Json = field(default_factory=dict)
    message: Json = field(default_factory=dict)
    delta: Json = field(default_factory=dict)


def whole(words: Words, used: Json, finish: Json | None = None) -> Json:
    fields = {"role": "assistant", "content": " Paris.", **words.message}
    ended = {
        "index": 0,
        "message": fields,
        "finish_reason": "stop",
        **words.choice,
        **(finish or {}),
    }
    top = {"object": "chat.completion", "created": 1_763_000_000, **words.top}
    return {**top, "choices": [ended], "usage": used}


def chunk(words: Words, delta: Json, finish: str | None = None, **options: Any) -> Json:
    choice = {"index": 0, "delta": {**words.delta, **delta}, "finish_reason": finish}
    top = {**words.top, "object": "chat.completion.chunk", "created": 1_763_000_000}
    return {**top, "choices": [{**choice, **words.choice}], **options}


def usage_chunk(words: Words, used: Json) -> Json:
    """Return the chunk with usage and no choices."""
    return {**chunk(words, {}), "choices": [], "usage": used}


def counted(prompt: int, completion: int, **options: Any) -> Json:
    total = {"total_tokens": prompt + completion}
    return {"prompt_tokens": prompt, "completion_tokens": completion, **total, **options}


def _bedrock() -> ProviderAnswer:
    words = Words(
        {"id": "chatcmpl-7c0f", "model": "amazon.nova-pro-v1:0", "service_tier": "default"},
        {"logprobs": None},
        {"refusal": None},
    )
    used = counted(12, 4)
    values = [chunk(words, {"role": "assistant"}), chunk(words, {"content": " Paris."})]
    events = [*values, chunk(words, {}, "stop"), usage_chunk(words, used)]
    return ProviderAnswer(whole(words, used), events, Tokens(12, output=4))


def _gemini() -> ProviderAnswer:
    words = Words({"id": "kJ0SabOhIa2C", "model": "gemini-2.5-flash"}, {}, {})
    used = {"prompt_tokens": 12, "completion_tokens": 2, "total_tokens": 60}  # 46 are thoughts
    events = [
        chunk(words, {"role": "assistant", "content": " Par"}, usage={**used, "total_tokens": 59}),
        chunk(words, {"role": "assistant", "content": "is."}, "stop", usage=used),
    ]
    return ProviderAnswer(whole(words, used), events, Tokens(12, output=48))


def _mistral() -> ProviderAnswer:
    words = Words({"id": "cmpl-e5cc", "model": "codestral-latest"})
    tools = Words(words.top, message={"tool_calls": None, "prefix": False})
    used = counted(16, 4, prompt_tokens_details={"cached_tokens": 8}, prompt_audio_seconds=None)
    events = [
        chunk(words, {"role": "assistant", "content": ""}),
        chunk(words, {"content": " Par"}, p="abcdefgh"),
        chunk(words, {"content": "is."}, "stop", usage=used),
    ]
    return ProviderAnswer(whole(tools, used), events, Tokens(8, 8, output=4))


def _mistral_thinking() -> ProviderAnswer:
    words = Words({"id": "cmpl-e5cd", "model": "magistral-medium-latest"})
    first_string, second = THOUGHT[:9], THOUGHT[9:]
    thoughts = [{"type": "text", "text": first_string}, {"type": "text", "text": second}]
    thinking = {"type": "thinking", "thinking": thoughts, "closed": True}
    source = {"type": "reference", "reference_ids": [1]}
    fields = [thinking, {"type": "text", "text": " Paris."}, source]
    used = counted(10, 40)
    events = [
        chunk(words, {"role": "assistant", "content": ""}),
        chunk(words, {"content": [{"type": "thinking", "thinking": thoughts[:1]}]}),
        chunk(words, {"content": [{"type": "thinking", "thinking": thoughts[1:]}]}),
        chunk(words, {"content": [{"type": "text", "text": " Par"}, source]}),
        chunk(words, {"content": "is."}),
        chunk(words, {"content": ""}, "stop", usage=used),
    ]
    answered = whole(Words(words.top, message={"content": fields, "tool_calls": None}), used)
    return ProviderAnswer(answered, events, Tokens(10, output=40), thought=True)


def _groq() -> ProviderAnswer:
    top = {"id": "chatcmpl-f51b", "model": "llama-3.1-8b-instant", "system_fingerprint": "fp_1"}
    words = Words({**top, "service_tier": "on_demand"}, {"logprobs": None})
    times = {"queue_time": 0.04, "prompt_time": 0.001, "completion_time": 0.01, "total_time": 0.011}
    used = {**times, **counted(18, 3)}
    grounds = {"id": "req_01", "usage": used}
    answered = {**whole(words, used), "usage_breakdown": None, "x_groq": {"id": "req_01"}}
    events = [
        chunk(words, {"role": "assistant", "content": ""}, x_groq={"id": "req_01"}),
        chunk(words, {"content": " Paris."}),
        chunk(words, {}, "stop", x_groq=grounds),
        usage_chunk(words, used),
    ]
    return ProviderAnswer(answered, events, Tokens(18, output=3))


def _xai() -> ProviderAnswer:
    words = Words(
        {"id": "0daf962f", "model": "grok-3", "system_fingerprint": "fp_156d"},
        message={"reasoning_content": THOUGHT, "refusal": None},
    )
    used = {
        **counted(32, 3, num_sources_used=0),
        "total_tokens": 129,
        "prompt_tokens_details": {"text_tokens": 32, "image_tokens": 0, "cached_tokens": 6},
        "completion_tokens_details": {"reasoning_tokens": 94, "audio_tokens": 0},
    }
    early_value = {**used, "completion_tokens": 1, "total_tokens": 127}
    plain = Words(words.top)
    events = [
        chunk(plain, {"role": "assistant", "reasoning_content": THOUGHT}),
        chunk(plain, {"content": " Par"}, usage=early_value),
        chunk(plain, {"content": "is."}),
        chunk(plain, {}, "stop"),
        usage_chunk(plain, used),
    ]
    tokens = Tokens(26, 6, output=3, reasoning=94)
    return ProviderAnswer(whole(words, used), events, tokens, thought=True)


def _deepseek() -> ProviderAnswer:
    words = Words(
        {"id": "930c60df", "model": "deepseek-chat", "system_fingerprint": "fp_a49d"},
        {"logprobs": None},
        {"reasoning_content": THOUGHT},
    )
    used = counted(
        *(20, 9),
        prompt_cache_hit_tokens=16,
        prompt_cache_miss_tokens=4,
        completion_tokens_details={"reasoning_tokens": 5},
    )
    events: list[Json | bytes] = [
        b": keep-alive\n\n",
        chunk(words, {"role": "assistant", "content": None, "reasoning_content": THOUGHT}),
        chunk(words, {"content": " Paris.", "reasoning_content": None}),
        chunk(words, {"content": "", "reasoning_content": None}, "stop", usage=used),
    ]
    tokens = Tokens(4, 16, output=4, reasoning=5)
    return ProviderAnswer(whole(words, used), events, tokens, thought=True)


def _together_ai() -> ProviderAnswer:
    model = "MiniMaxAI/MiniMax-M3"
    words = Words({"id": "oFkXq2p-4yUbBN", "model": model}, {"seed": 7, "logprobs": None})
    used = counted(15, 4, cached_tokens=5)
    tools = Words(words.top, words.choice, {"tool_calls": []})
    events = [
        chunk(words, {"token_id": 12, "role": "assistant", "content": " Par", "tool_calls": None}),
        chunk(words, {"token_id": 13, "role": "assistant", "content": "is."}, usage=None),
        chunk(words, {"token_id": 0, "role": "assistant", "content": ""}, "stop", usage=used),
    ]
    answered = {**whole(tools, used), "prompt": []}
    return ProviderAnswer(answered, events, Tokens(10, 5, output=4))


def _openrouter() -> ProviderAnswer:
    details = [{"type": "reasoning.text", "text": THOUGHT, "format": "unknown", "index": 0}]
    words = Words(
        {"id": "gen-1763", "model": "meta-llama/llama-3.3-70b-instruct", "provider": "Novita"},
        {"native_finish_reason": "stop", "logprobs": None},
        {"refusal": None, "reasoning": THOUGHT, "reasoning_details": details},
    )
    used = counted(
        *(14, 5),
        cost=0.0000029,
        is_byok=False,
        prompt_tokens_details={"cached_tokens": 0, "cache_write_tokens": 0},
        cost_details={"upstream_inference_cost": None},
        completion_tokens_details={"reasoning_tokens": 2},
    )
    events: list[Json | bytes] = [
        b": OPENROUTER PROCESSING\n\n",
        chunk(words, {"role": "assistant", "content": "", "reasoning": THOUGHT}),
        b": OPENROUTER PROCESSING\n\n",
        chunk(words, {"role": "assistant", "content": " Paris."}),
        chunk(words, {"role": "assistant", "content": ""}, "stop"),
        chunk(words, {"role": "assistant", "content": ""}, usage=used),
    ]
    return ProviderAnswer(whole(words, used), events, Tokens(14, output=3, reasoning=2))


def _huggingface() -> ProviderAnswer:
    top = {"id": "chatcmpl-91ab", "model": "openai/gpt-oss-120b", "system_fingerprint": "fp_2"}
    words = Words({**top, "service_tier": "on_demand"}, {"logprobs": None}, {"reasoning": THOUGHT})
    used = counted(72, 12, completion_tokens_details={"reasoning_tokens": 7})
    events = [
        chunk(words, {"role": "assistant", "content": None}),
        chunk(words, {"reasoning": THOUGHT, "channel": "analysis"}),
        chunk(words, {"content": " Paris."}),
        chunk(words, {}, "stop", x_groq={"id": "req_02", "usage": used}),
        usage_chunk(words, used),
    ]
    return ProviderAnswer(whole(words, used), events, Tokens(72, output=5, reasoning=7))


def _fireworks() -> ProviderAnswer:
    model = "accounts/fireworks/models/gpt-oss-120b"
    words = Words({"id": "c7a1", "model": model}, message={"reasoning_content": THOUGHT})
    used = counted(70, 20, prompt_tokens_details={"cached_tokens": 64})
    events = [
        chunk(words, {"role": "assistant"}),
        chunk(words, {"reasoning_content": THOUGHT}),
        chunk(words, {"content": " Paris."}),
        chunk(words, {}, "stop", usage=used),
    ]
    return ProviderAnswer(whole(words, used), events, Tokens(6, 64, output=20), thought=True)


def _sglang() -> ProviderAnswer:
    words = Words(
        {"id": "8f2b", "model": "qwen"},
        {"logprobs": None, "matched_stop": None},
        {"reasoning_content": None, "tool_calls": None},
        {"reasoning_content": None, "tool_calls": None},
    )
    used = counted(11, 4, prompt_tokens_details=None, reasoning_tokens=0)
    events = [
        chunk(words, {"role": "assistant", "content": ""}, usage=None),
        chunk(words, {"role": None, "content": " Paris."}, usage=None),
        chunk(words, {"role": None, "content": None}, "stop", usage=None),
        usage_chunk(words, used),
    ]
    answered = whole(words, used, {"matched_stop": 151645})
    return ProviderAnswer(
        {**answered, "metadata": {"weight_version": "default"}}, events, Tokens(11, output=4)
    )


def _llamacpp() -> ProviderAnswer:
    words = Words({"id": "chatcmpl-x9", "model": "smol", "system_fingerprint": "b6000-abc"})
    timings = {"cache_n": 6, "prompt_n": 4, "prompt_ms": 20.5, "predicted_n": 3}
    used = counted(10, 3, prompt_tokens_details={"cached_tokens": 6})
    events = [
        chunk(words, {"role": "assistant", "content": None}),
        chunk(words, {"content": " Paris."}),
        chunk(words, {}, "stop"),
        {**usage_chunk(words, used), "timings": timings},
    ]
    return ProviderAnswer({**whole(words, used), "timings": timings}, events, Tokens(4, 6, 0, 3))


def _ollama() -> ProviderAnswer:
    top = {"id": "chatcmpl-554", "model": "llama3.2:3b", "system_fingerprint": "fp_ollama"}
    words = Words(top)
    used = counted(29, 3)
    events = [
        chunk(words, {"role": "assistant", "content": " Par"}),
        chunk(words, {"role": "assistant", "content": "is."}),
        chunk(words, {"role": "assistant", "content": ""}, "stop"),
        usage_chunk(words, used),
    ]
    return ProviderAnswer(whole(words, used), events, Tokens(29, output=3))


ANSWERS: Mapping[str, ProviderAnswer] = {
    "bedrock": _bedrock(),
    "gemini": _gemini(),
    "mistral": _mistral(),
    "groq": _groq(),
    "xai": _xai(),
    "deepseek": _deepseek(),
    "together": _together_ai(),
    "openrouter": _openrouter(),
    "huggingface": _huggingface(),
    "fireworks": _fireworks(),
    "sglang": _sglang(),
    "llamacpp": _llamacpp(),
    "ollama": _ollama(),
}
"""By the name of the upstream in the recipe."""

MISTRAL_THINKING = _mistral_thinking()
"""What Mistral's models that think answer: their content is a list of parts."""
