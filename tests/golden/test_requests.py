"""Upstreams of each family get the recorded request for a request with tool calls and results.

``pytest tests/golden/test_requests.py --update-golden`` records the requests again.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.golden.replay import Replay

pytestmark = pytest.mark.asyncio(loop_scope="module")
PATHS = sorted((Path(__file__).parent / "requests").glob("*.json"))
UPSTREAMS = ("chat", "messages", "responses")


@pytest.mark.parametrize("path", PATHS, ids=[path.stem for path in PATHS])
async def test_upstreams_get_the_recorded_request(
    path: Path, replay: Replay, update_golden: bool
) -> None:
    case = json.loads(path.read_text())

    forwarded = {
        family: await replay.forwarded(case["client"], case["request"], family)
        for family in UPSTREAMS
    }

    if update_golden:
        case["forwarded"] = forwarded
        path.write_text(json.dumps(case, indent=1) + "\n")
    assert forwarded == case["forwarded"]
