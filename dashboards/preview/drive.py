"""Sends traffic through a proxy that Prometheus scrapes, for the pictures of the dashboards.

python -m dashboards.preview.drive FOLDER MINUTES    # writes FOLDER/data and FOLDER/span.json
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import math
import random
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

from tests.dashboards.prometheus import prometheus
from tests.doubles import (
    ReceivedRequest,
    ScriptedUpstream,
    Wire,
    chat,
    event,
    head,
    http_chunk,
    scripted_upstream,
)
from tests.servers import free_port

KEYS = ("support-widget", "search-box", "notebooks")
CONNECTIONS = 60
WORDS = ("the", "water", "runs", "through", "a", "channel", "to", "turbines", "below", "it")


@dataclass(frozen=True)
class Caller:
    """An application: peak calls per second, share of streams and number of different topics."""

    key: str
    deployment: str
    peak_rate: float
    stream_share: float
    topics: int


CALLERS = (
    Caller("support-widget", "support-chat", 7, 0.7, 900),
    Caller("search-box", "search-answers", 5, 0.3, 400),
    Caller("notebooks", "reports", 1.5, 0.5, 10_000),
    Caller("notebooks", "search-answers", 0.7, 0.2, 10_000),
)


class Day:
    """A day compressed to minutes."""

    def __init__(self, now: Callable[[], float], seconds: float) -> None:
        self._now, self._started_at, self.seconds = now, now(), seconds

    @property
    def progress(self) -> float:
        return (self._now() - self._started_at) / self.seconds


class Providers:
    """Models with latency. ``openai`` has an outage in the middle of the day."""

    def __init__(self, day: Day) -> None:
        self._day = day
        self._draw = random.Random(7)  # noqa: S311  # no secret

    async def __call__(self, request: ReceivedRequest, wire: Wire) -> None:
        body = request.json
        is_down = 0.55 < self._day.progress < 0.65 and request.headers.get("x-provider") == "openai"
        if is_down and self._draw.random() < 0.85:
            await _answer(wire, 503, {"error": {"message": "overloaded"}})
            return
        if self._draw.random() < 0.004:
            await _answer(wire, 500, {"error": {"message": "internal"}})
            return
        latency_s = {"gpt-4o": 0.5, "o4-mini": 1.1, "smol": 0.12}.get(body["model"], 0.3)
        await asyncio.sleep(latency_s * self._draw.lognormvariate(0, 0.5))
        await self._respond(body, wire)

    async def _respond(self, body: dict[str, Any], wire: Wire) -> None:
        size = int(self._draw.lognormvariate(3.4, 0.5))
        prompt_tokens = (
            20 + len(str(body["messages"])) // 4 + int(self._draw.lognormvariate(5, 0.6))
        )
        reasoning_tokens = size * 2 if body["model"] == "o4-mini" else 0
        usage = {
            "prompt_tokens": prompt_tokens,
            "completion_tokens": size * 4 + reasoning_tokens,
            "total_tokens": prompt_tokens + size * 4 + reasoning_tokens,
            "prompt_tokens_details": {
                "cached_tokens": prompt_tokens // 3 if prompt_tokens > 150 else 0
            },
            "completion_tokens_details": {"reasoning_tokens": reasoning_tokens},
        }
        words = [f" {self._draw.choice(WORDS)}" for _ in range(size)]
        if self._draw.random() < 0.01:
            words.append(" Penstock")
        if not body.get("stream"):
            await asyncio.sleep(size * 0.006)
            await _answer(wire, 200, chat("".join(words), usage=usage))
            return
        await self._stream(wire, words, usage)

    async def _stream(self, wire: Wire, words: list[str], usage: dict[str, Any]) -> None:
        await wire.send(head(200, "text/event-stream", "transfer-encoding: chunked"))
        base = {k: v for k, v in chat().items() if k not in ("choices", "usage")}
        abort_at = len(words) // 2 if self._draw.random() < 0.006 else None
        for number, word in enumerate(words):
            if number == abort_at:
                wire.cut()
                return
            choice = {"index": 0, "delta": {"content": word}, "finish_reason": None}
            await wire.send(http_chunk(event({**base, "choices": [choice]})))
            await asyncio.sleep(self._draw.uniform(0.004, 0.03))
        end = {"index": 0, "delta": {}, "finish_reason": "stop"}
        await wire.send(http_chunk(event({**base, "choices": [end]})))
        await wire.send(http_chunk(event({**base, "choices": [], "usage": usage})))
        await wire.send(http_chunk(event(b"[DONE]")), b"0\r\n\r\n")


async def _answer(wire: Wire, status: int, body: dict[str, Any]) -> None:
    data = json.dumps(body).encode()
    requests = random.randint(300, 900)  # noqa: S311  # no secret
    headers = (
        f"content-length: {len(data)}",
        f"x-ratelimit-remaining-requests: {requests}",
        f"x-ratelimit-remaining-tokens: {requests * 99}",
    )
    await wire.send(head(status, "application/json", *headers) + data)


@dataclass
class Callers:
    """Applications whose rate of calls follows the day."""

    client: aiohttp.ClientSession
    day: Day
    draw: random.Random

    async def call(self, caller: Caller) -> None:
        """Send the calls of an application, without waiting for responses."""
        async with asyncio.TaskGroup() as calls:
            while self.day.progress < 1:
                load = 0.35 + 0.65 * math.sin(math.pi * self.day.progress) ** 2
                await asyncio.sleep(self.draw.expovariate(caller.peak_rate * load))
                calls.create_task(self._send(caller))

    async def _send(self, caller: Caller) -> None:
        is_stream = self.draw.random() < caller.stream_share
        body = {
            "model": caller.deployment,
            "stream": is_stream,
            "messages": [{"role": "user", "content": self._question(caller)}],
        }
        headers = {"authorization": f"Bearer hr-{caller.key}"}
        with suppress(aiohttp.ClientError, TimeoutError):
            url = "/v1/chat/completions"
            async with self.client.post(url, headers=headers, json=body) as response:
                if is_stream and self.draw.random() < 0.02:
                    await response.content.readany()
                    return  # disconnect within the stream
                await response.read()

    def _question(self, caller: Caller) -> str:
        topic = min(int(self.draw.paretovariate(0.3)), 10**9) % caller.topics
        kind = self.draw.random()
        if kind < 0.012:
            return "My key is AKIA" + f"Q4XZ7LMN2PRT6VWY for {topic}, is that safe?"
        if kind < 0.04:
            return f"Write to jo@example.com about number {topic}"
        if kind < 0.05:
            return f"Is Hydropolis better at {topic}?"
        return f"Explain number {topic} " + " ".join(WORDS[: topic % len(WORDS)])


def policies(upstream: str) -> str:
    text = (Path(__file__).parent / "policies.yaml").read_text()
    for key in KEYS:
        text = text.replace(f"{{{key}}}", hashlib.sha256(f"hr-{key}".encode()).hexdigest())
    text = text.replace("{upstream}", upstream)
    for name in ("openai", "azure-eu", "local"):
        start = f"  {name}: {{dialect: openai, "
        text = text.replace(start, f"{start}headers: {{x-provider: {name}}}, ")
    return text


async def drive(folder: Path, minutes: float) -> None:
    day = Day(asyncio.get_running_loop().time, minutes * 60)
    async with scripted_upstream() as upstream:
        upstream.answer_with(Providers(day))
        await _serve(folder, upstream, day)


async def _serve(folder: Path, upstream: ScriptedUpstream, day: Day) -> None:
    policy = policies(upstream.url)
    for name, text in {"policies": policy, "candidate": policy.replace("800", "400")}.items():
        (folder / name).mkdir()
        (folder / name / "policies.yaml").write_text(text)
    async with _proxy(folder) as (listen, admin):
        with prometheus(folder, admin) as server:
            connector = aiohttp.TCPConnector(limit=CONNECTIONS)
            base = f"http://{listen}"
            async with aiohttp.ClientSession(base_url=base, connector=connector) as client:
                callers = Callers(client, day, random.Random(3))  # noqa: S311  # no secret
                async with asyncio.TaskGroup() as tasks:
                    for caller in CALLERS:
                        tasks.create_task(callers.call(caller))
                    file = folder / "policies" / "policies.yaml"
                    tasks.create_task(_change_policies(file, policy, day))
            end = server.number("max(timestamp(headrace_build_info))")
            start = server.number("min(min_over_time(timestamp(headrace_build_info)[1d:1s]))")
    (folder / "span.json").write_text(json.dumps({"from": start, "to": end}))


@asynccontextmanager
async def _proxy(folder: Path) -> AsyncIterator[tuple[str, str]]:
    """Run the proxy in a child process, and yield its two addresses."""
    addresses = [f"127.0.0.1:{free_port()}" for _ in range(2)]
    folders = [f"--policies={folder / 'policies'}", f"--candidate={folder / 'candidate'}"]
    listen_options = [f"--listen={addresses[0]}", f"--admin-listen={addresses[1]}"]
    with (folder / "log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "proxy", "serve", *folders, *listen_options),
            env={"HEADRACE_LEDGER": f"sqlite:{folder / 'ledger'}"},
            stdout=log,
        )
    try:
        await _until_ready(addresses[1])
        yield addresses[0], addresses[1]
    finally:
        process.terminate()
        await process.wait()


async def _until_ready(admin: str) -> None:
    async with asyncio.timeout(20), aiohttp.ClientSession() as client:
        while True:
            with suppress(aiohttp.ClientError):
                async with client.get(f"http://{admin}/readyz") as response:
                    if response.status == 200:
                        return
            await asyncio.sleep(0.1)


async def _change_policies(file: Path, policy: str, day: Day) -> None:
    """Change the policies three times. The second change is invalid."""
    for progress, suffix in ((0.3, "# one\n"), (0.75, "nonsense: true\n"), (0.78, "# two\n")):
        await asyncio.sleep((progress - day.progress) * day.seconds)
        await asyncio.to_thread(file.write_text, policy + suffix)


if __name__ == "__main__":
    target = Path(sys.argv[1])
    target.mkdir(parents=True)
    asyncio.run(drive(target, float(sys.argv[2])))
