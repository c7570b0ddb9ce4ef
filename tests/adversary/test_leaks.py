"""Searches for ends of a call that leave a task, a descriptor, a reservation or an object behind.

After the call, no object may hold its key, and no object of the call may need the collector.
"""

from __future__ import annotations

import asyncio
import gc
import io
import json
import os
from collections import Counter, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from types import CellType, FrameType, MappingProxyType, MethodType
from typing import Any

import aiohttp
import pytest
from aiohttp import ClientSession

import proxy
from proxy.upstream.response import HttpUpstreamResponse
from tests.adversary.combined_features import (
    COMBINATIONS,
    PROMPT_WORD,
    ObedientUpstream,
    Step,
    build_policies,
)
from tests.adversary.test_combined_features import CombinedProxy
from tests.conftest import KEY, Proxy, running_proxy
from tests.doubles import (
    Json,
    ScriptedUpstream,
    chat,
    legacy_completion,
    respond,
    scripted_upstream,
)
from tests.servers import eventually
from tests.test_pipeline import BEARER, ROUTES

TIMES = 4
SERVER = "proxy.server.server"
"""aiohttp ties its connections and requests together if a body is not read. They hold no text."""
OURS = str(Path(proxy.__file__).parent)
BODY: Json = {"model": "one", "prompt": "Hi", "max_tokens": 20}
Send = Callable[[CombinedProxy, int, str], Awaitable[None]]
"""Makes a call with a number and with padding before its text."""
FORMS = {
    "whole": ("legacy", False),
    "streamed": ("chat", True),
    "responses": ("responses", False),
    "responses-streamed": ("responses", True),
    "messages-streamed": ("messages", True),
}
"""The APIs of clients, whole or streamed."""
DEPLOYMENTS_BY_BEHAVIOR = {"found": "out-block-unkept-plain", "slow": "none-unkept-hedged"}


def send_step(
    behavior: str, form: str, disconnect: str = "stays", deployment: str = "", **options: Any
) -> Send:
    """Return a function that makes one call with this behavior of the upstream and the client."""
    name = deployment or DEPLOYMENTS_BY_BEHAVIOR.get(behavior, "none-unkept-plain")
    combination = next(item for item in COMBINATIONS if "-".join(item) == name)
    step = Step(combination, *FORMS[form], "nothing", (behavior,), disconnect, **options)

    async def send(running: CombinedProxy, number: int, padding: str) -> None:
        await running.send(replace(step, padding=padding), number)

    return send


async def post(running: CombinedProxy, body: Any, headers: Mapping[str, str]) -> None:
    headers = {**BEARER, "x-headrace-deployment": "none-unkept-plain", **headers}
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    headers["content-type"] = "application/json"
    data = io.BytesIO(raw)
    async with running.client.post("/v1/completions", data=data, headers=headers) as response:
        await response.read()


def to(deployment: str) -> dict[str, str]:
    return {"x-headrace-deployment": deployment}


POSTS: dict[str, tuple[Json | bytes, dict[str, str]]] = {
    "blocked": ({"prompt": f"a {PROMPT_WORD}"}, to("in-block-unkept-plain")),
    "unauthenticated": ({}, {"authorization": "Bearer nobody"}),
    "invalid_field": ({"temperature": "hot"}, {}),
    "invalid_body": (b'{"model": ', {}),
    "too_large": ({"prompt": "x" * (17 * 1024 * 1024)}, {}),
    "unknown_deployment": ({}, to("nowhere")),
    "beyond_a_limit": ({"max_tokens": 600_000_000}, {}),
    "rate_limited": ({}, to("rare")),
    "guard_service_away": ({}, to("asking")),
    "client_deadline": ({"prompt": "Hi and silent"}, {"x-litellm-timeout": "0.05"}),
    "cached": ({}, to("none-kept-plain")),
    "shared_refusal": ({"prompt": "Hi and refused"}, to("none-kept-plain")),
    "shared_cut": ({"prompt": "Hi and cut", "stream": True}, to("none-kept-plain")),
}


def send_post(name: str) -> Send:
    """Return a function that makes a call that the proxy itself ends."""
    body, headers = POSTS[name]
    errors = [aiohttp.ClientError] if name in ("too_large", "shared_cut") else []
    at_once = 3 if name.startswith("shared") else 1

    async def send(running: CombinedProxy, number: int, padding: str) -> None:
        request = body
        if isinstance(body, dict):
            request = {**BODY, **body}
            request["prompt"] = padding + request["prompt"]
        with suppress(*errors):
            await asyncio.gather(*(post(running, request, headers) for _ in range(at_once)))

    return send


BEHAVIORS = (
    "answered", "found", "overloaded", "broken", "refused", "garbled", "gone", "cut", "slow",
    "denied",
)  # fmt: skip
ENDS: dict[str, Send] = {
    **{name: send_post(name) for name in POSTS},
    **{f"{b}-{form}": send_step(b, form) for b in BEHAVIORS for form in FORMS},
    **{
        f"{disconnect}-{form}": send_step("slow", form, disconnect)
        for disconnect in ("leaves-early", "leaves-midway")
        for form in FORMS
    },
    "html": send_step("html", "whole"),
    "oversized": send_step("oversized", "whole"),
    "silent": send_step("silent", "streamed", deployment="none-unkept-fallen"),
    "torn": send_step("torn", "streamed"),
    "retried": send_step("overloaded", "whole", deployment="none-unkept-retried"),
    "fallback": send_step("gone", "whole", deployment="none-unkept-fallen"),
    "hedged": send_step("broken", "whole", deployment="none-unkept-hedged"),
    "several": send_step("broken", "whole", several_models=True),
    "guard_retry": send_step("found", "whole", deployment="out-retry-unkept-plain"),
    "leaves_shared": send_step("slow", "streamed", "leaves-early", "none-kept-plain"),
}
LARGE = "where is it " * 20_000
SIZES = [(name, "") for name in ENDS]
SIZES += [(name, LARGE) for name in ENDS if not name.endswith(("responses", "responses-streamed"))]


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
async def closing_proxy(folder: Path) -> AsyncIterator[CombinedProxy]:
    """A proxy whose client keeps no connections, so that none are counted."""
    async with scripted_upstream() as upstream:
        behaviors = ObedientUpstream()
        upstream.answer_with(behaviors)
        text = build_policies(upstream.url).replace("first_byte: 60s", "first_byte: 500ms")
        text = text.replace("deployments: [", "deployments: [rare, asking, ", 1)
        text = text.replace("\ndeployments:\n", DEPLOYMENTS) + RULES
        async with (
            running_proxy(folder / "policies", text) as proxy,
            ClientSession(
                base_url=proxy.url, connector=aiohttp.TCPConnector(force_close=True)
            ) as client,
        ):
            yield CombinedProxy(proxy, client, behaviors, folder / "none")


def count_tasks() -> Counter[str]:
    """Return running tasks except those of the scripted upstream's kept connections."""
    names = (getattr(task.get_coro(), "__qualname__", "?") for task in asyncio.all_tasks())
    return Counter(name for name in names if not name.startswith("ScriptedUpstream"))


def count_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


async def send_several(running: CombinedProxy, send: Send, padding: str) -> None:
    begun_before = running.proxy.sink.begun
    for number in range(TIMES):
        running.calls += 1
        await send(running, number, padding)
    await running.proxy.sink.wait(running.proxy.sink.begun - begun_before)
    running.proxy.sink.forget()


def find_bodies() -> list[object]:
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
    send = ENDS[name]
    bodies_before = {id(item) for item in find_bodies()}
    async with closing_proxy(tmp_path) as running:
        await send_several(running, send, padding)
        gc.collect()
        values_before = count_tasks(), count_descriptors()

        gc.disable()
        try:
            await send_several(running, send, padding)
            # a pool may keep one more connection, but not one per call; background loading of the
            # first calls may have ended since
            await eventually(
                lambda: (
                    count_tasks() <= values_before[0]
                    and count_descriptors() < values_before[1] + TIMES
                )
            )
            await eventually(lambda: {*map(id, find_bodies())} <= bodies_before)
            gc.set_debug(gc.DEBUG_SAVEALL)
            gc.collect()
            garbage = Counter(map(name_of, filter(is_of_a_call, gc.garbage)))
        finally:
            gc.set_debug(0)
            gc.garbage.clear()
            gc.enable()
        explained = await explain_last_call(running)

    assert garbage == {}
    assert "at-once admitted (this call reserved 1; 1 of 200 used)" in explained


def find_holders(text: str) -> list[str]:
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
@pytest.mark.parametrize("name", ENDS)
async def test_no_object_after_a_call_contains_its_key(name: str, tmp_path: Path) -> None:
    async with closing_proxy(tmp_path) as running:
        running.calls = 1
        await ENDS[name](running, 0, "")
        await running.proxy.sink.wait()  # the sink keeps the record for a while
        await eventually(lambda: find_holders(KEY) == [])


@pytest.mark.usefixtures("new_objects")
@pytest.mark.parametrize("name", ROUTES)
async def test_no_header_keeps_a_key_in_memory(
    name: str, proxy: Proxy, upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    route = ROUTES[name]
    upstream.answer_with(respond(chat() if route.chat else legacy_completion()))
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
    await eventually(lambda: find_holders(KEY) == find_holders("sk-of-another") == [])


async def explain_last_call(running: CombinedProxy) -> str:
    await post(running, BODY, {"x-request-id": "the-last"})
    await running.proxy.sink.wait()
    async with running.client.get(f"{running.proxy.admin}/explain/the-last") as response:
        return await response.text()
