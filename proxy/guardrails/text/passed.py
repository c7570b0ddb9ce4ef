"""Every text of a request and of an answer of a form that is not known here: what no table has is
what the user says, or the model, so that no rule for either leaves it out."""

from __future__ import annotations

from collections.abc import Iterator

from proxy.guardrails.text.walk import Found, answer_walk, request_walk
from proxy.types import Json


def passed_request_walk(body: Json) -> Iterator[Found]:
    """Walk over a request that is passed on."""
    return request_walk(body, "content", "user")


def passed_answer_walk(data: Json) -> Iterator[Found]:
    """Walk over an answer that is passed on."""
    return answer_walk(data, unknown="content")
