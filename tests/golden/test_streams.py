"""Recorded streams and requests reach clients and upstreams of all families unchanged."""

from __future__ import annotations

import json
from dataclasses import replace
from difflib import unified_diff
from pathlib import Path

import pytest

from tests.golden.recording import NAMES, read, text_of
from tests.golden.replay import Replay

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.mark.parametrize("name", NAMES)
async def test_clients_receive_the_recorded_output(
    name: str, replay: Replay, update_golden: bool
) -> None:
    recording = read(name)

    content = text_of(replace(recording, outputs=await replay.outputs(recording)))

    if update_golden:
        recording.path.write_bytes(content)
    assert _changes(recording.path.read_bytes(), content) == ""


def _changes(data_before: bytes, data_after: bytes) -> str:
    old, new = (text.decode().splitlines(keepends=True) for text in (data_before, data_after))
    return "".join(unified_diff(old, new, "recorded", "now", n=1))


PATHS = sorted((Path(__file__).parent / "requests").glob("*.json"))
UPSTREAMS = ("chat", "messages", "responses")


@pytest.mark.parametrize("path", PATHS, ids=[path.stem for path in PATHS])
async def test_upstreams_get_the_recorded_request(
    path: Path, replay: Replay, update_golden: bool
) -> None:
    case = json.loads(path.read_text())
    client, request = case["client"], case["request"]

    forwarded = {name: await replay.forwarded(client, request, name) for name in UPSTREAMS}

    if update_golden:
        case["forwarded"] = forwarded
        path.write_text(json.dumps(case, indent=1) + "\n")
    assert forwarded == case["forwarded"]
