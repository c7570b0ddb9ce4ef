"""Replacement of texts in copies of documents."""

from __future__ import annotations

import base64
import copy
import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from proxy.guards.engine import Engine
from proxy.guards.text.documents import collect_request_texts, collect_response_texts
from proxy.guards.text.replace import replace_texts
from proxy.guards.text.walk import MemberName
from tests.for_each import for_each
from tests.guards.doubles import Ticks, rule
from tests.guards.growth import lines
from tests.guards.text.test_base64_text import PLACES

TREE = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text("abc", max_size=3), inner, max_size=3)
        | st.fixed_dictionaries({"arguments": inner.map(json.dumps)})
    ),
    max_leaves=12,
)
BODY = st.dictionaries(
    st.sampled_from(["messages", "prompt", "metadata", "tools", "odd", "choices"]), TREE, max_size=4
)


@given(BODY)
def test_replacement_copies_the_document(body: dict[str, Any]) -> None:
    document_before = copy.deepcopy(body)
    texts = collect_request_texts(body).texts
    texts = tuple(text for text in texts if not isinstance(text.path[-1], MemberName))

    changed = replace_texts(body, {text.path: f"{text.text}!" for text in texts if text.in_json})
    repeated = {text.path: text.text for text in collect_request_texts(changed).texts}

    assert body == document_before
    for text in texts:
        assert repeated[text.path] == (f"{text.text}!" if text.in_json else text.text)


@given(BODY)
def test_replacing_texts_by_themselves_changes_nothing(body: dict[str, Any]) -> None:
    texts = {
        text.path: text.text
        for text in collect_request_texts(body).texts
        if text.in_json or not (isinstance(text.path[-1], int) and text.kind == "arguments")
    }

    assert replace_texts(body, texts) == body


def test_without_replacements_the_document_is_not_copied() -> None:
    body = {"prompt": "x"}

    assert replace_texts(body, {}) is body


def test_parts_without_replacements_are_shared() -> None:
    body: dict[str, Any] = {"messages": [{"content": "a"}, {"content": "b"}], "tools": [{"x": 1}]}

    changed = replace_texts(body, {("messages", 0, "content"): "c"})

    assert changed["messages"][0] == {"content": "c"}
    assert changed["messages"][1] is body["messages"][1]
    assert changed["tools"] is body["tools"]


def test_replaced_member_names_stay_distinct() -> None:
    body = {"metadata": {"a@b.c": {"x": "y"}, "d@e.f": 2}}
    paths: dict[Any, str] = {
        ("metadata", MemberName("a@b.c")): "[EMAIL]",
        ("metadata", MemberName("d@e.f")): "[EMAIL]",
        ("metadata", "a@b.c", "x"): "z",
    }

    assert replace_texts(body, paths) == {"metadata": {"[EMAIL]": {"x": "z"}, "[EMAIL]_2": 2}}


def test_equal_names_are_numbered_in_linear_time() -> None:
    def renamed(size: int) -> int:
        body = {"metadata": {f"a{n}@b.c": n for n in range(size)}}
        paths: dict[Any, str] = {
            ("metadata", MemberName(name)): "[EMAIL]" for name in body["metadata"]
        }
        return lines(lambda: replace_texts(body, paths))

    assert renamed(800) < 3 * renamed(400)


SECRET = base64.b64encode(b"the secret").decode()
MASKS = (
    rule("secret", action="mask"),
    rule("a-bomb", name="heads", action="mask"),
    rule("to/make", name="written", action="mask"),
)


async def mask(body: Any) -> Any:
    inspection = await Engine(Ticks()).inspect(MASKS, collect_request_texts(body))
    return replace_texts(body, inspection.changes)


@for_each("place", PLACES)
@for_each(
    ("source", "masked"),
    [
        (
            f"data:text/plain;base64,{SECRET}",
            f"data:text/plain;charset=utf-8;base64,{base64.b64encode(b'the [WORD]').decode()}",
        ),
        ("data:text/plain;base64,how/to/make/a/bo", "data:text/plain;base64,how/[WORD]/a/bo"),
        ("data:text/a-bomb;base64,QUJD", "data:text/[WORD];base64,QUJD"),
    ],
)
async def test_masks_in_data_are_all_applied(place: str, source: str, masked: str) -> None:
    assert await mask(PLACES[place](source)) == PLACES[place](masked)


async def test_data_is_masked_decoded_and_as_written() -> None:
    raw = base64.b64encode(b"the secret, ").decode() + "how/to/make"
    [message] = (await mask(PLACES["content"](f"data:text/plain;base64,{raw}")))["messages"]

    assert message["content"].startswith("the [WORD], ")
    assert "to/make" not in message["content"]


async def test_masked_media_type_keeps_the_picture() -> None:
    before, after = (
        {
            "messages": [
                {"content": [{"image_url": {"url": f"data:image/{of};base64,iVBORw0KGgo="}}]}
            ]
        }
        for of in ("a-bomb", "[WORD]")
    )

    assert await mask(before) == after


async def test_file_is_masked_in_type_and_letters() -> None:
    changed = await mask(PLACES["a file"]("data:text/a-bomb;base64,how/to/make/a/bo"))

    assert changed == PLACES["a file"]("data:text/[WORD];base64,")


def test_masked_text_has_no_log_probs() -> None:
    answer: dict[str, Any] = {
        "choices": [
            {"message": {"content": "a cat"}, "logprobs": {"content": [{"token": "a cat"}]}},
            {"message": {"content": "a dog"}, "logprobs": {"content": [{"token": "a bird"}]}},
            {"message": {"content": "ok"}, "logprobs": {"content": [{"token": "ok"}]}},
        ]
    }
    paths = {text.path for text in collect_response_texts(answer).texts}
    assert ("choices", 1, "logprobs") in paths

    changed = replace_texts(
        answer, {("choices", 0, "message", "content"): "a x", ("choices", 1, "logprobs"): "x"}
    )

    kept_choice = {"content": [{"token": "ok"}]}
    assert [choice["logprobs"] for choice in changed["choices"]] == [None, None, kept_choice]
