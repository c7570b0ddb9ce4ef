"""The multi-model completion: lists of models, their composed answer, and its reading."""

from __future__ import annotations

import re
import uuid
from datetime import datetime
from typing import Any

import pytest

from proxy.dialects import read_call
from proxy.dialects.vendors import multimodel
from proxy.errors import InvalidField
from proxy.types import RequestHead
from tests.doubles import legacy
from tests.for_each import for_each

HEAD = RequestHead("multimodel", "completions", "/v1/completion", "req_1")


def read(**fields: Any) -> Any:
    return read_call(HEAD, {"model": "m", "prompt": "p", **fields})


def test_one_model_and_a_list_of_it_are_the_same_question() -> None:
    assert read(model="m").requested_models == read(model=["m"]).requested_models == ("m",)


@for_each(
    ("name", "value"), [("stream", True), ("n", 2), ("model", ["m", "m"]), ("model", ["m"] * 17)]
)
def test_what_this_api_has_no_word_for_is_refused(name: str, value: Any) -> None:
    with pytest.raises(InvalidField) as refused:
        read(**{name: value})

    assert refused.value.param == name


def test_an_alias_bounds_the_output() -> None:
    assert read(max_new_tokens=9).body["max_tokens"] == 9


def test_the_answer_has_a_uuid_an_iso_time_and_a_sum() -> None:
    call = read(model=["a", "b"])
    parts = {
        1: {**legacy(" two"), "prediction_time_ms": 9},
        0: {**legacy(" one"), "prediction_time_ms": 4},
    }

    fields = multimodel.whole(call, parts)

    assert str(uuid.UUID(fields["id"])) == fields["id"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", fields["created"])
    assert datetime.fromisoformat(fields["created"]).year >= 2026
    assert [(c["model"], c["text"]) for c in fields["choices"]] == [("a", " one"), ("b", " two")]
    assert all(type(c["created"]) is int for c in fields["choices"])
    assert fields["usage"]["total_tokens"] == 16
    assert fields["usage"]["prediction_time_ms"] == 9


def test_an_unknown_count_makes_the_sum_unknown() -> None:
    call = read(model=["a", "b"])
    silent = {k: v for k, v in legacy().items() if k != "usage"}

    fields = multimodel.whole(call, {0: legacy(), 1: silent})

    assert fields["usage"]["total_tokens"] is None


def test_its_own_answer_is_read_as_a_legacy_completion() -> None:
    call = read(model=["a", "b"])

    answer = multimodel.response_to_chat(multimodel.whole(call, {0: legacy(" x"), 1: legacy(" y")}))

    assert [(c["index"], c["text"]) for c in answer["choices"]] == [(0, " x"), (1, " y")]
    assert (answer["object"], type(answer["created"])) == ("text_completion", int)
