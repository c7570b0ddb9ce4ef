"""What guards cost: the four of most policies on plain text, large text, and text made to hurt."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import cast

import orjson

from bench.decide import BODY, microseconds
from proxy.guards.engine import Engine
from proxy.guards.text.documents import request_texts
from proxy.guards.text.normalize import variants
from proxy.guards.text.walk import Text
from proxy.policy.store import read_folder
from proxy.types.guard import Detector, GuardRule

PROSE = (
    "The widget on the front page shows the opening hours of every branch, and support wants it to "
    "tell holidays apart. Please write a short note to the team about what has to change, by when, "
    "and who should read the draft. Mention that last year's table is out of date. "
)
HOSTILE = (
    "a",
    "1",
    "a ",
    "1-",
    "a.a@",
    "aA1 ",
    "0x",
    "://",
    "[[",
    "ignore ",
    "-----BEGIN ",
    "\u200b",
)
LARGE, HURT = 100 * 1024, 50 * 1024
POLICY = """
upstreams: {one: {dialect: openai, base_url: 'https://one.test'}}
deployments: {chat: {targets: [{upstream: one, model: m}]}}
policies:
  default:
    input:
      - {guard: keywords, words: [hippo, rhino, project meridian], action: flag}
      - {guard: pii, action: flag}
      - {guard: secrets, action: flag}
      - {guard: injection}
"""


def rules() -> Sequence[GuardRule]:
    """Give the four guards as a policy has them."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "policies.yaml").write_text(POLICY)
        return read_folder(Path(folder), None).deployments["chat"].guards.input


def plain(characters: int) -> str:
    return (PROSE * (characters // len(PROSE) + 1))[:characters]


def call(text: str) -> Sequence[Text]:
    return request_texts({"messages": [{"role": "user", "content": text}]}).texts


def on_the_loop(rules: Sequence[GuardRule], text: str) -> float:
    """Give the microseconds that whole texts take, from the request on."""
    engine = Engine(time.monotonic)

    def once() -> None:
        step = engine.inspect(rules, call(text))
        try:
            step.send(None)
        except StopIteration:
            return

    return microseconds(once)


async def beside(rules: Sequence[GuardRule], text: str) -> tuple[float, float]:
    """Give the milliseconds a large text takes in threads, and the longest that the loop waited."""
    with ThreadPoolExecutor(2) as pool:
        engine, longest, total = Engine(time.monotonic, pool), [], []
        for _ in range(5):
            waits: list[float] = []
            began = time.perf_counter()
            async with asyncio.TaskGroup() as group:
                job = group.create_task(engine.inspect(rules, call(text)))
                while not job.done():
                    before = time.perf_counter()
                    await asyncio.sleep(0)
                    waits.append(time.perf_counter() - before)
            total.append(time.perf_counter() - began)
            longest.append(max(waits))
    return min(total) * 1000, min(longest) * 1000


def worst(one: GuardRule) -> float:
    """Give the milliseconds of the hostile text that a guard likes least."""
    slowest = 0.0
    for piece in HOSTILE:
        view = variants((piece * HURT)[:HURT])[0]
        began = time.thread_time()
        find(one, view.cased if one.cased else view.folded)
        slowest = max(slowest, time.thread_time() - began)
    return slowest * 1000


def find(one: GuardRule, text: str) -> None:
    cast("Detector", one.detector).find(text)


async def report() -> None:
    written = orjson.dumps(BODY)
    reference = microseconds(lambda: orjson.loads(written))
    guards, text = rules(), plain(1024)
    rows = [
        (f"{each.name}, the detector alone", microseconds(partial(find, each, text)))
        for each in guards
    ]
    rows.append(("all four detectors", sum(spent for _, spent in rows)))
    rows.append(("all four, through the engine", on_the_loop(guards, text)))
    print("\nguards on 1 KB of plain text, us; the ratio is to reading JSON\n")
    for name, spent in rows:
        print(f"{name:34}{spent:>12.1f}{spent / reference:>21.1f}")
    total, held = await beside(guards, plain(LARGE))
    print(f"\n100 KB through the engine: {total:.1f} ms, the loop waited at most {held:.1f} ms")
    slow = ", ".join(f"{each.name} {worst(each):.1f}" for each in guards)
    print(f"50 KB made to hurt, ms of processor: {slow}")
