"""Long field names are refused without blocking other calls."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from proxy.errors.words import MAX_NAME
from proxy.fields.spelling import folded
from tests.adversary.shapes import SHAPES, text
from tests.adversary.test_names_of_fields import GROUPS
from tests.adversary.test_what_a_request_may_say import ROUTES, ask, proxied
from tests.doubles import Json, ScriptedUpstream
from tests.for_each import for_each

LONG = 30_000  # characters: of marks alone they would take seconds
MOST_S = 0.25  # of this process, of all its threads: a name, the call with it, its refusal
PLACES: dict[str, Callable[[str], Json]] = {
    "top": lambda name: {name: 1},
    "group": lambda name: {"options": {name: 1}},
    "group in a group": lambda name: {"extra_body": {"options": {name: 1}}},
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("shape", ["ligatures", "marks out of order", "full width", "letters"])
async def test_nobody_waits_for_a_long_name(
    shape: str, place: str, tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    name = text(shape, LONG)
    async with proxied(tmp_path, upstream) as (_, client):
        await ask(client, "openai-chat", {})  # what is done once is done
        started_at = time.process_time()
        status, _, body = await ask(client, "openai-chat", PLACES[place](name))
        spend = time.process_time() - started_at

    assert status == 400
    assert name[:4] not in body["error"]["message"]
    assert len(upstream.requests) == 1
    assert spend < MOST_S


@pytest.mark.parametrize("route", ROUTES)
async def test_dialect_bounds_name(route: str, tmp_path: Path, upstream: ScriptedUpstream) -> None:
    wrong = 422 if "scale" in route else 400
    answers: list[tuple[int, Json]] = []
    async with proxied(tmp_path, upstream) as (_, client):
        for length in (MAX_NAME, MAX_NAME + 1):
            for options in ({"x" * length: 1}, {"options": {"x" * length: 1}}):
                status, _, body = await ask(client, route, options)
                answers.append((status, body))

    assert wrong not in {status for status, _ in answers[:2]}
    assert [status for status, _ in answers[2:]] == [400, wrong]
    assert [body["error"]["param"] for _, body in answers[2:]] == [None, "options"]


@pytest.mark.parametrize("group", GROUPS)
async def test_options_bound_name(group: str, tmp_path: Path, upstream: ScriptedUpstream) -> None:
    async with proxied(tmp_path, upstream) as (_, client):
        status, _, body = await ask(client, "openai-chat", {group: {"é" * 1000: 1}})

    assert (status, body["error"]["param"]) == (400, group)


@for_each("shape", SHAPES)
def test_to_fold_a_name_takes_no_time(shape: str) -> None:
    name = text(shape, LONG)
    started_at = time.process_time()
    folded(name)

    assert time.process_time() - started_at < MOST_S


def test_what_is_folded_to_letters_of_ascii_is_no_longer_than_they_are() -> None:
    odd = {chr(code) for code in range(0x80, 0x110000) if folded(chr(code)).isascii()}
    shrunk = [name for name in odd if len(folded(name)) < len(name)]

    assert "\u212a" in odd
    assert shrunk == []
