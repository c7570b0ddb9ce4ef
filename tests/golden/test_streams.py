"""Each recorded stream reaches clients of all families as it did when it was recorded.

``pytest tests/golden/test_streams.py --update-golden`` records the outputs again.
"""

from __future__ import annotations

from dataclasses import replace
from difflib import unified_diff

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
