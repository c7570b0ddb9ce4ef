"""What becomes of each request field between dialects, told by the request that would be sent.

``tests/conformance`` holds each cell against what arrives at an upstream over a socket.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import orjson

from proxy.dialects import DIALECTS, read_call
from proxy.dialects.base import Dialect
from proxy.dialects.requests.upstream_request import build_request
from proxy.dialects.responses.schema import CONVERSATION, PREVIOUS
from proxy.dialects.responses.sealing import CONVERSATIONS, ResponseIds
from proxy.dialects.responses.state_refs import resolve_state
from proxy.errors import InvalidField, NotFound
from proxy.fields.checks import FieldType
from proxy.types import Endpoint, RequestHead, Target, Upstream
from proxy.types.endpoints import TargetEndpoint
from proxy.types.events import FamilyName

Fate = Literal["passed", "mapped", "dropped", "refused", "anyway", "here"]
STOPS = ("stop", "stop_sequences")
STOP_TEXT = "include_stop_str_in_output"
HERE = {"inference_timeout", "stream", "stream_options"}
"""Fields whose wish the proxy fulfils where the upstream cannot."""

BODIES: dict[Endpoint, dict[str, Any]] = {
    "completions": {"model": "m", "prompt": "p"},
    "chat": {"model": "m", "messages": [{"role": "user", "content": "p"}]},
    "responses": {"model": "m", "input": "p"},
}
MESSAGES = {**BODIES["chat"], "max_tokens": 64}
# A value of each field that is not its default, and what must be beside it.
SAMPLES: dict[str, Any] = {
    "audio": {"voice": "x"},
    "best_of": 2,
    "context": "c",
    "echo": True,
    "encoding_format": "float",
    "enkrypt_context": "c",
    "frequency_penalty": 0.5,
    "function_call": {"name": "f"},
    "functions": [{"name": "f"}],
    "guided_choice": ["a"],
    "guided_grammar": "g",
    "guided_json": {"type": "object"},
    "guided_regex": "a+",
    "ignore_eos": True,
    "images": ["data:image/png;base64,AA"],
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
    "modalities": ["text", "audio"],
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
    "tool_choice": "required",
    "tools": [{"type": "function", "function": {"name": "f"}}],
    "top_k": 40,
    "top_logprobs": 2,
    "top_p": 0.5,
    "typical_p": 0.5,
    "user": "u",
    "verbosity": "low",
    "web_search_options": {"a": "b"},
}
OF_MESSAGES: dict[str, Any] = {
    "container": {"skills": [{"type": "anthropic", "skill_id": "pdf"}]},
    "mcp_servers": [{"type": "url", "url": "https://mcp.test", "name": "m"}],
    "metadata": {"user_id": "u"},
    "output_config": {"format": {"type": "json_schema", "schema": {"type": "object"}}},
    "thinking": {"type": "enabled", "budget_tokens": 1024},
    "thread": {"type": "create"},
    "tool_choice": {"type": "any"},
    "tools": [{"name": "f", "input_schema": {"type": "object"}}],
}
"""The same for a client of Messages."""
OF_RESPONSES: dict[str, Any] = {
    "background": True,
    "context_management": [{"type": "compaction"}],
    "include": ["reasoning.encrypted_content"],
    "input": [{"role": "user", "content": "other"}],
    "conversation": "conv_1",
    "previous_response_id": "resp_1",
    "prompt": {"id": "pmpt_1"},
    "reasoning": {"effort": "low"},
    "store": False,
    "stream_options": {"include_obfuscation": False},
    "text": {"format": {"type": "json_schema", "name": "n", "schema": {"type": "object"}}},
    "tools": [{"type": "function", "name": "f", "parameters": {"type": "object"}}],
    "truncation": "auto",
}
"""The same for a client of Responses."""
OWN: dict[FamilyName | None, dict[str, Any]] = {
    None: {},
    "messages": OF_MESSAGES,
    "responses": OF_RESPONSES,
}
IDS = ResponseIds.of(["of no tenant"])
PLAIN: tuple[Any, ...] = ("x", 2, 0.5, True, False, {"a": "b"}, ["a"])
"""Values of the usual types, for a field whose value is of no matter."""
EACH: dict[str, tuple[Any, ...]] = {
    "context_length_exceeded_behavior": ("truncate", "error"),
    STOP_TEXT: (True, False),
}
"""Fields whose values have fates of their own."""
BESIDE: dict[str, dict[str, Any]] = {
    "stream_options": {"stream": True},
    "top_logprobs": {"logprobs": True},
}


@dataclass(frozen=True, slots=True)
class Sample:
    """A field with a value, in the request of a client."""

    dialect: Dialect
    endpoint: Endpoint
    name: str
    value: Any

    @property
    def title(self) -> str:
        shown = f": {orjson.dumps(self.value).decode()}" if self.name in EACH else ""
        return f"`{self.name}{shown}`"

    @property
    def without(self) -> dict[str, Any]:
        """The request without the field."""
        form = self.dialect.families.get(self.endpoint)
        body = MESSAGES if form == "messages" else BODIES[self.endpoint]
        beside = {} if self.endpoint == "responses" else BESIDE.get(self.name, {})
        return {**body, **beside}

    @property
    def body(self) -> dict[str, Any]:
        return {**self.without, self.name: self.value}


def samples(dialect: Dialect, endpoint: Endpoint) -> Iterator[Sample]:
    """Return a sample of each field; a flag where a count is none."""
    for name, field in sorted(dialect.fields[endpoint].items()):
        own = OWN[dialect.families.get(endpoint)].get(name)
        for value in EACH.get(name) or (_value(name, field) if own is None else own,):
            flag = name == "logprobs" and field.check(value) is not None
            yield Sample(dialect, endpoint, name, True if flag else value)


def _value(name: str, field: FieldType) -> Any:
    """Return a value for a field. Raise ``ValueError`` for one that is neither known nor plain."""
    if name in SAMPLES:
        return SAMPLES[name]
    for value in PLAIN:
        if field.check(value) is None and value != field.default:
            return value
    raise ValueError(f"{name} needs a sample")


@dataclass(frozen=True, slots=True)
class Arrived:
    """What an upstream gets of a request, and what its client is warned of."""

    body: dict[str, Any]
    warnings: tuple[str, ...]


def sent(sample: Sample, body: dict[str, Any], target: Target) -> Arrived:
    """Return what would be sent. Raises ``BadField``, and ``NotFound`` for an id of what the target
    does not keep."""
    upstream = DIALECTS[target.upstream.dialect]
    head = RequestHead(sample.dialect.name, sample.endpoint, "/", "r")
    if PREVIOUS in body:
        sealed = IDS.seal("", "d", target.id, body[PREVIOUS])
        call = resolve_state(read_call(head, {**body, PREVIOUS: sealed}), IDS)
    elif CONVERSATION in body and sample.endpoint == "responses":
        sealed = IDS.seal("", "d", target.upstream.name, body[CONVERSATION], CONVERSATIONS)
        call = resolve_state(read_call(head, {**body, CONVERSATION: sealed}), IDS)
    else:
        call = read_call(head, body)
    question = build_request(call, target, sample.dialect, upstream)
    return Arrived(orjson.loads(question.body), (*call.warnings, *question.dropped))


def fate(sample: Sample, target: Target) -> Fate:
    """Return what happens to a field. Raises ``ValueError`` where it vanishes without a word."""
    try:
        arrived = sent(sample, sample.body, target)
    except (InvalidField, NotFound):
        return "refused"
    without = sent(sample, sample.without, target)
    return judge(sample, target, arrived, without)


def judge(sample: Sample, target: Target, arrived: Arrived, without: Arrived) -> Fate:
    """Return a field's fate by the requests with it and without it. Raises ``ValueError``."""
    name, value = sample.name, sample.value
    if name in arrived.body and arrived.body[name] == value:
        return "passed"
    if arrived.body != without.body:
        return "mapped"
    if name in {each.removesuffix(" dropped") for each in arrived.warnings}:
        return "dropped"
    if name in HERE:
        return "here"
    implied = DIALECTS[target.upstream.dialect].server.implied
    if implied.get(name, sample.dialect.fields[sample.endpoint][name].default) == value:
        return "anyway"
    raise ValueError(f"{name} vanishes without a word")


def stop_text(asked: Dialect, upstream: Dialect) -> str:
    """Return a note if responses contain stop text other than in the client's API."""
    here, there = asked.server.implied.get(STOP_TEXT), upstream.server.implied.get(STOP_TEXT)
    if here is there:
        return ""
    if there is None:
        return "stop text undocumented"
    return "with stop text" if there else "without stop text"


def target(dialect: str, endpoint: TargetEndpoint | None = None) -> Target:
    return Target(Upstream("u", dialect, ""), "m", endpoint)


ONLY: dict[str, TargetEndpoint] = {
    "a chat-only target": "chat",
    "a legacy-only target": "completions",
    "a Responses-only target": "responses",
}
"""Targets of OpenAI's dialect that serve one endpoint alone."""
NAMES: dict[Endpoint, str] = {
    "completions": "legacy completions",
    "chat": "chat",
    "responses": "responses",
}


def targets(asked: Endpoint) -> dict[str, Target]:
    """Return a target of each dialect, and those that serve another endpoint only."""
    by_name = {name: target(name) for name in DIALECTS}
    others = {title: only for title, only in ONLY.items() if only != asked}
    return by_name | {title: target("openai", only) for title, only in others.items()}


def table(clients: Sequence[Dialect], came: Endpoint) -> Iterator[str]:
    """Yield a row per group of upstreams that handle all fields of an API alike.

    A field whose result depends on the client's dialect is listed with the dialects.
    """
    yield "| upstream | mapped | dropped | refused | by the proxy | notes |"
    yield "|---|---|---|---|---|---|"
    declaring: dict[str, list[str]] = {}
    for client in clients:
        for sample in samples(client, came):
            declaring.setdefault(sample.title, []).append(client.name)
    rows: dict[tuple[str, ...], list[str]] = {}
    for name, to in targets(came).items():
        found: dict[Fate, dict[str, list[str]]] = {}
        notes: dict[str, list[str]] = {}
        for client in clients:
            results = {sample.title: fate(sample, to) for sample in samples(client, came)}
            for title, result in results.items():
                found.setdefault(result, {}).setdefault(title, []).append(client.name)
            note = stop_text(client, DIALECTS[to.upstream.dialect])
            stops = {results.get(f"`{each}`") for each in STOPS}
            if note and stops & {"passed", "mapped"}:
                notes.setdefault(note, []).append(client.name)
        listed = {
            result: ", ".join(
                title if names == declaring[title] else f"{title} ({', '.join(names)})"
                for title, names in sorted(fields.items())
            )
            for result, fields in found.items()
        }
        more = [f"{note} ({', '.join(names)})" for note, names in notes.items()]
        more += [f"{listed['anyway']} implied"] if "anyway" in listed else []
        row = (*(listed.get(each, "") for each in SHOWN), "; ".join(more))
        rows.setdefault(row, []).append(name.removeprefix("a "))
    for row, names in rows.items():
        yield f"| {', '.join(names)} | {' | '.join(row)} |"


def declared(clients: Sequence[Dialect], came: Endpoint) -> Iterator[str]:
    """Yield the fields that only some dialects of an API declare."""
    fields = {client.name: {*client.fields[came]} for client in clients}
    common = set.intersection(*fields.values())
    titles: dict[tuple[str, ...], list[str]] = {}
    for name in sorted(set.union(*fields.values()) - common):
        owners = tuple(client for client, names in fields.items() if name in names)
        titles.setdefault(owners, []).append(f"`{name}`")
    for owners, names in titles.items():
        yield f"- {', '.join(owners)}: {', '.join(names)}"


SHOWN: tuple[Fate, ...] = ("mapped", "dropped", "refused", "here")


SOURCES: dict[str, dict[str, Any]] = {
    "base64": {"type": "base64", "media_type": "image/png", "data": "AAAA"},
    "url": {"type": "url", "url": "https://a.test/a"},
    "file": {"type": "file", "file_id": "f"},
    "text": {"type": "text", "media_type": "text/plain", "data": "x"},
    "content": {"type": "content", "content": [{"type": "text", "text": "x"}]},
}
WORDS = {"type": "text", "text": "x"}
USED = {"type": "tool_use", "id": "t", "name": "f", "input": {}}
RESULT = {"type": "tool_result", "tool_use_id": "t", "content": "x"}
CACHED = {"cache_control": {"type": "ephemeral"}}
BLOCKS: dict[str, tuple[str, dict[str, Any]]] = {
    "text": ("user", WORDS),
    "text with cache_control": ("user", WORDS | CACHED),
    "text with citations": ("assistant", WORDS | {"citations": [{"type": "char_location"}]}),
    **{f"image, {kind}": ("user", {"type": "image", "source": SOURCES[kind]}) for kind in SOURCES},
    **{f"document, {k}": ("user", {"type": "document", "source": SOURCES[k]}) for k in SOURCES},
    "search_result": ("user", {"type": "search_result", "source": "a", "content": [WORDS]}),
    "tool_use": ("assistant", USED),
    "tool_result": ("user", RESULT),
    "tool_result with tool_reference": (
        "user",
        RESULT | {"content": [{"type": "tool_reference", "tool_name": "f"}]},
    ),
    "tool_result with is_error": ("user", RESULT | {"is_error": True}),
    "thinking": ("assistant", {"type": "thinking", "thinking": "x", "signature": "s"}),
    "redacted_thinking": ("assistant", {"type": "redacted_thinking", "data": "x"}),
    "server_tool_use": ("assistant", {**USED, "type": "server_tool_use"}),
    "web_search_tool_result": ("assistant", {"type": "web_search_tool_result", "content": []}),
    "container_upload": ("user", {"type": "container_upload", "file_id": "f"}),
}
"""Blocks of Messages, and whose turn each stands in."""
del BLOCKS["image, text"], BLOCKS["image, content"]

PARTS: dict[str, dict[str, Any]] = {
    "text": WORDS,
    "image_url, data": {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
    "image_url, address": {"type": "image_url", "image_url": {"url": "https://a.test/a"}},
    "file, data": {"type": "file", "file": {"file_data": "data:application/pdf;base64,AAAA"}},
    "file, id": {"type": "file", "file": {"file_id": "f"}},
    "input_audio": {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}},
    "refusal": {"type": "refusal", "refusal": "x"},
    "thinking": {"type": "thinking", "thinking": [{"type": "text", "text": "x"}]},
    "redacted_thinking": {"type": "redacted_thinking", "data": "x"},
}
"""Parts of a chat's messages."""
OF_ASSISTANTS = frozenset({"redacted_thinking", "refusal", "thinking"})


def _crossed(asked: str, to: str, role: str, item: dict[str, Any]) -> str:
    """Return what becomes of a block or a part on its way between the two forms."""
    before: list[dict[str, Any]] = [{"role": "user", "content": "p"}]
    if item["type"] == "tool_result":
        before.append({"role": "assistant", "content": [USED]})
    body = {**MESSAGES, "messages": [*before, {"role": role, "content": [WORDS, item]}]}
    call = read_call(RequestHead(asked, "chat", "/", "r"), body)
    try:
        question = build_request(call, target(to), DIALECTS[asked], DIALECTS[to])
    except InvalidField:
        return "refused"
    dropped = ", ".join(f"`{name}`" for name in question.dropped)
    sent = orjson.loads(question.body)["messages"]
    if len(sent) == len(before) + 1 and sent[-1].get("content") in ("x", [WORDS]) and dropped:
        return f"dropped ({dropped})"
    return f"mapped, without {dropped}" if dropped else "mapped"


def blocks() -> Iterator[str]:
    """Yield what becomes of content within messages, in both directions, by result."""
    yield "| result | Messages to chat | chat to Messages |"
    yield "|---|---|---|"
    results: dict[str, tuple[list[str], list[str]]] = {}
    for title, (role, block) in BLOCKS.items():
        result = _crossed("anthropic", "openai", role, block)
        results.setdefault(result, ([], []))[0].append(_named(title))
    for title, part in PARTS.items():
        role = "assistant" if part["type"] in OF_ASSISTANTS else "user"
        result = _crossed("openai", "anthropic", role, part)
        results.setdefault(result, ([], []))[1].append(_named(title))
    for result, (to_chat, from_chat) in results.items():
        yield f"| {result} | {'; '.join(to_chat)} | {'; '.join(from_chat)} |"


def _named(title: str) -> str:
    kind, comma, rest = title.partition(",")
    words = [f"`{word}`" if word != "with" else word for word in kind.split()]
    return " ".join(words) + comma + rest


def tables() -> Iterator[str]:
    """Yield a heading and a table for each API of clients."""
    for came, kind in NAMES.items():
        families: dict[FamilyName | None, list[Dialect]] = {}
        for asked in DIALECTS.values():
            if came in asked.fields:
                families.setdefault(asked.families.get(came), []).append(asked)
        for family, clients in families.items():
            title = "Messages" if family == "messages" else kind[0].upper() + kind[1:]
            yield f"### {title}"
            yield ""
            if lines := [*declared(clients, came)]:
                yield "Fields that only some dialects declare:"
                yield ""
                yield from lines
                yield ""
            yield from table(clients, came)
            yield ""
