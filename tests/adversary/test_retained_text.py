"""Text that clients and upstreams choose takes few bytes wherever it is recorded."""

from __future__ import annotations

import asyncio
import gc
import io
import itertools
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import pytest

from proxy.dialects import CHECKED_FIELDS, DIALECTS
from proxy.fields.token_bounds import OPTION_GROUPS
from tests.adversary.loops import Lag
from tests.adversary.retained_data import RetainedData
from tests.conftest import Proxy, policies_for, running_proxy
from tests.doubles import (
    Json,
    Script,
    ScriptedUpstream,
    answer,
    chat,
    event,
    head,
    legacy,
    piece,
    sends,
)
from tests.test_pipeline import BEARER, ROUTES, Route

HUGE = 1024 * 1024
MOST_KEPT = 64 * 1024
MOST_SHOWN = 16 * 1024
MOST_METRICS = 256 * 1024
LAG_S = 0.25
HEADER = 8000  # a head has 64 KiB, and one of its fields 8 KiB
NAMES = ("openai", "openai-chat", "portkey-chat", "fireworks-chat", "scale-5-chat", "multimodel",
         "enkrypt-chat")  # fmt: skip
DOCUMENT = ("openai-chat", "multimodel")
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
MESSAGE = [{"role": "user", "content": "Hi"}]


@dataclass(frozen=True)
class HostileRequest:
    """One hostile request. ``fields`` replace those of a normal request."""

    route: Route
    fields: Mapping[str, Any] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    path: str = ""
    method: str = "POST"

    @property
    def body(self) -> bytes:
        return orjson.dumps({"model": "support-chat", **self.route.content, **self.fields})


def policies(upstream: str) -> str:
    text = policies_for(upstream).replace(
        "  openai: {dialect: openai,",
        "  openai: {dialect: openai, drop: [provider, content_policy_fallbacks],",
    )
    text = text.replace("total: 3s", "total: 30s")
    for name in ("portkey", "fireworks", "scale", "multimodel", "enkrypt"):
        text = text.replace(f"{{dialect: {name}, ", f"{{dialect: {name}, drop: [provider], ")
    return text.replace("'[a-z-]+'", "'.*'") + POLICY


@dataclass
class Besieged:
    """A proxy, the data it stores of each call, and the cases beyond the bound."""

    proxy: Proxy
    upstream: ScriptedUpstream
    remains: RetainedData
    broken: list[str] = field(default_factory=list)

    async def send(self, label: str, sent_value: HostileRequest) -> None:
        body = sent_value.body
        gc.collect(0)
        gc.disable()
        try:
            with Lag() as lag:
                async with asyncio.timeout(30):
                    status, headers, text = await self._check_response(sent_value, body)
        finally:
            gc.enable()
        sizes: dict[str, int] = {}
        if self.proxy.sink.begun:  # invalid HTTP is no call
            [record] = await self.proxy.sink.wait()
            self.proxy.sink.forget()
            self.proxy.sink.begun = 0
            sizes = self.remains.of(record)
            if record.is_internal_error:
                self.broken.append(f"{label}: {status}: a bug")
        sizes["the headers of the answer"] = sum(len(k) + len(v) for k, v in headers.items())
        if status >= 400:
            sizes["the words of the refusal"] = len(text)
        outputs = ("the headers of the answer", "the words of the refusal")
        self.broken += [
            f"{label}: {status}: {description} takes {size} bytes"
            for description, size in sizes.items()
            if size > (MOST_SHOWN if description in outputs else MOST_KEPT)
        ]
        if lag.worst > LAG_S:
            self.broken.append(f"{label}: {status}: the loop was held for {lag.worst:.3f} s")

    async def _check_response(
        self, sent_value: HostileRequest, body: bytes
    ) -> tuple[int, Mapping[str, str], bytes]:
        headers = {
            **sent_value.route.credential,
            "content-type": "application/json",
            **sent_value.headers,
        }
        path = sent_value.path or sent_value.route.path
        async with self.proxy.client.request(
            sent_value.method, path, headers=headers, data=io.BytesIO(body)
        ) as response:
            try:
                return response.status, response.headers, await response.read()
            except aiohttp.ClientPayloadError:  # an aborted stream
                return response.status, response.headers, b""


@asynccontextmanager
async def besieged(folder: Path, upstream: ScriptedUpstream) -> AsyncIterator[Besieged]:
    text = policies(upstream.url)
    other_path = folder / "candidate"
    other_path.mkdir()
    (other_path / "policies.yaml").write_text(text.replace("gpt-4o-mini", "gpt-4.1"))
    async with running_proxy(folder / "policies", text, candidate=other_path) as proxy:
        remains = RetainedData(proxy.policies, other_path)
        running = Besieged(proxy, upstream, remains)
        metrics_before = await proxy.metrics()
        yield running
        grown = len(await proxy.metrics()) - len(metrics_before)
        if grown > MOST_METRICS:
            running.broken.append(f"metrics have grown by {grown} bytes")
        line = remains.line_of_metrics()
        if len(line) > MOST_KEPT:
            running.broken.append(f"a line of metrics takes {len(line)} bytes: {line[:200]!r}")


def spellings(name: str, count: int) -> list[str]:
    """Return ``count`` spellings of a name that some servers read as the name."""
    forms = [(c, c.upper(), chr(0xFF41 + ord(c) - 97), chr(0x1D41A + ord(c) - 97)) for c in name]
    return ["".join(item) for item in itertools.islice(itertools.product(*forms), count)]


def bodies(name: str, route: Route) -> Iterator[tuple[str, Json]]:
    """Yield request fields of the maximum length or number."""
    text = "m" * HUGE
    dialect = name.removesuffix("-chat").removesuffix("-5")
    known_names = {
        *CHECKED_FIELDS[dialect]["chat" if route.chat else "completions"],
        *OPTION_GROUPS,
        "unknown",
    }
    if name != "openai-chat":  # shared fields are tested once
        known_names -= CHECKED_FIELDS["openai"]["chat"].keys()
    for item in sorted({*known_names, *DIALECTS[dialect].client.aliases}):
        yield f"{item} is a text", {item: text}
    if name not in DOCUMENT:
        return
    for item in ("model", "stop", "user", "unknown", "tools", "metadata", "logit_bias"):
        yield f"{item} is a list of one", {item: [text]}
        yield f"{item} has one name", {item: {text: 1}}
    yield "one name", {text: 1}
    yield "many names", {f"{number}_" + "n" * 4000: 1 for number in range(1000)}
    yield "short names", {f"{number}_" + "n" * 240: 1 for number in range(16_000)}
    yield "names in a group", {"options": {f"{number}_" + "n" * 4000: 1 for number in range(1000)}}
    yield "spellings of what is dropped", dict.fromkeys(spellings("provider", 40_000), 1)
    yield "many models", {"model": [f"{number}" + "m" * 40 for number in range(90_000)]}
    yield "as many models as there may be", {"model": [f"{n}" + "m" * 250 for n in range(1000)]}
    yield "long models", {"model": [f"{number}" + "m" * 40_000 for number in range(100)]}
    yield "wide models", {"model": [f"{number}" + "\U0001f600" * 250 for number in range(32)]}
    yield "a wide user", {"user": "\U0001f600" * 256}
    nested: Json = {"max_tokens": "x"}
    for _ in range(240):
        nested = {"inference_extra_params": nested}
    yield "a deep group", nested
    yield "a text that is no role", {"messages": [{"role": text, "content": "x"}]}


@pytest.mark.parametrize("name", NAMES)
async def test_stored_names_of_bodies_are_bounded(
    name: str, tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    route = ROUTES[name]
    upstream.answer_with(answer(chat() if route.chat else legacy()))
    async with besieged(tmp_path, upstream) as siege:
        for label, fields in bodies(name, route):
            await siege.send(label, HostileRequest(route, fields))
            upstream.requests.clear()

    assert "\n".join(siege.broken) == ""


def heads(name: str, route: Route) -> Iterator[tuple[str, HostileRequest]]:
    """Yield requests with headers, path or method of the maximum length."""
    text = "a" * HEADER
    names = ("x-headrace-deployment", "x-headrace-tags", "x-request-id", "x-headrace-via", "x-app")
    own_values = (
        "x-portkey-trace-id", "x-portkey-config", "x-portkey-virtual-key", "x-enkrypt-tags",
    )  # fmt: skip
    for item in (*names, *own_values, "traceparent", "cache-control", "user-agent", "unknown"):
        yield item, HostileRequest(route, headers={item: text})
    yield "a wide header", HostileRequest(route, headers={"x-app": "a" * 7000 + "\U0001f600"})
    tags = ",".join(f"{item}=" + "a" * 250 for item in ("feature", "beta", *"abcdefghijklmnop"))
    yield "many tags", HostileRequest(route, headers={"x-headrace-tags": tags})
    yield "a long tag", HostileRequest(route, headers={"x-headrace-tags": "feature=" + "a" * 256})
    yield (
        "a wide tag",
        HostileRequest(route, headers={"x-headrace-tags": "feature=a" + "\U0001f600" * 255}),
    )
    metadata = orjson.dumps({"feature": text[:7000], "_user": "u"}).decode()
    yield "metadata", HostileRequest(route, headers={"x-portkey-metadata": metadata})
    metadata = orjson.dumps({"feature": "a", "_user": text[:7000]}).decode()
    yield "a user in metadata", HostileRequest(route, headers={"x-portkey-metadata": metadata})
    yield "many headers", HostileRequest(route, headers={f"x-{n}": text[:1000] for n in range(50)})
    yield "a path", HostileRequest(route, path=f"/v1/{text}")
    yield "a question", HostileRequest(route, path=f"{route.path}?{text}")
    yield "a method", HostileRequest(route, method="M" * 7000)


@pytest.mark.parametrize("name", ["openai-chat", "portkey-chat", "enkrypt-chat"])
async def test_stored_values_of_heads_are_bounded(
    name: str, tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    upstream.answer_with(answer(chat()))
    async with besieged(tmp_path, upstream) as siege:
        for label, sent_value in heads(name, ROUTES[name]):
            await siege.send(label, sent_value)

    assert "\n".join(siege.broken) == ""


PLACES = ("id", "object", "created", "model", "system_fingerprint", "service_tier", "usage", "note")
IN_CHOICE = ("index", "finish_reason", "logprobs", "message", "delta", "text", "note")
DETECTIONS, HOOKS = "enkrypt_policy_detections", "hook_results"


def documents(base: Json, *odds: str) -> Iterator[tuple[str, Json]]:
    """Yield responses with one part of the maximum length."""
    text = "i" * HUGE
    for odd, value in {"a text": text, "a list": [text], "a name": {text: 1}}.items():
        if odd not in odds:
            continue
        for place in PLACES:
            yield f"{place} is {odd}", {**base, place: value}
        for place in IN_CHOICE:
            choice = {**base["choices"][0], place: value}
            yield f"{place} of a choice is {odd}", {**base, "choices": [choice]}
    names = [f"{number}" + "d" * 60 for number in range(20_000)]
    results = {"summary": dict.fromkeys(names, 1)}
    yield (
        "findings",
        {**base, DETECTIONS: {"input_guardrails": results, "output_guardrails": results}},
    )
    checks = [{"id": name, "verdict": False} for name in names]
    hooks = [{"checks": checks, "verdict": False}]
    yield "hooks", {**base, HOOKS: {"before_request_hooks": hooks, "after_request_hooks": hooks}}
    choices = [{**base["choices"][0], "index": n, "finish_reason": f"f{n}"} for n in range(5000)]
    yield "choices", {**base, "choices": choices}
    yield "a text", {**base, text: 1}


def errors() -> Iterator[tuple[str, Any]]:
    text = "Oh no " * (HUGE // 6)
    for place in ("message", "type", "code", "param"):
        yield place, {"error": {"message": "no", place: text}}
    yield "detail", {"detail": text}
    yield "a place", {"detail": [{"loc": ["body", *["x" * 60] * 60_000], "msg": text}]}
    yield "a text", text


@pytest.mark.parametrize(
    ("name", "odds"), [("openai-chat", ["a text", "a list", "a name"]), ("enkrypt-chat", [])]
)
async def test_stored_texts_of_responses_are_bounded(
    name: str, odds: list[str], tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    route = ROUTES[name]
    async with besieged(tmp_path, upstream) as siege:
        for label, document in documents(chat(), *odds):
            upstream.answer_with(answer(orjson.dumps(document)))
            await siege.send(label, HostileRequest(route))

    assert "\n".join(siege.broken) == ""


async def test_stored_names_of_streams_are_bounded(
    tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    route = ROUTES["openai-chat"]
    base = {**chat(), "object": "chat.completion.chunk"}
    base["choices"] = [{"index": 0, "delta": {"content": "Hi"}, "finish_reason": "stop"}]
    line = b"x" * HUGE
    oddities = {
        "comments": b":" + line + b"\n\n",
        "an event's name": b"event: " + line + b"\n\n",
        "an event's id": b"id: " + line + b"\n\n",
        "another field": line + b": x\n\n",
    }
    async with besieged(tmp_path, upstream) as siege:
        for label, document in documents(base, "a text"):
            upstream.answer_with(streamed(event(orjson.dumps(document))))
            await siege.send(label, HostileRequest(route, {"stream": True}))
        for label, error in errors():
            upstream.answer_with(streamed(event(orjson.dumps(error))))
            await siege.send(f"an error's {label}", HostileRequest(route, {"stream": True}))
        for label, odd in oddities.items():
            upstream.answer_with(streamed(odd + event(orjson.dumps(base))))
            await siege.send(label, HostileRequest(route, {"stream": True}))

    assert "\n".join(siege.broken) == ""


def streamed(*events: bytes) -> Script:
    begin = head(200, "text/event-stream", "transfer-encoding: chunked")
    return sends(begin, *map(piece, events), piece(event(b"[DONE]")), b"0\r\n\r\n")


def respond(status_line: bytes, *fields: bytes, body: bytes = b"{}") -> Script:
    length = b"content-length: %d" % len(body)
    kind = () if any(f.startswith(b"content-type") for f in fields) else (JSON,)
    return sends(b"\r\n".join((status_line, length, *kind, *fields, b"", b"")) + body)


JSON = b"content-type: application/json"


@pytest.mark.parametrize("name", ["openai-chat", "fireworks-chat"])
async def test_stored_names_of_errors_are_bounded(
    name: str, tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    route = Route(ROUTES[name].path, BEARER, {"messages": MESSAGE, "model": "via-fireworks"})
    long, good = b"9" * 16_000, orjson.dumps(chat())
    fields = [
        *(b"x-ratelimit-remaining-tokens", b"x-ratelimit-remaining-requests", b"retry-after"),
        *(b"retry-after-ms", b"date", b"content-type", b"fireworks-note", b"x-request-id"),
    ]
    heads_ = {field.decode(): [field + b": " + long] for field in fields}
    heads_["a name"] = [b"fireworks-" + long[:15_000] + b": x"]
    heads_["many"] = [b"fireworks-%d: " % n + b"9" * 128 for n in range(200)]
    async with besieged(tmp_path, upstream) as siege:
        for label, values in heads_.items():
            for status in (b"200", b"429"):
                upstream.answer_with(respond(b"HTTP/1.1 " + status + b" X", *values, body=good))
                await siege.send(f"{label}, {status.decode()}", HostileRequest(route))
        upstream.answer_with(respond(b"HTTP/1.1 400 " + b"x" * 16_000))
        await siege.send("a status text", HostileRequest(route))
        for code in (400, 403, 429, 446, 500):
            for label, error in errors():
                upstream.answer_with(answer(orjson.dumps(error), code))
                await siege.send(f"an error's {label}, {code}", HostileRequest(route))

    assert "\n".join(siege.broken) == ""
