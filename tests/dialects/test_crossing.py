"""What becomes of a field on its way to an upstream of another dialect."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.dialects import DIALECTS
from proxy.dialects.crossing import fit
from proxy.errors import BadField

LEGACY: Any = ("completions", "completions")
BODY = {"model": "m", "prompt": "p"}


def crossed(came: str, goes: str, **fields: Any) -> Any:
    return fit(DIALECTS[came], DIALECTS[goes], LEGACY, {**BODY, **fields})


def test_a_field_that_both_know_passes() -> None:
    assert crossed("openai", "fireworks", top_p=0.5).body["top_p"] == 0.5


def test_a_field_that_neither_knows_passes_with_its_value() -> None:
    assert crossed("openai", "scale", new_thing=[1, {"a": None}]).body["new_thing"] == [
        1,
        {"a": None},
    ]


@pytest.mark.parametrize("value", [None, 1, 1.0])
def test_a_default_is_left_out_without_a_word(value: Any) -> None:
    fitted = crossed("fireworks", "openai", repetition_penalty=value)

    assert fitted.dropped == ()
    assert "repetition_penalty" not in fitted.body


def test_a_field_that_tunes_is_dropped_and_named() -> None:
    assert crossed("fireworks", "openai", repetition_penalty=1.2).dropped == ("repetition_penalty",)


@pytest.mark.parametrize(
    ("came", "goes", "field"),
    [
        ("fireworks", "openai", {"images": ["data:"]}),
        ("scale", "openai", {"guided_regex": "a+"}),
        ("scale", "fireworks", {"tools": [{}]}),
        ("openai", "multimodel", {"suffix": "x"}),
        ("openai", "multimodel", {"n": 2}),
        ("openai", "multimodel", {"temperature": 1.5}),
        ("openai", "multimodel", {"prompt": ["a", "b"]}),
        ("fireworks", "openai", {"response_format": {"type": "json_object"}}),
    ],
)
def test_a_field_that_shapes_the_answer_is_refused_by_name(
    came: str, goes: str, field: dict[str, Any]
) -> None:
    with pytest.raises(BadField) as refused:
        crossed(came, goes, **field)

    assert refused.value.param in field


def test_an_upstream_may_take_more_than_its_dialect() -> None:
    fitted = fit(
        DIALECTS["fireworks"],
        DIALECTS["openai"],
        LEGACY,
        {**BODY, "top_k": 40},
        frozenset({"top_k"}),
    )

    assert (fitted.body["top_k"], fitted.dropped) == (40, ())


def test_an_upstream_without_the_endpoint_is_named() -> None:
    with pytest.raises(BadField, match="no embeddings endpoint"):
        fit(DIALECTS["openai"], DIALECTS["scale"], ("embeddings", "embeddings"), BODY)
