"""Log probabilities say nothing that is not read, and nothing twice that the text says."""

from __future__ import annotations

from typing import Any

from proxy.guards.text.logprobs import beside
from tests.for_each import for_each


@for_each(
    ("logprobs", "shown", "others"),
    [
        (None, "a", set()),
        ({"content": [{"token": "a", "logprob": -1, "bytes": [97]}]}, "a", set()),
        ({"content": [{"token": "\\xc3", "bytes": [195]}, {"token": "\\xa9", "bytes": [169]}]},
         "é", {"\\xc3\\xa9"}),
        ({"content": [{"token": "a", "bytes": [98]}]}, "a", {"b"}),
        ({"content": [{"token": "a", "bytes": [98, "x", 300]}]}, "a", {"b", "x"}),
        ({"content": [{"token": "a", "bytes": None, "logprob": None}]}, "a", set()),
        ({"tokens": ["a"], "token_logprobs": [-1], "text_offset": [0],
          "top_logprobs": [{"a": -1, "b": -2}]}, "a", {"b"}),
        ({"tokens": "ab"}, "c", {"ab"}),
        ("ab", "", {"ab"}),
    ],
)  # fmt: skip
def test_what_is_said_beside_the_text(logprobs: Any, shown: str, others: set[str]) -> None:
    assert {*beside(logprobs, shown)} - {""} == others


def test_depth_is_no_bound() -> None:
    deep: Any = "found"
    for _ in range(20_000):
        deep = [deep]

    assert "found" in beside(deep, "")
