"""Searches for text of clients and upstreams that takes many bytes where it is recorded.

Records, logs, spans, metrics, the ledger, explanations and errors each keep few bytes of a call.
"""

from __future__ import annotations

import asyncio
import gc
import itertools
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import orjson
import pytest

from proxy.dialects import CHECKED_FIELDS, DIALECTS
from proxy.fields.token_bounds import OPTION_GROUPS
from proxy.types import Endpoint
from tests.adversary.event_loops import LoopLag
from tests.adversary.stored_data import StoredData
from tests.conftest import Proxy, policies_for, running_proxy
from tests.doubles import (
    Json,
    Script,
    ScriptedUpstream,
    chat,
    event,
    head,
    http_chunk,
    legacy_completion,
    respond,
    sends,
)
from tests.test_pipeline import BEARER, ROUTES, Route

MAX_TEXT_BYTES = 1024 * 1024
MAX_STORED_BYTES = 64 * 1024
MAX_SHOWN_BYTES = 16 * 1024
MAX_METRICS_BYTES = 256 * 1024
MAX_LAG_S = 0.25
MAX_HEADER_BYTES = 8000  # a head has 64 KiB, and one of its fields 8 KiB
NAMES = ("openai", "openai-chat", "portkey-chat", "fireworks-chat", "scale-5-chat", "multimodel",
         "enkrypt-chat")  # fmt: skip
HEAD_NAMES = ("openai-chat", "portkey-chat", "enkrypt-chat")
POLICY = """
policies:
  default:
    match: all
    rules:
      - {name: by-header, when: {header: {x-app: {glob: '*'}}}, cap: {max_tokens: 100}}
      - {name: by-tag, when: {tag: {feature: {glob: 'a*'}}}, set: {temperature: 0}}
    limits:
      - {name: calls, requests: 1M per minute, per: [key, user]}
      - {name: tagged, tokens: 1000M per day, per: tag.feature}
    input: [{guard: keywords, words: [zzzzzz], action: flag}]
    output: [{guard: keywords, name: out, words: [zzzzzz], action: flag}]
"""


@dataclass(frozen=True)
class HostileRequest:
    """A request whose ``fields`` replace those of a normal one."""

    route: Route
    fields: Mapping[str, Any] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    path: str = ""
    method: str = "POST"


def build_policies(upstream: str) -> str:
    text = policies_for(upstream).replace(
        "  openai: {dialect: openai,",
        "  openai: {dialect: openai, drop: [provider, content_policy_fallbacks],",
    )
    text = text.replace("total: 3s", "total: 30s")
    for name in ("portkey", "fireworks", "scale", "multimodel", "enkrypt"):
        text = text.replace(f"{{dialect: {name}, ", f"{{dialect: {name}, drop: [provider], ")
    return text.replace("'[a-z-]+'", "'.*'") + POLICY


@dataclass
class SizeChecker:
    """Sends calls and collects those of which some store keeps too many bytes."""

    proxy: Proxy
    upstream: ScriptedUpstream
    stored: StoredData
    errors: list[str] = field(default_factory=list)

    async def send(self, label: str, request: HostileRequest) -> None:
        body = {"model": "support-chat", **request.route.content, **request.fields}
        headers = {
            **request.route.credential,
            "content-type": "application/json",
            **request.headers,
        }
        path = request.path or request.route.path
        gc.collect(0)
        gc.disable()
        try:
            with LoopLag() as lag:
                async with asyncio.timeout(30):
                    raw, method = orjson.dumps(body), request.method
                    reply = await self.proxy.send(path, raw, headers, method=method)
        finally:
            gc.enable()
        self.upstream.requests.clear()
        shown = {"response headers": sum(len(k) + len(v) for k, v in reply.headers.items())}
        if reply.status >= 400:
            shown["error"] = len(reply.raw)
        stored: dict[str, int] = {}
        if self.proxy.sink.begun:  # invalid HTTP is no call
            [record] = await self.proxy.sink.wait()
            self.proxy.sink.forget()
            self.proxy.sink.begun = 0
            stored = self.stored.measure(record)
            if record.is_internal_error:
                self.errors.append(f"{label}: {reply.status}: internal error")
        for sizes, maximum in ((shown, MAX_SHOWN_BYTES), (stored, MAX_STORED_BYTES)):
            self.errors += [
                f"{label}: {reply.status}: {name} has {size} bytes"
                for name, size in sizes.items()
                if size > maximum
            ]
        if lag.worst_s > MAX_LAG_S:
            self.errors.append(f"{label}: {reply.status}: held the loop for {lag.worst_s:.3f} s")


@asynccontextmanager
async def size_checker(folder: Path, upstream: ScriptedUpstream) -> AsyncIterator[SizeChecker]:
    """Run a proxy, and require at the end that no call stored too many bytes."""
    text = build_policies(upstream.url)
    candidate = folder / "candidate"
    candidate.mkdir()
    (candidate / "policies.yaml").write_text(text.replace("gpt-4o-mini", "gpt-4.1"))
    async with running_proxy(folder / "policies", text, candidate=candidate) as proxy:
        checker = SizeChecker(proxy, upstream, StoredData(proxy.policies, candidate))
        metrics_before = await proxy.metrics()
        yield checker
        growth = len(await proxy.metrics()) - len(metrics_before)
    assert "\n".join(checker.errors) == ""
    assert growth <= MAX_METRICS_BYTES
    assert len(checker.stored.longest_metrics_line()) <= MAX_STORED_BYTES


def list_spellings(name: str, count: int) -> list[str]:
    """Return ``count`` spellings of a name that some servers read as the name."""
    forms = [(c, c.upper(), chr(0xFF41 + ord(c) - 97), chr(0x1D41A + ord(c) - 97)) for c in name]
    return ["".join(item) for item in itertools.islice(itertools.product(*forms), count)]


Case = tuple[str, HostileRequest, Script]


def iter_bodies(name: str) -> Iterator[Case]:
    """Yield requests with fields of the maximum length or number."""
    route, text = ROUTES[name], "m" * MAX_TEXT_BYTES
    script = respond(chat() if route.chat else legacy_completion())
    for label, fields in iter_fields(name, text):
        yield label, HostileRequest(route, fields), script


def iter_fields(name: str, text: str) -> Iterator[tuple[str, Json]]:
    dialect = name.removesuffix("-chat").removesuffix("-5")
    endpoint: Endpoint = "chat" if ROUTES[name].chat else "completions"
    names = {*CHECKED_FIELDS[dialect][endpoint], *OPTION_GROUPS, "unknown"}
    if name != "openai-chat":  # shared fields are tested once
        names -= CHECKED_FIELDS["openai"]["chat"].keys()
    for item in sorted({*names, *DIALECTS[dialect].client.aliases}):
        yield f"{item} is a text", {item: text}
    if name not in ("openai-chat", "multimodel"):
        return
    for item in ("model", "stop", "user", "unknown", "tools", "metadata", "logit_bias"):
        yield f"{item} is a list of one", {item: [text]}
        yield f"{item} has one name", {item: {text: 1}}
    long_names = {f"{number}_" + "n" * 4000: 1 for number in range(1000)}
    models = {
        "many": [f"{number}" + "m" * 40 for number in range(90_000)],
        "the most allowed": [f"{number}" + "m" * 250 for number in range(1000)],
        "long": [f"{number}" + "m" * 40_000 for number in range(100)],
        "wide": [f"{number}" + "\U0001f600" * 250 for number in range(32)],
    }
    for label, listed in models.items():
        yield f"models: {label}", {"model": listed}
    yield "one name", {text: 1}
    yield "many names", long_names
    yield "short names", {f"{number}_" + "n" * 240: 1 for number in range(16_000)}
    yield "names in a group", {"options": long_names}
    yield "spellings of a dropped field", dict.fromkeys(list_spellings("provider", 40_000), 1)
    yield "a wide user", {"user": "\U0001f600" * 256}
    nested: Json = {"max_tokens": "x"}
    for _ in range(240):
        nested = {"inference_extra_params": nested}
    yield "a deep group", nested
    yield "a text that is no role", {"messages": [{"role": text, "content": "x"}]}


def iter_heads(name: str) -> Iterator[Case]:
    """Yield requests with headers, path or method of the maximum length."""
    route, text, script = ROUTES[name], "a" * MAX_HEADER_BYTES, respond(chat())
    names = (
        *("x-headrace-deployment", "x-headrace-tags", "x-request-id", "x-headrace-via", "x-app"),
        *("x-portkey-trace-id", "x-portkey-config", "x-portkey-virtual-key", "x-enkrypt-tags"),
        *("traceparent", "cache-control", "user-agent", "unknown"),
    )
    tags = ("feature", "beta", *"abcdefghijklmnop")
    headers: dict[str, dict[str, str]] = {
        **{name: {name: text} for name in names},
        "a wide header": {"x-app": "a" * 7000 + "\U0001f600"},
        "many tags": {"x-headrace-tags": ",".join(f"{tag}=" + "a" * 250 for tag in tags)},
        "a long tag": {"x-headrace-tags": "feature=" + "a" * 256},
        "a wide tag": {"x-headrace-tags": "feature=a" + "\U0001f600" * 255},
        **{
            f"metadata of {feature[:1]} and {user[:1]}": {
                "x-portkey-metadata": orjson.dumps({"feature": feature, "_user": user}).decode()
            }
            for feature, user in ((text[:7000], "u"), ("f", text[:7000]))
        },
        "many headers": {f"x-{number}": text[:1000] for number in range(50)},
    }
    for label, fields in headers.items():
        yield label, HostileRequest(route, headers=fields), script
    yield "a path", HostileRequest(route, path=f"/v1/{text}"), script
    yield "a query", HostileRequest(route, path=f"{route.path}?{text}"), script
    yield "a method", HostileRequest(route, method="M" * 7000), script


MEMBERS = (
    "id",
    "object",
    "created",
    "model",
    "system_fingerprint",
    "service_tier",
    "usage",
    "note",
)
CHOICE_MEMBERS = ("index", "finish_reason", "logprobs", "message", "delta", "text", "note")


def iter_documents(base: Json, *kinds: str) -> Iterator[tuple[str, Json]]:
    """Yield responses with one member of the maximum length. ``kinds`` are those of its value."""
    text = "i" * MAX_TEXT_BYTES
    values = {"a text": text, "a list": [text], "a name": {text: 1}}
    [choice] = base["choices"]
    for kind in kinds:
        for member in MEMBERS:
            yield f"{member} is {kind}", {**base, member: values[kind]}
        for member in CHOICE_MEMBERS:
            yield f"{member} of a choice", {**base, "choices": [{**choice, member: values[kind]}]}
    names = [f"{number}" + "d" * 60 for number in range(20_000)]
    found = {"summary": dict.fromkeys(names, 1)}
    detections = {"input_guardrails": found, "output_guardrails": found}
    hooks = [{"checks": [{"id": name, "verdict": False} for name in names], "verdict": False}]
    hook_results = {"before_request_hooks": hooks, "after_request_hooks": hooks}
    choices = [{**choice, "index": n, "finish_reason": f"f{n}"} for n in range(5000)]
    yield "detections", {**base, "enkrypt_policy_detections": detections}
    yield "hooks", {**base, "hook_results": hook_results}
    yield "choices", {**base, "choices": choices}
    yield "a name", {**base, text: 1}


def iter_responses(name: str, *kinds: str) -> Iterator[Case]:
    for label, document in iter_documents(chat(), *kinds):
        yield label, HostileRequest(ROUTES[name]), respond(orjson.dumps(document))


def iter_errors() -> Iterator[tuple[str, Any]]:
    text = "Oh no " * (MAX_TEXT_BYTES // 6)
    for member in ("message", "type", "code", "param"):
        yield f"error with {member}", {"error": {"message": "no", member: text}}
    yield "error with detail", {"detail": text}
    location = ["body", *["x" * 60] * 60_000]
    yield "error with a location", {"detail": [{"loc": location, "msg": text}]}
    yield "error that is a text", text


def stream_events(*events: bytes) -> Script:
    begin = head(200, "text/event-stream", "transfer-encoding: chunked")
    return sends(begin, *map(http_chunk, events), http_chunk(event(b"[DONE]")), b"0\r\n\r\n")


def iter_streams() -> Iterator[Case]:
    request = HostileRequest(ROUTES["openai-chat"], {"stream": True})
    choices = [{"index": 0, "delta": {"content": "Hi"}, "finish_reason": "stop"}]
    base = {**chat(choices=choices), "object": "chat.completion.chunk"}
    for label, document in (*iter_documents(base, "a text"), *iter_errors()):
        yield label, request, stream_events(event(orjson.dumps(document)))
    text = b"x" * MAX_TEXT_BYTES
    lines = {
        "comments": b":" + text + b"\n\n",
        "name of an event": b"event: " + text + b"\n\n",
        "id of an event": b"id: " + text + b"\n\n",
        "unknown field": text + b": x\n\n",
    }
    for label, line in lines.items():
        yield label, request, stream_events(line + event(orjson.dumps(base)))


def respond_raw(status_line: bytes, *fields: bytes, body: bytes = b"{}") -> Script:
    if not any(field.startswith(b"content-type") for field in fields):
        fields = (b"content-type: application/json", *fields)
    length = b"content-length: %d" % len(body)
    return sends(b"\r\n".join((status_line, length, *fields, b"", b"")) + body)


def iter_upstream_heads(name: str) -> Iterator[Case]:
    """Yield responses with headers of the maximum length, and errors of each status."""
    content = {"messages": [{"role": "user", "content": "Hi"}], "model": "via-fireworks"}
    request = HostileRequest(Route(ROUTES[name].path, BEARER, content))
    long, document = b"9" * 16_000, orjson.dumps(chat())
    names = (
        *(b"x-ratelimit-remaining-tokens", b"x-ratelimit-remaining-requests", b"retry-after"),
        *(b"retry-after-ms", b"date", b"content-type", b"fireworks-note", b"x-request-id"),
    )
    fields = {name.decode(): [name + b": " + long] for name in names}
    fields["a name"] = [b"fireworks-" + long[:15_000] + b": x"]
    fields["many"] = [b"fireworks-%d: " % number + b"9" * 128 for number in range(200)]
    for label, lines in fields.items():
        for status in (b"200", b"429"):
            yield label, request, respond_raw(b"HTTP/1.1 " + status + b" X", *lines, body=document)
    yield "a reason phrase", request, respond_raw(b"HTTP/1.1 400 " + b"x" * 16_000)
    for code in (400, 403, 429, 446, 500):
        for label, error in iter_errors():
            yield f"{label}, {code}", request, respond(orjson.dumps(error), code)


SOURCES: Mapping[str, Callable[[], Iterator[Case]]] = {
    **{f"bodies-{name}": partial(iter_bodies, name) for name in NAMES},
    **{f"heads-{name}": partial(iter_heads, name) for name in HEAD_NAMES},
    "responses": partial(iter_responses, "openai-chat", "a text", "a list", "a name"),
    "responses-enkrypt": partial(iter_responses, "enkrypt-chat"),
    "streams": iter_streams,
    **{f"errors-{n}": partial(iter_upstream_heads, n) for n in ("openai-chat", "fireworks-chat")},
}


@pytest.mark.parametrize("source", SOURCES)
async def test_stored_text_is_bounded(
    source: str, tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    async with size_checker(tmp_path, upstream) as checker:
        for label, request, script in SOURCES[source]():
            upstream.answer_with(script)
            await checker.send(label, request)
