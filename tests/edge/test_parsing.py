"""Large bodies are read beside the loop, small ones at once; both within a bound of values."""

from __future__ import annotations

import threading
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import aiohttp
import orjson
import pytest

from proxy.edge.parsing import Parsing
from proxy.errors import BadRequest, Overloaded
from proxy.offload import LARGE_BYTES, Offload
from tests.conftest import Proxy, running_proxy, world
from tests.doubles import ScriptedUpstream
from tests.test_pipeline import BEARER, ROUTES

ROUTE = ROUTES["openai"]


def free(size: int) -> None:
    """Take any number of bytes."""


class Noted(ThreadPoolExecutor):
    """A thread that counts what it is given."""

    given = 0

    def submit(self, *work, **more):  # type: ignore[no-untyped-def]
        self.given += 1
        return super().submit(*work, **more)


async def test_what_is_large_is_read_by_a_thread_and_nothing_else() -> None:
    with Noted(1) as aside:
        parsing = Parsing(offload=Offload(aside))

        small = await parsing.read(b'{"a": 1}', dict, "a", free)
        assert aside.given == 0
        large = await parsing.read(orjson.dumps({"a": "x" * LARGE_BYTES}), dict, "a", free)

    assert (small, len(large["a"]), aside.given) == ({"a": 1}, LARGE_BYTES, 2)
    assert threading.active_count() >= 1


@pytest.mark.parametrize("size", [10, LARGE_BYTES])
async def test_too_many_values_are_refused_whether_small_or_large(size: int) -> None:
    raw = orjson.dumps({"a": ["x" * size, 1, 2]})

    assert await Parsing(most_values=5).read(raw, dict, "a", free)
    with pytest.raises(BadRequest, match="more than 4 JSON values"):
        await Parsing(most_values=4).read(raw, dict, "a", free)


async def test_a_body_of_small_values_is_refused_by_the_setting(
    upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    async with (
        running_proxy(tmp_path / "p", world(upstream.url), body_values=1000) as proxy,
        aiohttp.ClientSession(base_url=proxy.url) as client,
    ):
        for count, status in ((990, 200), (1100, 400)):
            body = {**ROUTE.body(streamed=False), "metadata": [{}] * count}
            async with client.post(ROUTE.path, headers=BEARER, json=body) as response:
                assert response.status == status, await response.text()


async def test_a_long_name_is_refused_in_every_dialect(
    proxy: Proxy, client: aiohttp.ClientSession
) -> None:
    for name, route in ROUTES.items():
        good, long = "u" * 256, "u" * 257
        if name in ("openai", "fireworks", "scale-5-chat", "enkrypt-chat", "portkey"):
            for user, status in ((good, {200, 502}), (long, {400, 422})):
                body = route.body(streamed=False, user=user)
                async with client.post(route.path, headers=route.credential, json=body) as response:
                    assert response.status in status, (name, await response.text())
        if "/deployments/" in route.path:  # which names the model, whatever a body says
            continue
        body = {**route.body(streamed=False), "model": long}
        async with client.post(route.path, headers=route.credential, json=body) as response:
            said = await response.text()
            assert response.status in (400, 422), (name, said)
            assert "at most 256 characters" in said
            assert long not in said


SLACK = 32 * 1024  # of what is made once, by the first that is read
SHAPES = {
    "objects in objects": b'{"x":[' + b",".join(b'{"a":{}}' for _ in range(20_000)) + b"]}",
    "objects with names of their own": b'{"x":['
    + b",".join(b'{"k%d":{}}' % number for number in range(20_000))
    + b"]}",
    "lists in lists": b'{"x":[' + b",".join(b"[[]]" for _ in range(20_000)) + b"]}",
    "lists of one text": b'{"x":[' + b",".join(b'["%d"]' % n for n in range(20_000)) + b"]}",
    "names": b"{" + b",".join(b'"k%d":%d' % (n, n + 500) for n in range(30_000)) + b"}",
    "numbers": b'{"x":[' + b",".join(b"%d.5" % number for number in range(30_000)) + b"]}",
    "deep": b'{"x":[' + b",".join(b'{"a":' * 50 + b"1" + b"}" * 50 for _ in range(500)) + b"]}",
    "one text": b'{"x":"' + b"a" * 400_000 + b'"}',
}


@pytest.mark.parametrize("shape", SHAPES)
async def test_what_is_taken_for_a_body_is_no_less_than_it_takes_once_it_is_read(
    shape: str,
) -> None:
    raw, taken = SHAPES[shape], list[int]()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        whole = await Parsing().read(raw, dict, "a", taken.append)
        took = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()

    assert whole
    assert took <= len(raw) + sum(taken) + SLACK


async def test_a_body_that_may_not_be_taken_is_not_read() -> None:
    def full(size: int) -> None:
        raise Overloaded

    with pytest.raises(Overloaded):
        await Parsing().read(b"no JSON", dict, "a", full)
