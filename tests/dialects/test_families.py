"""Families of answers by dialect and endpoint."""

from __future__ import annotations

from proxy.dialects import DIALECTS
from proxy.dialects.families import FAMILIES, FAMILY_OF_ENDPOINT, family_name
from proxy.types import Endpoint
from tests.for_each import for_each


@for_each(
    ("dialect", "endpoint", "family"),
    [
        ("openai", "chat", "chat"),
        ("openai", "completions", "completions"),
        ("openai", "responses", "responses"),
        ("anthropic", "chat", "messages"),
        ("portkey", "responses", "responses"),
        ("openai", "embeddings", "embeddings"),
        ("anthropic", "count_tokens", "document"),
        ("openai", "conversations", "stored"),
    ],
)
def test_each_endpoint_has_a_family(dialect: str, endpoint: Endpoint, family: str) -> None:
    assert family_name(DIALECTS[dialect], endpoint) == family


def test_each_family_answers_an_endpoint() -> None:
    assert {*FAMILIES} == {*FAMILY_OF_ENDPOINT.values(), "messages"}
