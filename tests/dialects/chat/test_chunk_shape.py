"""A chunk that differs from another only in its text is recognized, and any other is not."""

from __future__ import annotations

from typing import Any

from proxy.dialects.chat.chunk_shape import ChunkShape
from proxy.types.events import Delta, Part
from tests.doubles import Json
from tests.for_each import for_each

PART, SLOT = Part("text", 0), ("choices", 0, "delta", "content")


def chunk(text: Any = "a", index: Any = 0, **members: Any) -> Json:
    delta = {"content": text, **members}
    return {"id": "c", "choices": [{"index": index, "delta": delta, "finish_reason": None}]}


def shape(*, exact: bool) -> ChunkShape:
    return ChunkShape(chunk(), "delta", Delta(PART, "a", SLOT), exact=exact)


@for_each("exact", [True, False])
def test_next_text_is_recognized(exact: bool) -> None:
    delta = shape(exact=exact).read_matching_delta(chunk("b"))

    assert delta == Delta(PART, "b", SLOT)


OTHER: list[Json] = [
    *({"id": "c"}, {"choices": []}, chunk(""), chunk(["b"]), chunk("b", index=1)),
    *(chunk("b", role="assistant"), {**chunk("b"), "usage": {"prompt_tokens": 1}}),
]


@for_each("exact", [True, False])
@for_each("doc", OTHER)
def test_other_chunks_are_not_recognized(doc: Json, exact: bool) -> None:
    assert shape(exact=exact).read_matching_delta(doc) is None


@for_each("doc", [chunk("b", index=False), chunk("b", index=0.0), {**chunk("b"), "id": "d"}])
def test_exact_shape_has_equal_values_of_equal_types(doc: Json) -> None:
    assert shape(exact=True).read_matching_delta(doc) is None
    assert shape(exact=False).read_matching_delta(doc) is not None
