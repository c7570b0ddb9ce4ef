"""The multi-model completion: lists of models, their composed answer, and its reading."""

from __future__ import annotations

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


@for_each(
    ("name", "value"), [("stream", True), ("n", 2), ("model", ["m", "m"]), ("model", ["m"] * 17)]
)
def test_what_this_api_has_no_word_for_is_refused(name: str, value: Any) -> None:
    with pytest.raises(InvalidField) as refused:
        read(**{name: value})

    assert refused.value.param == name


def test_an_alias_bounds_the_output() -> None:
    assert read(max_new_tokens=9).body["max_tokens"] == 9


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
