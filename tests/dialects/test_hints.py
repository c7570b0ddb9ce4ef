"""What is said of a path that is not served: the setting that the client has wrong."""

from __future__ import annotations

import pytest

from proxy.dialects import PLAIN_ROUTES, Received, parse_head
from proxy.dialects.hints import MOST_PARTS, not_served, plain_path
from proxy.errors import NotFound

KNOWN = {path for _, path in PLAIN_ROUTES}


@pytest.mark.parametrize(
    ("path", "hint"),
    [
        ("/v1/v1/chat/completions", "Leave /v1 out of the client's base URL"),
        ("/v1/v1/messages", "Leave /v1 out of the client's base URL"),
        ("/v1/chat/completions/chat/completions", "End the client's base URL before that path"),
        ("/v1/messages/v1/messages", "End the client's base URL before that path"),
        ("/api/v1/chat/completions", "It ends in /v1/chat/completions, which is served"),
        ("/api/chat", "These are Ollama's paths"),
        ("/api/tags", "These are Ollama's paths"),
        ("/azure/openai/v1/responses", "It ends in /openai/v1/responses, which is served"),
        ("/anthropic/v1/messages", "It ends in /v1/messages, which is served"),
        ("/v1beta/models/gemini-pro:generateContent", "These are Gemini's paths"),
        ("/v1/chat/completions/", "Leave out the slash at its end"),
        ("//v1/chat/completions", "Leave out the slash at the end of the client's base URL"),
        ("/V1/Chat/Completions", "Write it in lower case"),
    ],
)
def test_a_common_mistake_is_told(path: str, hint: str) -> None:
    with pytest.raises(NotFound) as refused:
        parse_head("POST", path, {}, Received("req_1"))

    assert refused.value.message.startswith(f"There is no such path. {hint}")


@pytest.mark.parametrize("path", ["/", "/v1", "/v1/nothing", "/sk-of-somebody/x"])
def test_any_other_path_is_told_what_is_served_and_nothing_of_itself(path: str) -> None:
    message = not_served(path, KNOWN)

    assert message.startswith("There is no such path. Served are /v1/chat/completions, ")
    assert "/v1/messages" in message
    assert "sk-" not in message


@pytest.mark.parametrize(
    ("path", "shown"),
    [
        ("/v1/fine_tuning/jobs", "/v1/fine_tuning/jobs"),
        ("/v1/files/file-9aBc/content", "/v1/files/*/content"),
        ("/v1beta/models/gemini-9:generate", "/v1beta/models/*"),
        ("/sk-secret", "/*"),
        ("/" + "a" * 40, "/*"),
        ("/a" * 99, "/a" * MOST_PARTS),
        ("/x\ny", "/*"),
    ],
)
def test_a_path_is_logged_without_what_may_be_a_secret(path: str, shown: str) -> None:
    assert plain_path(path) == shown


def test_who_may_list_a_path_is_told() -> None:
    assert "where the operator lists them under passthrough" in not_served("/v1/rerank", KNOWN)
