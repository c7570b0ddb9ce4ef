"""No end of a call leaves a task, a descriptor, a reservation or a reference cycle."""

from __future__ import annotations

import asyncio
import gc
import io
import json
import os
from collections import Counter, deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from types import CellType, FrameType, MappingProxyType, MethodType
from typing import Any

import aiohttp
import pytest
from aiohttp import ClientSession

import proxy
from proxy.upstream.response import HttpUpstreamResponse
from tests.adversary.crossings import CASES, PROMPT_WORD, Fickle, Step, policies
from tests.adversary.test_crossings import Crossing
from tests.conftest import KEY, Proxy, running_proxy
from tests.doubles import Json, ScriptedUpstream, answer, chat, legacy, scripted_upstream
from tests.servers import eventually
from tests.test_pipeline import BEARER, ROUTES

TIMES = 4
SERVER = "proxy.server.server"
"""Its connections and requests are aiohttp's, which ties them together when a body is left unread:
they hold no text by then."""
OURS = str(Path(proxy.__file__).parent)
BODY: Json = {"model": "one", "prompt": "Hi", "max_tokens": 20}
Way = Callable[[Crossing, int, str], Awaitable[None]]
"""Makes a call by its number, and with padding before its text."""


HOW = {
    "whole": ("legacy", False),
    "streamed": ("chat", True),
    "responses": ("responses", False),
    "responses-streamed": ("responses", True),
    "messages-streamed": ("messages", True),
}
"""The forms of clients, whole or streamed."""


CASE_OF = {"found": "out-block-unkept-plain", "slow": "none-unkept-hedged"}


def stepped(way: str, how: str, leaves: str = "stays", case: str = "", **options: Any) -> Way:
    """Return a function that makes one call with this upstream or client behavior."""
    name = case or CASE_OF.get(way, "none-unkept-plain")
    owner = next(item for item in CASES if "-".join(item) == name)
    form, streamed = HOW[how]

    async def go(running: Crossing, number: int, padding: str) -> None:
        step = Step(owner, form, streamed, "nothing", (way,), leaves, padding=padding, **options)
        await running.send(step, number)

    return go


async def _post(running: Crossing, body: Any, **headers: str) -> None:
    sent_body = {**BEARER, "x-headrace-deployment": "none-unkept-plain", **headers}
    data = io.BytesIO(body if isinstance(body, bytes) else json.dumps(body).encode())
    sent_body["content-type"] = "application/json"
    async with running.client.post("/v1/completions", data=data, headers=sent_body) as response:
        await response.read()


TO_CACHE = {"x-headrace-deployment": "none-kept-plain"}
POSTS: dict[str, tuple[Json | bytes, dict[str, str]]] = {
    "blocked": ({"prompt": f"a {PROMPT_WORD}"}, {"x-headrace-deployment": "in-block-unkept-plain"}),
    "unauthenticated": ({}, {"authorization": "Bearer nobody"}),
    "wrong_field": ({"temperature": "hot"}, {}),
    "broken_body": (b'{"model": ', {}),
    "too_large": ({"prompt": "x" * (17 * 1024 * 1024)}, {}),
    "unknown_deployment": ({}, {"x-headrace-deployment": "nowhere"}),
    "beyond_a_limit": ({"max_tokens": 600_000_000}, {}),
    "rate_limited": ({}, {"x-headrace-deployment": "rare"}),
    "guard_service_away": ({}, {"x-headrace-deployment": "asking"}),
    "client_deadline": ({"prompt": "Hi and silent"}, {"x-litellm-timeout": "0.05"}),
    "kept": ({}, TO_CACHE),
    "shared_refusal": ({"prompt": "Hi and refused"}, TO_CACHE),
    "shared_cut": ({"prompt": "Hi and cut", "stream": True}, TO_CACHE),
}


def posted(name: str) -> Way:
    """Return a function that makes a call that the proxy itself ends."""
    body, headers = POSTS[name]
    errors = [aiohttp.ClientError] if name in ("too_large", "shared_cut") else []
    at_once = 3 if name.startswith("shared") else 1

    async def go(running: Crossing, number: int, padding: str) -> None:
        request = body
        if isinstance(body, dict):
            request = {**BODY, **body}
            request["prompt"] = padding + request["prompt"]
        with suppress(*errors):
            await asyncio.gather(*(_post(running, request, **headers) for _ in range(at_once)))

    return go


WAYS: dict[str, Way] = {name: posted(name) for name in POSTS}
WAYS |= {
    f"{way}-{how}": stepped(way, how)
    for way in (
        "answered", "found", "overloaded", "broken", "refused", "garbled", "gone", "cut", "slow",
        "denied",
    )
    for how in HOW
}  # fmt: skip
WAYS |= {
    f"{leaves}-{how}": stepped("slow", how, leaves)
    for leaves in ("leaves-early", "leaves-midway")
    for how in HOW
}
WAYS |= {
    "html": stepped("html", "whole"),
    "oversized": stepped("oversized", "whole"),
    "silent": stepped("silent", "streamed", case="none-unkept-fallen"),
    "torn": stepped("torn", "streamed"),
    "retried": stepped("overloaded", "whole", case="none-unkept-retried"),
    "fallback": stepped("gone", "whole", case="none-unkept-fallen"),
    "hedged": stepped("broken", "whole", case="none-unkept-hedged"),
    "several": stepped("broken", "whole", several=True),
    "guard_retry": stepped("found", "whole", case="out-retry-unkept-plain"),
    "leaves_shared": stepped("slow", "streamed", "leaves-early", case="none-kept-plain"),
}
LARGE = "where is it " * 20_000
SIZES = [(name, "") for name in WAYS]
SIZES += [(name, LARGE) for name in WAYS if not name.endswith(("responses", "responses-streamed"))]


def is_of_a_call(result: object) -> bool:
    """Return True if garbage is an object of the product or one of its stack frames."""
    if isinstance(result, FrameType):
        return OURS in result.f_code.co_filename
    module = type(result).__module__
    return module.startswith("proxy.") and module != SERVER


def name_of(result: object) -> str:
    return result.f_code.co_qualname if isinstance(result, FrameType) else type(result).__name__


DEPLOYMENTS = """
deployments:
  rare: {policy: rare, targets: [{upstream: openai, model: one}]}
  asking: {policy: asking, targets: [{upstream: openai, model: one}]}
"""
RULES = """
  rare: {limits: [{name: rare, requests: 1 per day, per: key}]}
  asking:
    input: [{guard: webhook, url: 'http://127.0.0.1:9/', secret: '${UPSTREAM_KEY}', action: block}]
"""


@asynccontextmanager
async def crossing(folder: Path) -> AsyncIterator[Crossing]:
    """A proxy whose client keeps no connections, so that none are counted."""
    async with scripted_upstream() as upstream:
        fickle = Fickle()
        upstream.answer_with(fickle)
        text = policies(upstream.url).replace("first_byte: 60s", "first_byte: 500ms")
        text = text.replace("deployments: [", "deployments: [rare, asking, ", 1)
        text = text.replace("\ndeployments:\n", DEPLOYMENTS) + RULES
        async with (
            running_proxy(folder / "policies", text) as proxy,
            ClientSession(
                base_url=proxy.url, connector=aiohttp.TCPConnector(force_close=True)
            ) as client,
        ):
            yield Crossing(proxy, client, fickle, folder / "none")


def tasks() -> Counter[str]:
    """Return running tasks except those of the scripted upstream's kept connections."""
    names = (getattr(task.get_coro(), "__qualname__", "?") for task in asyncio.all_tasks())
    return Counter(name for name in names if not name.startswith("ScriptedUpstream"))


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


async def several(running: Crossing, way: Way, padding: str) -> None:
    begun_before = running.proxy.sink.begun
    for number in range(TIMES):
        running.calls += 1
        await way(running, number, padding)
    await running.proxy.sink.wait(running.proxy.sink.begun - begun_before)
    running.proxy.sink.forget()


def bodies() -> list[object]:
    """Return the bodies of requests in memory, and the responses of upstreams.

    No collector finds these where a generator that was not read to its end holds them, as it
    closes that first.
    """
    return [item for item in gc.get_objects() if is_body(item)]


def is_body(item: object) -> bool:
    if not isinstance(item, dict):
        return isinstance(item, HttpUpstreamResponse)
    text = item.get("prompt") or item.get("messages") or item.get("input")
    return "model" in item and isinstance(text, str | list)


@pytest.mark.parametrize(("name", "padding"), SIZES, ids=lambda value: value[:24])
async def test_call_leaves_no_task_descriptor_or_object(
    name: str, padding: str, tmp_path: Path
) -> None:
    way = WAYS[name]
    bodies_before = {id(item) for item in bodies()}
    async with crossing(tmp_path) as running:
        await several(running, way, padding)
        gc.collect()
        values_before = tasks(), descriptors()

        gc.disable()
        try:
            await several(running, way, padding)
            # a pool may keep one more connection, but not one per call; background loading of the
            # first calls may have ended since
            await eventually(
                lambda: tasks() <= values_before[0] and descriptors() < values_before[1] + TIMES
            )
            await eventually(lambda: {*map(id, bodies())} <= bodies_before)
            gc.set_debug(gc.DEBUG_SAVEALL)
            gc.collect()
            counter = Counter(map(name_of, filter(is_of_a_call, gc.garbage)))
        finally:
            gc.set_debug(0)
            gc.garbage.clear()
            gc.enable()
        explained = await sentinel(running)

    assert counter == {}
    assert "at-once admitted (this call reserved 1; 1 of 200 used)" in explained


def holders(text: str) -> list[str]:
    """Return the product and span types with an instance that contains this text."""
    matches = set()
    for get_object in gc.get_objects():
        module = str(type(get_object).__module__)
        if module.startswith(("proxy.", "opentelemetry.")) and text in _texts(get_object):
            matches.add(type(get_object).__qualname__)
    return sorted(matches)


def _texts(value: object) -> str:
    """Return all texts in a value, also within built-in containers."""
    texts, observed, stack = [], set(), [value]
    while stack:
        for get_referent in gc.get_referents(stack.pop()):
            if isinstance(get_referent, str):
                texts.append(get_referent)
            elif isinstance(get_referent, bytes):
                texts.append(get_referent.decode("latin-1"))
            elif id(get_referent) not in observed and isinstance(get_referent, CONTAINERS):
                observed.add(id(get_referent))
                stack.append(get_referent)
    return "\n".join(texts)


CONTAINERS = (dict, list, tuple, set, frozenset, deque, MappingProxyType, CellType, MethodType)


@pytest.fixture
def new_objects() -> None:
    """Exclude objects of other tests from ``gc.get_objects``."""
    gc.collect()
    gc.freeze()


@pytest.mark.usefixtures("new_objects")
@pytest.mark.parametrize("name", WAYS)
async def test_no_object_after_a_call_contains_its_key(name: str, tmp_path: Path) -> None:
    async with crossing(tmp_path) as running:
        running.calls = 1
        await WAYS[name](running, 0, "")
        await running.proxy.sink.wait()  # the sink keeps the record for a while
        await eventually(lambda: holders(KEY) == [])


@pytest.mark.usefixtures("new_objects")
@pytest.mark.parametrize("name", ROUTES)
async def test_no_header_keeps_a_key_in_memory(
    name: str, proxy: Proxy, upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    route = ROUTES[name]
    upstream.answer_with(answer(chat() if route.chat else legacy()))
    other_document = {
        **{item: "sk-of-another" for item in ("x-api-key", "apikey", "cookie", "authorization")},
        "x-session-token": "sk-of-another",
    }
    own_document = {**other_document, **route.credential, "x-copy": f"my key is {KEY}"}
    wrong = {**other_document, **dict.fromkeys(route.credential, "Bearer hr-wrong")}
    body = route.body(streamed=False)
    async with ClientSession(
        base_url=proxy.url, connector=aiohttp.TCPConnector(force_close=True)
    ) as client:
        for headers in (own_document, wrong):
            async with client.post(route.path, headers=headers, json=body) as response:
                await response.read()
    records = await proxy.sink.wait(2)

    assert [record.outcome for record in records] == ["success", "client_error"]
    await eventually(lambda: holders(KEY) == holders("sk-of-another") == [])


async def sentinel(running: Crossing) -> str:
    await _post(running, BODY, **{"x-request-id": "the-last"})
    await running.proxy.sink.wait()
    async with running.client.get(f"{running.proxy.admin}/explain/the-last") as response:
        return await response.text()
