"""Results of translating each request field between dialects, from the request that is sent.

``tests/conformance`` compares them with the requests that upstreams receive.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import orjson

from proxy.dialects import DIALECTS, read_call
from proxy.dialects.base import Dialect
from proxy.dialects.requests.upstream_request import build_request
from proxy.dialects.responses.schema import CONVERSATION, PREVIOUS_RESPONSE_ID
from proxy.dialects.responses.sealing import CONVERSATIONS, IdSealer
from proxy.dialects.responses.state_refs import resolve_state_refs
from proxy.errors import InvalidField, NotFound
from proxy.fields.checks import FieldType
from proxy.types import Endpoint, RequestHead, Target, Upstream
from proxy.types.endpoints import TargetEndpoint
from proxy.types.events import FamilyName

FieldResult = Literal["passed", "mapped", "dropped", "refused", "implied", "by proxy"]
COLUMNS: tuple[FieldResult, ...] = ("mapped", "dropped", "refused", "by proxy")
STOPS = ("stop", "stop_sequences")
STOP_TEXT = "include_stop_str_in_output"
BY_PROXY = {"inference_timeout", "stream", "stream_options"}
"""Fields that the proxy implements if the upstream cannot."""

BODIES: dict[Endpoint, dict[str, Any]] = {
    "completions": {"model": "m", "prompt": "p"},
    "chat": {"model": "m", "messages": [{"role": "user", "content": "p"}]},
    "responses": {"model": "m", "input": "p"},
}
MESSAGES = {**BODIES["chat"], "max_tokens": 64}
PLAIN: tuple[Any, ...] = ("x", 2, 0.5, True, False, {"a": "b"}, ["a"])
"""Values of fields without a sample. The first valid one that is not the default is used."""
SAMPLES: dict[str, Any] = {
    "audio": {"voice": "x"},
    "encoding_format": "float",
    "function_call": {"name": "f"},
    "functions": [{"name": "f"}],
    "images": ["data:image/png;base64,AA"],
    "logit_bias": {"1": 1},
    "messages": [{"role": "user", "content": "other"}],
    "modalities": ["text", "audio"],
    "model": "m",
    "prediction": {"type": "content"},
    "prompt": "other",
    "reasoning_effort": "low",
    "response_format": {"type": "json_object", "schema": {"type": "object"}},
    "service_tier": "default",
    "stop": ["a"],
    "stream_options": {"include_usage": True},
    "temperature": 0.5,
    "tool_choice": "required",
    "tools": [{"type": "function", "function": {"name": "f"}}],
    "verbosity": "low",
}
MESSAGES_SAMPLES: dict[str, Any] = {
    "container": {"skills": [{"type": "anthropic", "skill_id": "pdf"}]},
    "mcp_servers": [{"type": "url", "url": "https://mcp.test", "name": "m"}],
    "metadata": {"user_id": "u"},
    "output_config": {"format": {"type": "json_schema", "schema": {"type": "object"}}},
    "thinking": {"type": "enabled", "budget_tokens": 1024},
    "thread": {"type": "create"},
    "tool_choice": {"type": "any"},
    "tools": [{"name": "f", "input_schema": {"type": "object"}}],
}
RESPONSES_SAMPLES: dict[str, Any] = {
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
FAMILY_SAMPLES: dict[FamilyName | None, dict[str, Any]] = {
    None: {},
    "messages": MESSAGES_SAMPLES,
    "responses": RESPONSES_SAMPLES,
}
IDS = IdSealer.from_secrets(["secret of the samples"])
SEPARATE_VALUES: dict[str, tuple[Any, ...]] = {
    "context_length_exceeded_behavior": ("truncate", "error"),
    STOP_TEXT: (True, False),
}
"""Fields whose result depends on the value."""
REQUIRED_FIELDS: dict[str, dict[str, Any]] = {
    "stream_options": {"stream": True},
    "top_logprobs": {"logprobs": True},
}
"""Fields that another field requires."""
TARGET_ENDPOINTS: dict[str, TargetEndpoint] = {
    "a chat-only target": "chat",
    "a legacy-only target": "completions",
    "a Responses-only target": "responses",
}
"""Targets of the OpenAI dialect that serve one endpoint."""
API_TITLES: dict[Endpoint, str] = {
    "completions": "Legacy completions",
    "chat": "Chat",
    "responses": "Responses",
}


@dataclass(frozen=True, slots=True)
class Sample:
    """A field with a value, in a request of a dialect."""

    dialect: Dialect
    endpoint: Endpoint
    name: str
    value: Any

    @property
    def title(self) -> str:
        has_value = self.name in SEPARATE_VALUES
        return (
            f"`{self.name}: {orjson.dumps(self.value).decode()}`" if has_value else f"`{self.name}`"
        )

    @property
    def body_without_field(self) -> dict[str, Any]:
        family = self.dialect.families.get(self.endpoint)
        body = MESSAGES if family == "messages" else BODIES[self.endpoint]
        extra = {} if self.endpoint == "responses" else REQUIRED_FIELDS.get(self.name, {})
        return {**body, **extra}

    @property
    def body(self) -> dict[str, Any]:
        return {**self.body_without_field, self.name: self.value}


def samples(dialect: Dialect, endpoint: Endpoint) -> Iterator[Sample]:
    """Yield samples of each field of a dialect. Raises ``ValueError`` if a field needs a sample."""
    specific = FAMILY_SAMPLES[dialect.families.get(endpoint)]
    for name, field in sorted(dialect.fields[endpoint].items()):
        if name in SEPARATE_VALUES:
            values = SEPARATE_VALUES[name]
        else:
            values = (specific[name] if name in specific else _sample_value(name, field),)
        yield from (Sample(dialect, endpoint, name, value) for value in values)


def _sample_value(name: str, field: FieldType) -> Any:
    if name in SAMPLES:
        return SAMPLES[name]
    for value in PLAIN:
        if field.check(value) is None and value != field.default:
            return value
    raise ValueError(f"{name} needs a sample")


@dataclass(frozen=True, slots=True)
class ReceivedRequest:
    """Request at an upstream, and names of dropped fields that the client is warned of."""

    body: dict[str, Any]
    warnings: tuple[str, ...]


def send(sample: Sample, body: dict[str, Any], target: Target) -> ReceivedRequest:
    """Build the request of an upstream.

    Raises:
        InvalidField: The upstream cannot have a field.
        NotFound: An id belongs to another target.
    """
    head = RequestHead(sample.dialect.name, sample.endpoint, "/", "r")
    if PREVIOUS_RESPONSE_ID in body:
        sealed = IDS.seal("", "d", target.id, body[PREVIOUS_RESPONSE_ID])
        call = resolve_state_refs(read_call(head, {**body, PREVIOUS_RESPONSE_ID: sealed}), IDS)
    elif CONVERSATION in body and sample.endpoint == "responses":
        sealed = IDS.seal("", "d", target.upstream.name, body[CONVERSATION], CONVERSATIONS)
        call = resolve_state_refs(read_call(head, {**body, CONVERSATION: sealed}), IDS)
    else:
        call = read_call(head, body)
    request = build_request(call, target)
    return ReceivedRequest(orjson.loads(request.body), (*call.warnings, *request.dropped_fields))


def translate(sample: Sample, target: Target) -> FieldResult:
    """Return the result of a field. Raises ``ValueError`` if it is dropped without a warning."""
    try:
        received = send(sample, sample.body, target)
    except (InvalidField, NotFound):
        return "refused"
    return classify(sample, target, received, send(sample, sample.body_without_field, target))


def classify(
    sample: Sample, target: Target, received: ReceivedRequest, baseline: ReceivedRequest
) -> FieldResult:
    """Compare requests with and without a field.

    Raises:
        ValueError: The field was dropped without a warning.
    """
    name, value = sample.name, sample.value
    if name in received.body and received.body[name] == value:
        return "passed"
    if received.body != baseline.body:
        return "mapped"
    if name in {warning.removesuffix(" dropped") for warning in received.warnings}:
        return "dropped"
    if name in BY_PROXY:
        return "by proxy"
    implied = DIALECTS[target.upstream.dialect].server.default_values
    if implied.get(name, sample.dialect.fields[sample.endpoint][name].default) == value:
        return "implied"
    raise ValueError(f"{name} is dropped without a warning")


def describe_stop_text(client: Dialect, upstream: Dialect) -> str:
    """Return a note if responses contain stop text other than in the client's API."""
    expected = client.server.default_values.get(STOP_TEXT)
    actual = upstream.server.default_values.get(STOP_TEXT)
    if expected is actual:
        return ""
    if actual is None:
        return "stop text undocumented"
    return "with stop text" if actual else "without stop text"


def target(dialect: str, endpoint: TargetEndpoint | None = None) -> Target:
    return Target(Upstream("u", dialect, ""), "m", endpoint)


def targets(endpoint: Endpoint) -> dict[str, Target]:
    """Return a target of each dialect, and those that serve only another endpoint."""
    by_dialect = {name: target(name) for name in DIALECTS}
    return by_dialect | {
        title: target("openai", served)
        for title, served in TARGET_ENDPOINTS.items()
        if served != endpoint
    }


Cell = tuple[str, ...]
MAX_EXCEPTIONS = 3  # upstreams at which an entry of the row "all" does not apply


def upstream_row(
    clients: Sequence[Dialect], endpoint: Endpoint, target: Target
) -> tuple[Cell, ...]:
    """Return the cells of an upstream, each with its entries.

    A field whose result depends on the client's dialect is listed with the dialects.
    """
    clients_by_field: dict[str, list[str]] = {}
    clients_by_result: dict[FieldResult, dict[str, list[str]]] = {}
    clients_by_note: dict[str, list[str]] = {}
    for client in clients:
        results = {sample.title: translate(sample, target) for sample in samples(client, endpoint)}
        for title, result in results.items():
            clients_by_field.setdefault(title, []).append(client.name)
            fields = clients_by_result.setdefault(result, {})
            fields.setdefault(title, []).append(client.name)
        note = describe_stop_text(client, DIALECTS[target.upstream.dialect])
        if note and {results.get(f"`{name}`") for name in STOPS} & {"passed", "mapped"}:
            clients_by_note.setdefault(note, []).append(client.name)
    cells = {
        result: tuple(
            title if names == clients_by_field[title] else f"{title} ({', '.join(names)})"
            for title, names in sorted(fields.items())
        )
        for result, fields in clients_by_result.items()
    }
    notes = tuple(f"{note} ({', '.join(names)})" for note, names in clients_by_note.items())
    notes += tuple(f"{title} implied" for title in cells.get("implied", ()))
    return (*(cells.get(column, ()) for column in COLUMNS), notes)


def common_entries(rows: Mapping[str, tuple[Cell, ...]], column: int) -> dict[str, list[str]]:
    """Return the entries of a column that most upstreams have, with the other upstreams."""
    entries = sorted({entry for row in rows.values() for entry in row[column]})
    others = {
        entry: [name for name, row in rows.items() if entry not in row[column]] for entry in entries
    }
    return {
        entry: names
        for entry, names in others.items()
        if len(names) <= min(MAX_EXCEPTIONS, len(rows) // 2 - 1)
    }


def _join_by_exceptions(entries: Mapping[str, list[str]]) -> str:
    """Return entries by the upstreams at which they do not apply."""
    by_exceptions: dict[str, list[str]] = {}
    for entry, names in sorted(entries.items(), key=lambda item: (len(item[1]), item[1])):
        by_exceptions.setdefault(", ".join(names), []).append(entry)
    return "; ".join(
        (f"except at {names}: " if names else "") + ", ".join(group)
        for names, group in by_exceptions.items()
    )


def table(clients: Sequence[Dialect], endpoint: Endpoint) -> Iterator[str]:
    """Yield a row for entries of most upstreams, then one per group of equal upstreams."""
    yield "| upstream | mapped | dropped | refused | by the proxy | notes |"
    yield "|---|---|---|---|---|---|"
    rows = {
        name.removeprefix("a "): upstream_row(clients, endpoint, upstream)
        for name, upstream in targets(endpoint).items()
    }
    common = [common_entries(rows, column) for column in range(len(COLUMNS) + 1)]
    cells = (_join_by_exceptions(entries) for entries in common)
    if any(common):
        yield f"| all | {' | '.join(cells)} |"
    names_by_row: dict[tuple[str, ...], list[str]] = {}
    for name, row in rows.items():
        rest = tuple(
            ", ".join(entry for entry in cell if entry not in entries)
            for cell, entries in zip(row, common, strict=True)
        )
        names_by_row.setdefault(rest, []).append(name)
    for rest, names in names_by_row.items():
        if any(rest):
            yield f"| {', '.join(names)} | {' | '.join(rest)} |"


def partly_declared(clients: Sequence[Dialect], endpoint: Endpoint) -> Iterator[str]:
    """Yield the fields that only some dialects of an API declare."""
    fields = {client.name: {*client.fields[endpoint]} for client in clients}
    common = set.intersection(*fields.values())
    fields_by_clients: dict[tuple[str, ...], list[str]] = {}
    for name in sorted(set.union(*fields.values()) - common):
        declaring = tuple(client for client, names in fields.items() if name in names)
        fields_by_clients.setdefault(declaring, []).append(f"`{name}`")
    for declaring, names in fields_by_clients.items():
        yield f"- {', '.join(declaring)}: {', '.join(names)}"


def tables() -> Iterator[str]:
    """Yield a heading and a table for each API of clients."""
    for endpoint, api in API_TITLES.items():
        families: dict[FamilyName | None, list[Dialect]] = {}
        for dialect in DIALECTS.values():
            if endpoint in dialect.fields:
                families.setdefault(dialect.families.get(endpoint), []).append(dialect)
        for family, clients in families.items():
            yield f"### {'Messages' if family == 'messages' else api}"
            yield ""
            if lines := [*partly_declared(clients, endpoint)]:
                yield "Only clients of the dialects before the colon can send these fields:"
                yield ""
                yield from lines
                yield ""
            yield from table(clients, endpoint)
            yield ""
