"""What becomes of each request field between dialects, found out by sending it through the code."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

from proxy.dialects import DIALECTS, read_call
from proxy.dialects.asking import target_endpoint
from proxy.dialects.base import Dialect
from proxy.dialects.crossing import fit
from proxy.errors import BadField
from proxy.types import Call, Door, Endpoint, Target, Upstream

Fate = Literal["passed", "mapped", "dropped", "refused"]

BODIES: dict[Endpoint, dict[str, Any]] = {
    "completions": {"model": "m", "prompt": "p"},
    "chat": {"model": "m", "messages": [{"role": "user", "content": "p"}]},
}
# A value of each field that is not its default, and what must be beside it.
SAMPLES: dict[str, Any] = {
    "audio": {"voice": "x"},
    "best_of": 2,
    "context": "c",
    "context_length_exceeded_behavior": "error",
    "echo": True,
    "enkrypt_context": "c",
    "frequency_penalty": 0.5,
    "function_call": "auto",
    "functions": [{"name": "f"}],
    "guided_choice": ["a"],
    "guided_grammar": "g",
    "guided_json": {"type": "object"},
    "guided_regex": "a+",
    "ignore_eos": True,
    "images": ["data:image/png;base64,AA"],
    "include_stop_str_in_output": True,
    "inference_extra_headers": {"x-team": "support"},
    "inference_extra_params": {"a": 1},
    "inference_timeout": 5,
    "logit_bias": {"1": 1},
    "logprobs": 2,
    "max_completion_tokens": 9,
    "max_new_tokens": 9,
    "max_tokens": 9,
    "messages": [{"role": "user", "content": "other"}],
    "metadata": {"a": "b"},
    "min_p": 0.5,
    "mirostat_lr": 0.5,
    "mirostat_target": 2.5,
    "modalities": ["text"],
    "model": "m",
    "n": 2,
    "parallel_tool_calls": False,
    "perf_metrics_in_response": True,
    "prediction": {"type": "content"},
    "presence_penalty": 0.5,
    "prompt": "other",
    "prompt_cache_isolation_key": "k",
    "prompt_cache_key": "k",
    "raw_output": True,
    "reasoning_effort": "low",
    "repetition_penalty": 1.5,
    "response_format": {"type": "json_object", "schema": {"type": "object"}},
    "return_token_ids": True,
    "return_token_log_probs": True,
    "safety_identifier": "s",
    "seed": 1,
    "service_tier": "default",
    "stop": ["a"],
    "stop_sequences": ["a"],
    "store": True,
    "stream": True,
    "stream_options": {"include_usage": True},
    "suffix": "s",
    "temperature": 0.5,
    "tool_choice": "auto",
    "tools": [{"type": "function"}],
    "top_k": 40,
    "top_logprobs": 2,
    "top_p": 0.5,
    "typical_p": 0.5,
    "user": "u",
    "verbosity": "low",
    "web_search_options": {"a": "b"},
}
BESIDE: dict[str, dict[str, Any]] = {
    "stream_options": {"stream": True},
    "top_logprobs": {"logprobs": True},
}


def sample(dialect: Dialect, endpoint: Endpoint, name: str) -> Any:
    """Give a value that the client's dialect accepts; a flag where a count is none."""
    value = SAMPLES[name]
    field = dialect.fields[endpoint][name]
    return True if name == "logprobs" and field.check(value) is not None else value


def fate(asked: Dialect, upstream: Dialect, ways: tuple[Endpoint, Endpoint], name: str) -> Fate:
    """Say what happens to a field that is set to something else than its default."""
    came, goes = ways
    value = sample(asked, came, name)
    body = {**BODIES[came], **BESIDE.get(name, {}), name: value}
    door = Door(asked.name, came, "/", "r")
    try:
        call = read_call(door, body)
        fitted = fit(asked, upstream, (came, goes), call.body)
    except BadField:
        return "refused"
    if name in fitted.dropped:
        return "dropped"
    return "passed" if fitted.body.get(name) == value else "mapped"


def served_as(asked: Dialect, upstream: Dialect, came: Endpoint) -> Endpoint:
    """Give the endpoint of an upstream that serves a call, as it has no word on it."""
    call = Call(Door(asked.name, came, "/", "r"), {})
    return target_endpoint(call, Target(Upstream("u", upstream.name, ""), "m"), upstream)


def table(asked: Dialect, came: Endpoint) -> Iterator[str]:
    """Give the rows for a client's dialect: a field, and its fate at each upstream."""
    other: Endpoint = "chat" if came == "completions" else "completions"
    crossing = "a chat-only target" if other == "chat" else "a legacy-only target"
    heads = [*DIALECTS, crossing]
    yield "| field | " + " | ".join(heads) + " |"
    yield "|---" * (len(heads) + 1) + "|"
    for name in sorted(asked.fields[came]):
        fates = [
            fate(asked, upstream, (came, served_as(asked, upstream, came)), name)
            for upstream in DIALECTS.values()
        ]
        fates.append(fate(asked, DIALECTS["openai"], (came, other), name))
        yield f"| `{name}` | " + " | ".join(fates) + " |"


def tables() -> Iterator[str]:
    """Give a heading and a table for each dialect and endpoint of clients."""
    for asked in DIALECTS.values():
        for came in ("completions", "chat"):
            if came in asked.fields:
                kind = "legacy completions" if came == "completions" else "chat"
                yield f"#### {asked.name}, {kind}"
                yield ""
                yield from table(asked, came)
                yield ""
