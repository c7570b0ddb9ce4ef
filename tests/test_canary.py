"""Words planted in every input appear in no log, metric, span, ledger or error."""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from proxy.settings import LedgerLocation, LogSettings
from tests.conftest import KEY, Proxy, policies_for, running_proxy
from tests.doubles import (
    Json,
    Script,
    ScriptedUpstream,
    chat,
    chat_events,
    cut_before_head,
    legacy_completion,
    legacy_events,
    respond,
    stream,
)
from tests.telemetry.collector import Collector
from tests.test_pipeline import ROUTES, Route

MARK = "cnry"
"""In every planted word. What a client names (a model, its request) is logged, and holds none."""
UPSTREAM_KEY = f"sk-{MARK}-upstream-0123456789"
POLICIES = """
policies:
  default:
    input:
      - {guard: keywords, words: [cnryforbidden], action: block}
      - {guard: keywords, name: seen, words: [cnryquestion], action: flag}
      - {guard: secrets, action: mask}
    output:
      - {guard: keywords, name: out, words: [cnryunsayable], action: block}
    limits: [{name: per-user, usd: 100 per day, unpriced: allow, per: user}]
    cache: {ttl: 1h, by_user: true}
"""


PASSES = (f"{MARK}type", f"{MARK}code")
"""What an upstream's error may tell the client, as its SDK decides by it, and nobody else."""


def without_allowed_codes(event: bytes) -> bytes:
    for word in PASSES:
        event = event.replace(word.encode(), b"")
    return event


def request_body(route: Route, *, streamed: bool, **options: Any) -> Json:
    text = f"{MARK}question my key is sk-{MARK}-abcdefghijklmnopqrstuvwx"
    fields: Json = {"prompt": text}
    if route.chat:
        fields = {
            "messages": [
                {"role": "system", "content": f"{MARK}system"},
                {"role": "user", "content": text},
            ]
        }
    return {**route.body(streamed=streamed), **fields, "user": f"{MARK}user", **options}


def text_response(marked_text: str, route: Route, *, streamed: bool, **how: Any) -> Script:
    if streamed:
        events = chat_events if route.chat else legacy_events
        return stream(events(*marked_text.split("|")), **how)
    text = marked_text.replace("|", "")
    return respond(chat(text) if route.chat else legacy_completion(text))


def unknown_finish_reason(route: Route) -> Json:
    fields = chat("fine") if route.chat else legacy_completion("fine")
    fields["choices"][0]["finish_reason"] = f"{MARK} because"
    return fields


Step = tuple[Script | None, Json | bytes, dict[str, str]]


def calls(route: Route, *, streamed: bool) -> Iterator[Step]:
    """Yield the upstream's script (None: unchanged), the body and the headers of each call."""

    def body(**options: Any) -> Json:
        return request_body(route, streamed=streamed, **options)

    def respond_text(text: str, **how: Any) -> Script:
        return text_response(text, route, streamed=streamed, **how)

    yield respond_text(f"{MARK}an|swer"), body(), {}
    yield None, body(), {}  # a cache hit
    yield (
        respond(unknown_finish_reason(route)),
        request_body(route, streamed=False, temperature=0.1),
        {},
    )
    forbidden = f"{MARK}forbidden"
    message = {"messages": [{"role": "user", "content": forbidden}]}
    yield None, body(**message if route.chat else {"prompt": forbidden}), {}
    yield respond_text(f"{MARK}unsay|able {MARK}"), body(temperature=0.2), {}
    cut = respond_text(f"{MARK}an|swer|more", cut_after=2) if streamed else cut_before_head()
    yield cut, body(temperature=0.3), {}
    for status in (400, 401, 429, 500):
        error = {"error": {"message": "no", "type": PASSES[0], "code": PASSES[1]}}
        script = respond(error, status, f"x-secret: {MARK}header")
        yield script, body(temperature=status / 1000), {}
    yield respond(f"{MARK} is no JSON".encode()), body(temperature=0.5), {}
    yield respond(f"<{MARK}>".encode(), media_type="text/html"), body(temperature=0.6), {}
    yield stream([f'{{"choices": {MARK}'.encode()]), body(temperature=0.7), {}
    for wrong in ({"temperature": f"{MARK}hot"}, {"stream": f"{MARK}yes"}):
        yield None, body(**wrong), {}
    for text in (f'{{"prompt": "{MARK}', f'["{MARK}"]'):
        yield None, text.encode(), {}
    yield None, b'{"model": "\xff' + MARK.encode(), {}
    for name in ("Authorization", "x-api-key", "apikey", "x-portkey-api-key"):
        key = f"hr-{MARK}-wrong"
        if name in route.credential:
            yield None, body(), {name: f"Bearer {key}" if name == "Authorization" else key}


@dataclass
class CanaryRun:
    proxy: Proxy
    upstream: ScriptedUpstream
    errors: list[bytes] = field(default_factory=list)

    async def post(self, route: Route, body: Json | bytes, headers: dict[str, str]) -> None:
        extra = {
            "cookie": f"session={MARK}cookie",
            "x-headrace-tags": f"feature={MARK}_tag,nobody={MARK}value",
            "x-forwarded-for": f"{MARK}address",
            "user-agent": f"{MARK}agent",
        }
        path = f"{route.path}?q={MARK}query"
        reply = await self.proxy.send(path, body, {**route.credential, **extra, **headers})
        if reply.status >= 400:
            self.errors.append(reply.raw)


@contextlib.asynccontextmanager
async def everything_on(
    folder: Path, upstream: ScriptedUpstream, collector: Collector
) -> AsyncIterator[CanaryRun]:
    policies = folder / "policies"
    log = os.open(folder / "log", os.O_WRONLY | os.O_CREAT)
    settings: dict[str, Any] = {
        "candidate": policies,
        "environ": {"UPSTREAM_KEY": UPSTREAM_KEY},
        "otlp_endpoint": collector.url,
        "ledger": LedgerLocation("sqlite", folder / "ledger.db"),
        "log": LogSettings(level="debug", decisions=folder / "decisions.log"),
        "log_fd": log,
    }
    try:
        async with running_proxy(
            policies, policies_for(upstream.url) + POLICIES, **settings
        ) as proxy:
            yield CanaryRun(proxy, upstream)
    finally:
        os.close(log)


async def read_outputs(proxy: Proxy) -> list[tuple[str, bytes]]:
    matches = []
    openmetrics = {"accept": "application/openmetrics-text;version=1.0.0"}
    asks = [("/metrics", {}), ("/metrics", openmetrics), ("/candidate", {"accept": "text/json"})]
    ids = [record.head.request_id for record in proxy.records if record.head]
    asks += [(f"/explain/{name}", {}) for name in ids]
    for path, headers in asks:
        async with proxy.client.get(proxy.admin + path, headers=headers) as response:
            matches.append((path, await response.read()))
    return matches


@pytest.mark.parametrize("name", ROUTES)
async def test_payload_words_appear_in_no_telemetry_or_error(
    name: str, upstream: ScriptedUpstream, collector: Collector, tmp_path: Path
) -> None:
    route = ROUTES[name]
    async with everything_on(tmp_path, upstream, collector) as policies_for:
        count = 0
        for streamed in (False, True) if route.streams else (False,):
            for script, body, headers in calls(route, streamed=streamed):
                if script is not None:
                    upstream.answer_with(script)
                await policies_for.post(route, body, headers)
                count += 1
        records = await policies_for.proxy.sink.wait(count)
        outputs = await read_outputs(policies_for.proxy)
    outputs += [
        (f"error {n}", without_allowed_codes(fields))
        for n, fields in enumerate(policies_for.errors)
    ]
    outputs += [(f"spans {n}", body) for n, body in enumerate(collector.bodies)]
    files = [path for path in tmp_path.iterdir() if path.is_file()]
    outputs += [(path.name, path.read_bytes()) for path in files if path.name != "log"]
    for line in (
        (tmp_path / "log").read_bytes().splitlines()
    ):  # which may contain an upstream's type and code
        outputs.append(
            ("log", without_allowed_codes(line) if b'"upstream_unavailable"' in line else line)
        )

    names = {path.name for path in files}
    assert {"log", "ledger.db", "decisions.log"} <= names
    assert collector.spans
    outcomes = {record.outcome for record in records}
    assert outcomes >= {"success", "blocked", "client_error", "upstream_error"}
    for where, fields in outputs:
        for word in (MARK, KEY):
            index = fields.find(word.encode())
            assert index < 0, f"{where}: {fields[max(0, index - 120) : index + 60]!r}"
    assert MARK.encode() in b"".join(request.body for request in upstream.requests)
