"""OpenAI's form: rules between fields, errors, and what an SDK looks at before it retries."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.dialects.vendors import openai
from proxy.errors import InvalidField, UpstreamUnavailable
from proxy.errors.wire import MethodNotAllowed
from tests.for_each import for_each


@for_each(
    ("rule", "body", "param"),
    [
        (openai.stream_options_need_a_stream, {"stream_options": {}}, "stream_options"),
        (openai.best_of_fits, {"best_of": 1, "n": 2}, "best_of"),
        (openai.best_of_fits, {"best_of": 2, "stream": True}, "best_of"),
        (openai.top_logprobs_need_logprobs, {"top_logprobs": 2}, "top_logprobs"),
    ],
)
def test_refuses_conflicting_fields(rule: Any, body: dict[str, Any], param: str) -> None:
    with pytest.raises(InvalidField) as refused:
        rule(body)

    assert refused.value.param == param


@pytest.mark.parametrize("body", [{"best_of": 3, "n": 3}, {"best_of": 1, "stream": True}, {}])
def test_fields_that_fit_pass(body: dict[str, Any]) -> None:
    openai.best_of_fits(body)


@for_each(
    ("headers", "key"),
    [
        ({"authorization": "Bearer hr-1"}, "hr-1"),
        ({"api-key": "hr-1"}, "hr-1"),
        ({"api-key": "hr-2", "authorization": "Bearer hr-1"}, "hr-1"),
        ({"api-key": "hr-1", "authorization": "Basic eDp5"}, "hr-1"),
    ],
)
def test_a_bearer_counts_before_an_api_key(headers: dict[str, str], key: str) -> None:
    credential = openai.credential(headers)

    assert credential is not None
    assert credential.reveal() == key


def test_waiting_is_told_in_seconds_and_milliseconds() -> None:
    error = UpstreamUnavailable("busy", status=429)
    error.retry_after_s = 1.25

    assert openai.retry_headers(error) == (("retry-after", "2"), ("retry-after-ms", "1250"))


def test_a_wrong_method_names_the_right_one() -> None:
    assert openai.refuse(MethodNotAllowed("POST"), "r").headers == (("allow", "POST"),)
