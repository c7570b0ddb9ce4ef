"""Call indexes that equal an integer but are floats or booleans name different calls."""

from __future__ import annotations

from typing import Any

from proxy.types.events import FamilyName
from tests.adversary.answers import (
    ARGUMENTS,
    CARD,
    CLIENTS,
    calls_in,
    chunk,
    frames_of,
    guarded,
    shown,
)
from tests.doubles import Json
from tests.for_each import for_each

NUMBERS = {"floats": (0.0, 1.0), "booleans": (False, True), "mixed": (0, 1.0)}


def two_calls(numbers: tuple[Any, Any]) -> list[Json]:
    values: list[Json] = []
    for index, number in enumerate(numbers):
        started = {
            "id": f"call_{index}",
            "function": {"name": f"f_{index}", "arguments": ARGUMENTS[:9]},
        }
        options = {"function": {"arguments": ARGUMENTS[9:]}}
        values += [
            chunk({"tool_calls": [{"index": number, **item}]}) for item in (started, options)
        ]
    return [*values, chunk({}, "tool_calls")]


@for_each("form", sorted(set(CLIENTS) - {"chat"}))
@for_each("numbers", NUMBERS.values(), ids=NUMBERS)
def test_unnumbered_calls_stay_apart(form: FamilyName, numbers: tuple[Any, Any]) -> None:
    documents = two_calls(numbers)

    plain = shown(form, frames_of(form, "chat", documents))
    safe = shown(form, guarded(frames_of(form, "chat", documents), "mask")[0])

    assert calls_in(form, plain) == [ARGUMENTS] * 2
    assert calls_in(form, safe) == [ARGUMENTS.replace(CARD, "[CARD]")] * 2
