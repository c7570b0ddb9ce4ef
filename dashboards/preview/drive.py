"""Serves traffic through a real proxy that a real Prometheus scrapes: what the pictures show.

python -m dashboards.preview.drive FOLDER MINUTES    # leaves FOLDER/data and FOLDER/span.json
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
from tests.doubles import Asked, ScriptedUpstream, Wire, chat, event, head, piece, scripted_upstream
from tests.servers import free_port

KEYS = ("support-widget", "search-box", "notebooks")
CONNECTIONS = 60
WORDS = ("the", "water", "runs", "through", "a", "channel", "to", "turbines", "below", "it")


@dataclass(frozen=True)
class Caller:
    """An application: its key, deployment, calls per second at the most, and what it asks."""

    key: str
    deployment: str
    pace: float
    stream: float
    topics: int


CALLERS = (
    Caller("support-widget", "support-chat", 7, 0.7, 900),
    Caller("search-box", "search-answers", 5, 0.3, 400),
    Caller("notebooks", "reports", 1.5, 0.5, 10_000),
    Caller("notebooks", "search-answers", 0.7, 0.2, 10_000),
)


class Day:
    """A day in minutes: what share of it has passed."""

    def __init__(self, now: Callable[[], float], seconds: float) -> None:
        self._now, self._begun, self.seconds = now, now(), seconds

    @property
    def passed(self) -> float:
        return (self._now() - self._begun) / self.seconds


class Providers:
    """Models that take their time; ``openai`` has a bad minute in the middle."""

    def __init__(self, day: Day) -> None:
        self._day = day
        self._draw = random.Random(7)  # noqa: S311  # no secret

    async def __call__(self, asked: Asked, wire: Wire) -> None:
        body = asked.json
        ill = 0.55 < self._day.passed < 0.65 and asked.headers.get("x-provider") == "openai"
        if ill and self._draw.random() < 0.85:
            await _answer(wire, 503, {"error": {"message": "overloaded"}})
            return
        if self._draw.random() < 0.004:
            await _answer(wire, 500, {"error": {"message": "internal"}})
            return
        slow = {"gpt-4o": 0.5, "o4-mini": 1.1, "smol": 0.12}.get(body["model"], 0.3)
        await asyncio.sleep(slow * self._draw.lognormvariate(0, 0.5))
        await self._told(body, wire)

    async def _told(self, body: dict[str, Any], wire: Wire) -> None:
        size = int(self._draw.lognormvariate(3.4, 0.5))
        asked = 20 + len(str(body["messages"])) // 4 + int(self._draw.lognormvariate(5, 0.6))
        thought = size * 2 if body["model"] == "o4-mini" else 0
        usage = {
            "prompt_tokens": asked,
            "completion_tokens": size * 4 + thought,
            "total_tokens": asked + size * 4 + thought,
            "prompt_tokens_details": {"cached_tokens": asked // 3 if asked > 150 else 0},
            "completion_tokens_details": {"reasoning_tokens": thought},
        }
        words = [f" {self._draw.choice(WORDS)}" for _ in range(size)]
        if self._draw.random() < 0.01:
            words.append(" Penstock")
        if not body.get("stream"):
            await asyncio.sleep(size * 0.006)
            await _answer(wire, 200, chat("".join(words), usage=usage))
            return
        await self._streamed(wire, words, usage)

    async def _streamed(self, wire: Wire, words: list[str], usage: dict[str, Any]) -> None:
        await wire.send(head(200, "text/event-stream", "transfer-encoding: chunked"))
        base = {k: v for k, v in chat().items() if k not in ("choices", "usage")}
        broken = len(words) // 2 if self._draw.random() < 0.006 else None
        for number, word in enumerate(words):
            if number == broken:
                wire.cut()
                return
            choice = {"index": 0, "delta": {"content": word}, "finish_reason": None}
            await wire.send(piece(event({**base, "choices": [choice]})))
            await asyncio.sleep(self._draw.uniform(0.004, 0.03))
        end = {"index": 0, "delta": {}, "finish_reason": "stop"}
        await wire.send(piece(event({**base, "choices": [end]})))
        await wire.send(piece(event({**base, "choices": [], "usage": usage})))
        await wire.send(piece(event(b"[DONE]")), b"0\r\n\r\n")


async def _answer(wire: Wire, status: int, body: dict[str, Any]) -> None:
    data = json.dumps(body).encode()
    left = random.randint(300, 900)  # noqa: S311  # a made-up headroom
    more = (f"x-ratelimit-remaining-requests: {left}", f"x-ratelimit-remaining-tokens: {left * 99}")
    await wire.send(head(status, "application/json", f"content-length: {len(data)}", *more) + data)


@dataclass
class Callers:
    """Applications that call as the day goes: more at its height, now and then oddly."""

    client: aiohttp.ClientSession
    day: Day
    draw: random.Random

    async def call(self, caller: Caller) -> None:
        """Call in one application's pace, without waiting for answers."""
        async with asyncio.TaskGroup() as calls:
            while self.day.passed < 1:
                height = 0.35 + 0.65 * math.sin(math.pi * self.day.passed) ** 2
                await asyncio.sleep(self.draw.expovariate(caller.pace * height))
                calls.create_task(self._one(caller))

    async def _one(self, caller: Caller) -> None:
        streamed = self.draw.random() < caller.stream
        body = {
            "model": caller.deployment,
            "stream": streamed,
            "messages": [{"role": "user", "content": self._question(caller)}],
        }
        headers = {"authorization": f"Bearer hr-{caller.key}"}
        with suppress(aiohttp.ClientError, TimeoutError):
            url = "/v1/chat/completions"
            async with self.client.post(url, headers=headers, json=body) as response:
                if streamed and self.draw.random() < 0.02:
                    await response.content.readany()
                    return  # in the middle of its stream
                await response.read()

    def _question(self, caller: Caller) -> str:
        topic = min(int(self.draw.paretovariate(0.3)), 10**9) % caller.topics
        odd = self.draw.random()
        if odd < 0.012:
            return "My key is AKIA" + f"Q4XZ7LMN2PRT6VWY for {topic}, is that safe?"
        if odd < 0.04:
            return f"Write to jo@example.com about number {topic}"
        if odd < 0.05:
            return f"Is Hydropolis better at {topic}?"
        return f"Explain number {topic} " + " ".join(WORDS[: topic % len(WORDS)])


def policies(upstream: str) -> str:
    said = (Path(__file__).parent / "policies.yaml").read_text()
    for key in KEYS:
        said = said.replace(f"{{{key}}}", hashlib.sha256(f"hr-{key}".encode()).hexdigest())
    said = said.replace("{upstream}", upstream)
    for name in ("openai", "azure-eu", "local"):
        marked = f"  {name}: {{dialect: openai, "
        said = said.replace(marked, f"{marked}headers: {{x-provider: {name}}}, ")
    return said


async def drive(folder: Path, minutes: float) -> None:
    day = Day(asyncio.get_running_loop().time, minutes * 60)
    async with scripted_upstream() as upstream:
        upstream.answer_with(Providers(day))
        await _served(folder, upstream, day)


async def _served(folder: Path, upstream: ScriptedUpstream, day: Day) -> None:
    said = policies(upstream.url)
    for name, text in {"policies": said, "candidate": said.replace("800", "400")}.items():
        (folder / name).mkdir()
        (folder / name / "policies.yaml").write_text(text)
    async with _proxy(folder) as (listen, admin):
        with prometheus(folder, admin) as server:
            connector = aiohttp.TCPConnector(limit=CONNECTIONS)
            base = f"http://{listen}"
            async with aiohttp.ClientSession(base_url=base, connector=connector) as client:
                callers = Callers(client, day, random.Random(3))  # noqa: S311  # no secret
                async with asyncio.TaskGroup() as running:
                    for caller in CALLERS:
                        running.create_task(callers.call(caller))
                    changed = folder / "policies" / "policies.yaml"
                    running.create_task(_change(changed, said, day))
            last = server.number("max(timestamp(headrace_build_info))")
            first = server.number("min(min_over_time(timestamp(headrace_build_info)[1d:1s]))")
    (folder / "span.json").write_text(json.dumps({"from": first, "to": last}))


@asynccontextmanager
async def _proxy(folder: Path) -> AsyncIterator[tuple[str, str]]:
    """Run the proxy in a process of its own; give its two addresses."""
    addresses = [f"127.0.0.1:{free_port()}" for _ in range(2)]
    folders = [f"--policies={folder / 'policies'}", f"--candidate={folder / 'candidate'}"]
    listening = [f"--listen={addresses[0]}", f"--admin-listen={addresses[1]}"]
    with (folder / "log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "proxy", "serve", *folders, *listening),
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


async def _change(policies: Path, said: str, day: Day) -> None:
    """Bring new policies into force now and then, one of them wrong."""
    for share, words in ((0.3, "# reviewed\n"), (0.75, "nonsense: true\n"), (0.78, "# mended\n")):
        await asyncio.sleep((share - day.passed) * day.seconds)
        await asyncio.to_thread(policies.write_text, said + words)


if __name__ == "__main__":
    target = Path(sys.argv[1])
    target.mkdir(parents=True)
    asyncio.run(drive(target, float(sys.argv[2])))
