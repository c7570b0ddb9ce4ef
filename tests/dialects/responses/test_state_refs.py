"""Ids of items: sealed in answers, events and pages, opened where they come back, by unit and over
sockets, with guards, cache, fallbacks, other keys and ids that were tampered."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from proxy.dialects.responses.sealing import ITEMS, DocumentSealer, IdSealer
from proxy.dialects.responses.state_refs import (
    MAX_IDS,
    replace_short_item_ids,
    resolve_state_refs,
)
from proxy.errors import InvalidField, NotFound
from proxy.guards.text.documents import collect_request_texts, collect_texts, walk_response_document
from proxy.types import Call, RequestHead
from tests.conftest import KEY
from tests.dialects.responses.test_sealing import CALL, IDS, PLACE, STORED_AT, THOUGHT
from tests.dialects.test_stored_state import StatefulProxy, stateful_proxy
from tests.doubles import Json, ScriptedUpstream, chat, respond, response, text_item
from tests.for_each import for_each

HEAD = RequestHead("openai", "responses", "/v1/responses", "r")


def asking(*items: Json, ids: IdSealer | None = IDS, **options: Any) -> Call:
    body = {"model": "m", "input": [*items], **options}
    call = Call(HEAD, body, requested_models=("m",), scheduling_key=PLACE[0])
    return resolve_state_refs(call, ids)


def reference(text: str) -> Json:
    return {"type": "item_reference", "id": text}


@for_each("own_text", ["msg_1", "rs_" + "0af1" * 12, "3.x", "resp_1", "fc_A-b.c", "a_b_c"])
def test_item_id_shows_its_kind_and_opens_only_for_its_key(own_text: str) -> None:
    sealed = IDS.seal(*PLACE, own_text, kind=ITEMS)
    pin = IDS.open(sealed, PLACE[0], kind=ITEMS)

    assert pin is not None
    assert (pin.deployment, pin.target, pin.id) == (*STORED_AT, own_text)
    assert sealed.startswith(own_text[: own_text.index("_") + 1] if "_" in own_text else "item_")
    assert own_text not in sealed
    assert IDS.open(sealed, "search-box", kind=ITEMS) is None
    assert IDS.open(sealed, PLACE[0]) is None
    assert IDS.open(IDS.seal(*PLACE, own_text), PLACE[0], kind=ITEMS) is None
    assert IDS.open("other_" + sealed.partition("_")[2], PLACE[0], kind=ITEMS) is None


def test_openai_ids_are_not_inspected_as_text() -> None:
    sealed = IDS.seal(*PLACE, "msg_" + "68a0c1d2" * 6 + "ff", kind=ITEMS)
    document = response(text_item("x", sealed))
    full_value = collect_texts(walk_response_document(document, "responses", is_event=False))

    assert len(sealed) <= 128
    assert sealed not in [text.text for text in full_value.texts]
    texts = collect_request_texts(asking(reference(sealed), {**THOUGHT, "id": sealed}).body).texts
    assert [text.text for text in texts] == ["item_0", "item_0"]


def test_responses_events_and_pages_have_sealed_item_ids() -> None:
    place = DocumentSealer(IDS, *PLACE)
    sealed = IDS.seal(*PLACE, "msg_1", kind=ITEMS)
    item = text_item("msg_1")

    document = place.seal(response(item, "odd"))  # type: ignore[arg-type]  # of an upstream
    added = place.seal({"type": "response.output_item.added", "item": item})
    delta = place.seal({"type": "x.delta", "item_id": "msg_1", "delta": "msg_1"})
    page = place.seal({"data": [item], "first_id": "msg_1", "last_id": None})

    assert document is not None
    assert document["output"] == [{**item, "id": sealed}, "odd"]
    assert added == {"type": "response.output_item.added", "item": {**item, "id": sealed}}
    assert delta == {"type": "x.delta", "item_id": sealed, "delta": "msg_1"}
    assert page == {"data": [{**item, "id": sealed}], "first_id": sealed, "last_id": None}
    assert place.seal({"type": "x", "item_id": 7}) is None


def test_call_goes_to_the_target_of_its_references() -> None:
    first_text, thought = (IDS.seal(*PLACE, name, kind=ITEMS) for name in ("msg_1", "rs_1"))
    echoed = {**THOUGHT, "id": thought}

    call = asking(reference(first_text), echoed, {"role": "user", "content": "x", "id": "msg_9"})

    assert call.state_ref is not None
    assert (call.state_ref.deployment, call.state_ref.target, call.state_ref.id) == (*STORED_AT, "")
    assert (call.state_ref.client_id, call.state_ref.param) == (first_text, "input.0.id")
    assert call.deployment == "support-chat"
    assert call.item_ids[:2] == ((first_text, "msg_1"), (thought, "rs_1"))
    assert [item["id"] for item in call.body["input"]] == ["item_0", "item_1", "item_2"]
    restored = replace_short_item_ids(call.body["input"], call.item_ids)
    assert restored[:2] == [reference("msg_1"), THOUGHT]


def test_approval_request_id_is_the_one_of_the_client() -> None:
    place = DocumentSealer(IDS, *PLACE)
    document = place.seal(response({"type": "mcp_approval_request", "id": "mcpr_1"}))
    assert document is not None
    value = {"type": "mcp_approval_response", "approval_request_id": document["output"][0]["id"]}

    call = asking({**value, "approve": True})

    assert call.body["input"][0]["approval_request_id"] == "item_0"
    [sent_value] = replace_short_item_ids(call.body["input"], call.item_ids)
    assert sent_value == {**value, "approval_request_id": "mcpr_1", "approve": True}


def test_items_sent_completely_select_no_target() -> None:
    call = asking({**THOUGHT, "id": IDS.seal(*PLACE, "rs_1", kind=ITEMS)})

    assert (call.state_ref, len(call.item_ids)) == (None, 1)


@for_each("place", [("other", STORED_AT[1]), (STORED_AT[0], "openai/other")])
@for_each("with_response", [False, True])
def test_references_must_belong_to_one_target(place: tuple[str, str], with_response: bool) -> None:
    elsewhere = reference(IDS.seal(PLACE[0], *place, "msg_2", kind=ITEMS))
    options: Json = {"previous_response_id": IDS.seal(*PLACE, "resp_1")} if with_response else {}
    first_items = [] if with_response else [reference(IDS.seal(*PLACE, "m_1", kind=ITEMS))]
    items = [*first_items, elsewhere]

    with pytest.raises(InvalidField, match="stored at another target") as refused:
        asking(*items, **options)

    assert refused.value.param == f"input.{len(items) - 1}.id"


@for_each("text", ["", "msg_1", "msg_" + "A" * 40, "x" * 100_000, "é"])
def test_unknown_reference_has_the_same_error(text: str) -> None:
    other_text = IDS.seal("search-box", *STORED_AT, "msg_1", kind=ITEMS)
    for value in (text, other_text):
        with pytest.raises(NotFound) as refused:
            asking({"role": "user", "content": "x"}, reference(value))
        output = value[:200].replace("é", "?")
        assert str(refused.value) == f"Item with id '{output}' not found."
        assert refused.value.param == "input.1.id"


def test_missing_and_too_many_reference_ids_are_refused() -> None:
    with pytest.raises(InvalidField) as refused:
        asking({"type": "item_reference"})
    assert refused.value.param == "input.0.id"
    items = [{**THOUGHT, "id": f"rs_{index}"} for index in range(MAX_IDS + 1)]
    with pytest.raises(InvalidField) as refused:
        asking(*items)
    assert refused.value.param == f"input.{MAX_IDS}.id"
    assert asking(*items, ids=None).item_ids == ()


@pytest.fixture
async def gateway(upstream: ScriptedUpstream, tmp_path: Path) -> AsyncIterator[StatefulProxy]:
    upstream.answer_with(respond(response(THOUGHT, text_item("Let me see."), CALL)))
    async with stateful_proxy(tmp_path / "policies", upstream) as running:
        yield running


async def items_of(context: StatefulProxy, **options: Any) -> list[Json]:
    status, document = await context.ask(**options)
    assert status == 200, document
    output: list[Json] = document["output"]
    return output


def is_unknown(status: int, body: Json, text: str) -> bool:
    error = body["error"]
    words = f"Item with id '{text[:200]}' not found."
    return (status, error["message"], error["param"]) == (404, words, "input.0.id")


async def test_missing_item_is_named_by_the_id_of_the_client(gateway: StatefulProxy) -> None:
    await gateway.ask(input=[{**THOUGHT, "id": "rs_9"}])
    sent_value = gateway.last.json["input"][0]["id"]
    error = {"message": f"Item with id '{sent_value}' not found.", "type": "invalid_request_error"}
    gateway.upstream.answer_with(respond({"error": error}, 404))

    for text, output in (("rs_9", "rs_9"), ("rs_" + "9" * 5_000, None)):
        status, body = await gateway.ask(input=[{**THOUGHT, "id": text}])
        message = body["error"]["message"]
        assert status == 404
        assert output is None or message == f"Item with id '{output}' not found."
        assert len(message) < 300


async def test_call_with_references_stays_at_their_target(gateway: StatefulProxy) -> None:
    stored = respond(response(text_item("x")))
    gateway.upstream.then(respond({"error": {"message": "Later."}}, 503), stored)
    [in_thread] = await items_of(gateway)
    gateway.upstream.answer_with(stored)
    [local_value] = await items_of(gateway)
    spare, local = reference(in_thread["id"]), reference(local_value["id"])

    status, _ = await gateway.ask(input=[spare])
    assert (status, gateway.last.path) == (200, "/spare/v1/responses")
    request_count = len(gateway.upstream.requests)
    status, body = await gateway.ask(input=[spare, local])
    assert (status, body["error"]["param"]) == (400, "input.1.id")
    for model in ("kept", "resilient", "unheard-of"):
        assert is_unknown(*await gateway.ask(model=model, input=[local]), local_value["id"])
    assert len(gateway.upstream.requests) == request_count
    gateway.upstream.answer_with(respond({"error": {"message": "Later."}}, 503))
    status, _ = await gateway.ask(input=[local])
    assert status == 503
    assert gateway.last.path == "/v1/responses"


async def test_references_are_part_of_the_cache_key(gateway: StatefulProxy) -> None:
    first_value, other_value, _ = [item["id"] for item in await items_of(gateway, model="kept")]
    gateway.upstream.answer_with(respond(response()))

    for text in (first_value, first_value, other_value):
        assert (await gateway.ask(model="kept", input=[reference(text)]))[0] == 200

    records = await gateway.proxy.sink.wait(4)
    assert [record.cache for record in records] == ["miss", "miss", "hit", "miss"]


async def test_chat_upstream_stores_nothing_to_refer_to(gateway: StatefulProxy) -> None:
    gateway.upstream.answer_with(respond(chat(" Paris.")))
    [item] = await items_of(gateway, model="chatting")
    request_count = len(gateway.upstream.requests)

    status, body = await gateway.ask(model="chatting", input=[reference(item["id"])])

    assert is_unknown(status, body, item["id"])
    assert len(gateway.upstream.requests) == request_count


async def test_pages_of_items_use_sealed_ids(gateway: StatefulProxy) -> None:
    text = await gateway.id_of()
    page = {"object": "list", "data": [text_item("x")], "first_id": "msg_1", "last_id": "msg_1"}
    gateway.upstream.answer_with(respond({**page, "has_more": True}))
    headers = {"authorization": f"Bearer {KEY}"}

    observed: list[Json] = []
    path = f"/v1/responses/{text}/input_items"
    for value_after in ("", "the last", "msg_own"):
        after = observed[0]["last_id"] if value_after == "the last" else value_after
        query = {"after": after} if after else {}
        async with gateway.session.get(path, headers=headers, params=query) as response_item:
            observed.append(await response_item.json())

    last_value = observed[0]["last_id"]
    assert last_value != "msg_1"
    assert {observed[0]["first_id"], observed[0]["data"][0]["id"]} == {last_value}
    paths = [request.path.partition("?")[2] for request in gateway.upstream.requests[1:]]
    assert paths == ["", "after=msg_1", "after=msg_own"]
