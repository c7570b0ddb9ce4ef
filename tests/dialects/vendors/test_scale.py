"""Scale's own words: aliases, guides, extra headers, deployments in a model's name, its errors."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.dialects import DIALECTS, read_call
from proxy.dialects.vendors import scale
from proxy.errors import InvalidField, UpstreamRejected
from proxy.types import RequestHead

HEAD = RequestHead("scale", "completions", "/v5/completions", "req_1")


def read(**fields: Any) -> Any:
    return read_call(HEAD, {"model": "openai/gpt-4o-mini", "prompt": "p", **fields})


def test_a_field_wins_over_its_alias() -> None:
    assert read(max_new_tokens=7, max_tokens=9).body["max_tokens"] == 9


@pytest.mark.parametrize("fields", [{"logprobs": True, "top_logprobs": 3}, {"logprobs": 3}])
def test_log_probabilities_are_counted_and_come_back_as_a_flag(fields: dict[str, Any]) -> None:
    body = read(**fields).body

    assert body["logprobs"] == 3
    sent_body = scale.from_chat("completions", body)
    assert (sent_body["logprobs"], sent_body["top_logprobs"]) == (True, 3)


def test_two_guides_exclude_each_other() -> None:
    with pytest.raises(InvalidField, match="guided_regex"):
        read(guided_json={}, guided_regex="a")


def test_extra_headers_cannot_authenticate_frame_or_route() -> None:
    extra = {
        "Authorization": "x",
        "x-api-key": "x",
        "Host": "x",
        "X-Forwarded-For": "x",
        "x-team": "support",
        "bad": "a\r\nb",
        "number": 5,
    }

    assert read(inference_extra_headers=extra).body["inference_extra_headers"] == {
        "x-team": "support"
    }


def test_the_time_it_allows_bounds_the_call() -> None:
    assert read(inference_timeout=2.5).timeout_s == 2.5


def test_a_field_that_an_upstream_names_stands_in_the_detail() -> None:
    refused = UpstreamRejected("a.0: too long", upstream_status=422, param="a.0")

    response = DIALECTS["scale"].client.refuse(refused, "req_1")

    [detail] = response.body["detail"]
    assert (response.status, detail["loc"], detail["msg"]) == (422, ["body", "a", "0"], "too long")
