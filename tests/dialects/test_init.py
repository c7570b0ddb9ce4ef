"""Routes and dialects: every route is in one table, and nothing else is served."""

from __future__ import annotations

import pytest

from proxy.dialects import DIALECTS, ROUTES, Came, greeted, read_call, speak
from proxy.errors import MethodNotAllowed, NotFound
from proxy.types import Door


def test_every_route_is_known_by_name() -> None:
    chats = {path for (_, path), (_, endpoint) in ROUTES.items() if endpoint == "chat"}

    assert len(ROUTES) == 17
    assert chats == {
        "/v1/chat/completions",
        "/chat/completions",
        "/inference/v1/chat/completions",
        "/v4/beta/chat/completions",
        "/v5/chat/completions",
        "/ai-proxy/chat/completions",
    }


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/v1",
        "/v1/completions/",
        "//v1/completions",
        "/V1/completions",
        "/v1/%63ompletions",
        "/v1/../v1/completions",
        "/v1/completions;x",
        "http://elsewhere/v1/completions",
        "/v1/responses",
    ],
)
def test_another_path_is_not_served(path: str) -> None:
    with pytest.raises(NotFound):
        greeted("POST", path, {}, Came("req_1"))


def test_another_method_is_told_which_one_would_do() -> None:
    with pytest.raises(MethodNotAllowed) as refused:
        greeted("GET", "/v1/completions", {}, Came("req_1"))

    assert refused.value.allowed == "POST"


def test_each_dialect_is_spoken_on_its_own_paths() -> None:
    for name, dialect in DIALECTS.items():
        headers = {"x-portkey-api-key": "k"} if name == "portkey" else {}
        for _, path in dialect.client.routes:
            assert speak(path, headers) is dialect


def test_embeddings_are_never_streamed() -> None:
    door = Door("openai", "embeddings", "/v1/embeddings", "req_1")

    assert not read_call(door, {"model": "m", "input": "x", "stream": True}).stream
