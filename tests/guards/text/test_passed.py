"""Texts of requests and answers in forms that are not known here: none is left out, and each is the
user's or the model's."""

from __future__ import annotations

from proxy.guards.text.documents import collect_texts
from proxy.guards.text.walk import passed_answer_walk, passed_request_walk


def test_unknown_request_text_is_the_users() -> None:
    body = {
        "model": "rerank-1",
        "query": "who",
        "documents": ["one", {"text": "two", "odd": {"title": "three"}}],
        "top_n": 3,
    }

    texts = collect_texts(passed_request_walk(body)).texts

    results = {text.text: (text.kind, text.role) for text in texts}
    assert {"who", "one", "two", "three", "odd", "title"} <= results.keys()
    assert {results[text] for text in ("who", "one", "two", "three")} == {("content", "user")}
    assert "rerank-1" not in results


def test_unknown_response_text_is_the_models() -> None:
    data = {"id": "a", "text": "heard", "segments": [{"text": "seen"}], "": ["item"]}

    texts = collect_texts(passed_answer_walk(data)).texts

    results = {text.text: (text.kind, text.role) for text in texts}
    assert {results[text] for text in ("heard", "seen", "item")} == {("content", "assistant")}


def test_a_picture_is_opaque() -> None:
    body = {"input": [{"type": "image_url", "image_url": {"url": "https://x.test/a.png"}}]}

    assert [opaque.kind for opaque in collect_texts(passed_request_walk(body)).opaque] == [
        "image_url"
    ]
