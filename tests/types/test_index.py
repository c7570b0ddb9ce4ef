"""Lenient reading of an index, the same for all readers of streams."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.call.meter import Meter
from proxy.dialects.chat.choices import MAX_PARTS
from proxy.dialects.chat.merging import convert_legacy_to_chat
from proxy.dialects.families import FAMILIES
from proxy.dialects.family import ReadOptions
from proxy.errors import UpstreamInvalid
from proxy.guards.capture import CallCapture
from proxy.types.events import get_index
from proxy.types.guard import Capture
from tests.doubles import Json
from tests.for_each import for_each
from tests.frames import stream_frames
from tests.golden.pipeline import call_of

HOSTILE_NUMBERS = [0, 1, -1, True, 1.0, 1.5, 1e300]
HOSTILE_TEXTS = ["1", "01", "one", "9" * 50, "\u0661", ""]
HOSTILE = [*HOSTILE_NUMBERS, *HOSTILE_TEXTS, None, [], [0], {}, {"a": 1}]


@for_each("index", [1, 1.0, "1", "01", "+1", " 1", "1e0", "0x1", "\u0661", "0" * 500 + "1"])
def test_index_is_read_leniently(index: object) -> None:
    assert get_index({"index": index}, 0) == 1


def test_missing_index_is_the_position() -> None:
    assert get_index({"index": None}, 5) == get_index({}, 5) == get_index("no object", 5) == 5


@for_each("index", [1.5, "one", "nan", "inf", "9" * 5000, [], [0], {}, {"a": 1}])
def test_other_values_identify_their_item(index: object) -> None:
    first_index, second_index = (get_index({"index": index}, position) for position in (0, 2))

    assert first_index == second_index
    assert first_index not in (0, 1, 2)


@for_each("index", HOSTILE, ids=lambda index: repr(index)[:12])
def test_all_readers_of_an_index_agree(index: object) -> None:
    number = get_index({"index": index}, 0)
    pieces = [
        {"index": index, "text": "Hydro"},
        {"index": number, "text": "gen", "finish_reason": "stop"},
    ]

    if 0 <= number < MAX_PARTS:
        assert "Hydrogen" in captured(pieces)
    else:
        with pytest.raises(UpstreamInvalid):
            captured(pieces)
    assert metered([{**piece, "finish_reason": "stop"} for piece in pieces]) == {number: "stop"}
    assert roles_of_chat(pieces) == ["assistant", None]


def captured(pieces: list[Json]) -> list[str]:
    capturing = CallCapture(Capture(1.0), (), {}, lambda: 0.0)
    call = call_of("completions")
    reader = FAMILIES["completions"].reader(ReadOptions(call, inspect=True))
    for piece in pieces:
        for frame in reader.read({"choices": [piece]}, b""):
            capturing.feed(frame)
    return [text.text for text in capturing.build_captured_texts().response]


def metered(pieces: list[Json]) -> dict[int, Any]:
    meter = Meter()
    for piece in pieces:
        [frame] = stream_frames({"choices": [piece]}, family="completions")
        meter.feed(frame, 0.0)
    return dict(meter.finish_reasons)


def roles_of_chat(pieces: list[Json]) -> list[str | None]:
    begun: set[int] = set()
    answers = [convert_legacy_to_chat(begun, {"choices": [piece]}) for piece in pieces]
    return [answer["choices"][0]["delta"].get("role") for answer in answers]
