"""Replays recorded upstream streams through a running proxy, for a client of each API family."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import aiohttp

from proxy.call.summary import summarize
from tests.conftest import KEY, Proxy, policies_for, running_proxy
from tests.doubles import (
    Json,
    ReceivedRequest,
    Script,
    ScriptedUpstream,
    Wire,
    chat_events,
    head,
    http_chunk,
    item_events,
    legacy_events,
    message_events,
    response,
    response_events,
    scripted_upstream,
    stream,
    text_events,
    text_item,
)
from tests.golden.recording import FAMILIES, GUARDS, Output, Recording

MODEL, FALLBACK = "recorded", "fallback"
SECRET = "a secret of replicas"
PROMPT = [{"role": "user", "content": "p"}]
WITH_USAGE: Json = {"stream_options": {"include_usage": True}}
REQUESTS: dict[str, tuple[str, Json]] = {
    "chat": ("/v1/chat/completions", {"messages": PROMPT, **WITH_USAGE}),
    "messages": ("/v1/messages", {"messages": PROMPT, "max_tokens": 64}),
    "responses": ("/v1/responses", {"input": "p"}),
    "completions": ("/v1/completions", {"prompt": "p", **WITH_USAGE}),
}
"""The path and the request of a client, by its family."""
TARGETS = {
    "chat": "upstream: openai, endpoint: chat",
    "messages": "upstream: anthropic",
    "responses": "upstream: openai, endpoint: responses",
    "completions": "upstream: openai, endpoint: completions",
}
WORDS = "guard: keywords, name: words, words: [Paris, secret]"
MARKER = "zebra"
MARKER_GUARD = f"guard: keywords, words: [{MARKER}], whole_words: false"
POLICIES = {
    "bare": "cache: {off: true}",
    "masked": f"match: all, output: [{{{WORDS}, action: mask}}]",
    "flagged": f"match: all, output: [{{{WORDS}, action: flag}}]",
    "masking": f"match: all, output: [{{{MARKER_GUARD}, action: mask}}]",
    "blocking": f"match: all, output: [{{{MARKER_GUARD}, action: block}}]",
}
INSTEAD = "Instead."
_FROM_FALLBACK: dict[str, Script] = {
    "chat": stream(chat_events(INSTEAD)),
    "messages": stream(message_events(text_events(0, INSTEAD)), is_done=False),
    "responses": stream(
        response_events(
            item_events(0, text_item(INSTEAD), INSTEAD), document=response(text_item(INSTEAD))
        ),
        is_done=False,
    ),
    "completions": stream(legacy_events(INSTEAD)),
}
_TIME = re.compile(rb'("created(?:_at)?": ?)(\d{10})\b')
NOW = b"9999999999"
"""Replaces the time of a call in outputs."""


@dataclass
class Replay:
    """A proxy before a scripted upstream, and one more that seals ids."""

    upstream: ScriptedUpstream
    proxy: Proxy
    sealing: Proxy
    session: aiohttp.ClientSession

    async def outputs(self, recording: Recording) -> dict[str, Output]:
        """Return what clients of all families receive, by label."""
        labels = [f"{client} {guard}" for guard in GUARDS for client in clients(recording)]
        outputs = await self.sent(recording, [(label, None) for label in labels])
        return dict(zip(labels, outputs, strict=True))

    async def sent(
        self, recording: Recording, calls: Sequence[tuple[str, Sequence[bytes] | None]]
    ) -> list[Output]:
        """Return what the clients of calls receive.

        A call is a label, and the pieces that the upstream sends: by default one for each event.
        The records of all calls are read at the end, because they come up to 50 ms late.
        """
        proxy = self.sealing if recording.sealed else self.proxy
        received = [await self._received(recording, proxy, *call) for call in calls]
        records = {record.request_id: record for record in await proxy.sink.wait(len(calls))}
        proxy.start_case()
        return [item.output(records[item.request_id]) for item in received]

    async def forwarded(self, client: str, request: Json, family: str) -> Json:
        """Return the request that an upstream of ``family`` gets for a request of a client."""
        self.upstream.start_case()
        self.upstream.answer_with(_FROM_FALLBACK[family])
        path, defaults = REQUESTS[client]
        body = {"model": MODEL, **defaults, "stream": True, **request}
        headers = {"authorization": f"Bearer {KEY}", "x-headrace-deployment": f"{family}-bare"}
        url = f"{self.proxy.url}{path}"
        async with self.session.post(url, headers=headers, json=body) as response:
            await response.read()
        await self.proxy.sink.wait()
        self.proxy.start_case()
        [asked_item] = self.upstream.requests
        return dict(asked_item.json)

    async def _received(
        self, recording: Recording, proxy: Proxy, label: str, pieces: Sequence[bytes] | None
    ) -> Received:
        family, guard = label.split()
        pieces = events_of(recording.upstream) if pieces is None else pieces
        self.upstream.start_case()
        fallback = _FROM_FALLBACK[recording.family]
        self.upstream.by_model = {MODEL: streaming(pieces, recording), FALLBACK: fallback}
        path, request = REQUESTS[family]
        body = {"model": MODEL, "stream": True, **request}
        if "n=2" in recording.about and family in ("chat", "completions"):
            body["n"] = 2
        deployment = f"{recording.family}-{guard}"
        headers = {"authorization": f"Bearer {KEY}", "x-headrace-deployment": deployment}
        async with self.session.post(f"{proxy.url}{path}", headers=headers, json=body) as response:
            data, is_whole = await _read(response)
        assert self.upstream.requests, data
        return Received(response.headers["x-request-id"], response.status, data, is_whole)


@dataclass(frozen=True)
class Received:
    """What one client received. ``is_whole``: the body ended as HTTP requires."""

    request_id: str
    status: int
    body: bytes
    is_whole: bool

    def output(self, record: Any) -> Output:
        created = int(record.started_at.timestamp())
        call = {"status": self.status, **({} if self.is_whole else {"ends": "early"})}
        body = _undated(self.body, created).replace(self.request_id.encode(), b"REQUEST_ID")
        return Output(body, {**call, **recorded(record)})


async def _read(response: aiohttp.ClientResponse) -> tuple[bytes, bool]:
    """Return the body, and True if it ended as HTTP requires."""
    body = bytearray()
    try:
        async for data in response.content.iter_any():
            body += data
    except aiohttp.ClientPayloadError:
        return bytes(body), False
    return bytes(body), True


def clients(recording: Recording) -> list[str]:
    """Return the families of the clients that read a recording. Clients of legacy completions read
    chats and completions only."""
    chats = recording.family in ("chat", "completions")
    return [family for family in FAMILIES if chats or family != "completions"]


def streaming(pieces: Iterable[bytes], recording: Recording) -> Script:
    """Return a script that sends each piece as a chunk of the HTTP body, which the proxy in the
    same event loop reads before the next is sent."""
    chunks = [*map(http_chunk, pieces)]

    async def script(request: ReceivedRequest, wire: Wire) -> None:
        await wire.send(head(200, "text/event-stream", "transfer-encoding: chunked"))
        for chunk in chunks:
            await wire.send(chunk)
            for _ in range(2):  # turns of the loop: one to see the bytes, one to read them
                await asyncio.sleep(0)
        if recording.ends == "cleanly":
            await wire.send(b"0\r\n\r\n")
        else:
            wire.keep = False

    return script


def events_of(raw: bytes) -> list[bytes]:
    """Split a stream after each of its events."""
    return [part for part in re.split(rb"(?<=\n\n)|(?<=\r\n\r\n)", raw) if part]


def recorded(record: Any) -> Json:
    """Return what the proxy recorded about a call, without what differs from run to run."""
    facts = summarize(record)
    failure, verdicts = facts.failure, facts.all_verdicts
    values = {
        "outcome": facts.outcome,
        "error": failure and failure.code,
        "upstream_error": failure and (failure.upstream_type or failure.upstream_code),
        "models": [billed.attempt.target.model for billed in facts.attempts],
        "finish_reasons": facts.finish_reasons,
        "usage": facts.usage_source,
        "tokens": {name: count for name, count in asdict(facts.tokens).items() if count},
        "guards": {result.guard: result.verdict for _, result in verdicts},
        "findings": {
            result.guard: dict(result.findings) for _, result in verdicts if result.findings
        },
        "upstream_findings": [
            [name, *map(str, finding)] for name, finding in facts.upstream_findings
        ],
        "warnings": [str(warning) for warning in record.warnings],
    }
    return {name: value for name, value in values.items() if value}


def _undated(received: bytes, created: int) -> bytes:
    times = (b"%d" % created, b"%d" % (created + 1))
    return _TIME.sub(lambda at: at[1] + NOW if at[2] in times else at[0], received)


def _policies(upstream: str) -> str:
    small = policies_for(upstream)
    for dialect in ("openai", "anthropic"):
        small = small.replace(f"{{dialect: {dialect},", f"{{dialect: {dialect}, breaker: off,")
    names = [f"{family}-{guard}" for family in FAMILIES for guard in POLICIES]
    small = small.replace("deployments: [support-chat,", f"deployments: [{', '.join(names)},")
    lines = [small]
    for name in names:
        family, guard = name.split("-")
        target, fallback = (f"[{{{TARGETS[family]}, model: {m}}}]" for m in (MODEL, FALLBACK))
        lines.append(f"  {name}: {{targets: {target}, fallback: {fallback}, policy: {guard}}}")
    lines += ["policies:", *(f"  {name}: {{{rules}}}" for name, rules in POLICIES.items())]
    return "\n".join(lines)


@asynccontextmanager
async def replaying(folder: Path) -> AsyncIterator[Replay]:
    """Run both proxies and their upstream."""
    async with AsyncExitStack() as opened:
        upstream = await opened.enter_async_context(scripted_upstream())
        policies = _policies(upstream.url)
        proxy = await opened.enter_async_context(running_proxy(folder / "plain", policies))
        sealed = running_proxy(folder / "sealing", policies, id_secrets=(SECRET,))
        sealing = await opened.enter_async_context(sealed)
        session = await opened.enter_async_context(aiohttp.ClientSession())
        yield Replay(upstream, proxy, sealing, session)
