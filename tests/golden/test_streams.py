"""Each recorded stream reaches clients of all families as it did when it was recorded.

``pytest tests/golden/test_streams.py --update-golden`` records the outputs again.
"""

from __future__ import annotations

from dataclasses import replace
from difflib import unified_diff
from pathlib import Path

import pytest

from tests.golden.recording import FOLDER, read, text_of
from tests.golden.replay import Replay

pytestmark = pytest.mark.asyncio(loop_scope="module")
PATHS = sorted(FOLDER.glob("*.txt"))


@pytest.mark.parametrize("path", PATHS, ids=[path.stem for path in PATHS])
async def test_clients_receive_the_recorded_output(
    path: Path, replay: Replay, update_golden: bool
) -> None:
    recording = read(path)

    content = text_of(replace(recording, outputs=await replay.outputs(recording)))

    if update_golden:
        path.write_bytes(content)
    assert _changes(path.read_bytes(), content) == ""


def _changes(before: bytes, after: bytes) -> str:
    old, new = (text.decode().splitlines(keepends=True) for text in (before, after))
    return "".join(unified_diff(old, new, "recorded", "now", n=1))
