"""Members of tools, items and blocks, at any depth."""

from __future__ import annotations

from proxy.dialects.requests.field_filter import permitted_fields
from proxy.fields.member_table import FREE_FORM, MEMBERS
from proxy.guards.text.documents import request_texts
from proxy.guards.text.walk import NESTED
from proxy.types import Json, Upstream

UPSTREAM = Upstream("openai", "openai", "https://llm.example")


def test_free_form_members_may_have_names_of_forbidden_fields() -> None:
    body: Json = {
        "messages": [{"role": "assistant", "annotations": [{"model": "any"}]}],
        "input": [{"type": "function_call", "arguments": {"server_url": "any"}}],
        "metadata": {"model": "any"},
    }

    assert permitted_fields(body, UPSTREAM) == (body, [])
    assert {"messages[].annotations", "input[].arguments", "**.metadata"} <= FREE_FORM


def test_text_kind_applies_at_all_levels() -> None:
    assert all(NESTED[name] == member.text for name, member in MEMBERS.items() if member.text)
    body: Json = {
        "messages": [{"role": "assistant", "content": [{"type": "thinking", "thinking": "a"}]}],
        "input": [{"type": "reasoning", "summary": [{"type": "summary_text", "text": "b"}]}],
    }

    assert [(text.text, text.kind) for text in request_texts(body).texts] == [
        ("a", "reasoning"),
        ("b", "reasoning"),
    ]
