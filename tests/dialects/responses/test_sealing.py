"""Ids are sealed for one key, deployment and target. Forged ids do not open."""

from __future__ import annotations

import re
from base64 import urlsafe_b64decode
from itertools import product
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.app import telemetry
from proxy.dialects.responses.sealing import ITEMS, MAX_SEALED_LENGTH, DocumentSealer, IdSealer
from proxy.dialects.responses.state_refs import (
    replace_short_item_ids,
    resolve_response_id,
    resolve_state_refs,
)
from proxy.errors import NotFound
from proxy.settings import Address, Settings, from_environment
from proxy.telemetry.metrics import Metrics
from proxy.types import Call, RequestHead, StateRef
from tests.doubles import Json, response, text_item
from tests.for_each import for_each

NEW, OLD = "a secret of replicas", "the secret of before"
IDS = IdSealer.from_secrets([NEW])
STORED_AT = ("support-chat", "openai/gpt-4o-mini")
PLACE = ("support-widget", *STORED_AT)
SEALED = IDS.seal(*PLACE, "resp_1")
HEAD = RequestHead("openai", "responses", "/v1/responses", "r")


def call_with_ids(previous: object, ids: IdSealer | None = IDS, key: str = PLACE[0]) -> Call:
    body: Json = {"model": "m", "previous_response_id": previous}
    return resolve_response_id(Call(HEAD, body, requested_models=("m",), scheduling_key=key), ids)


@given(st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._:=-]{0,300}", fullmatch=True), st.text(max_size=99))
def test_sealed_id_opens_only_for_its_key(native_id: str, key: str) -> None:
    sealed = IDS.seal(key, *STORED_AT, native_id)

    assert sealed.startswith("resp_")
    assert sealed == IDS.seal(key, *STORED_AT, native_id)
    assert IDS.open(sealed, key) == StateRef(sealed, *STORED_AT, native_id)
    assert IDS.open(sealed, key + "x") is None


def test_sealed_id_depends_on_each_part_and_hides_all() -> None:
    key, deployment, target = PLACE
    other_item = [("other", deployment, target), (key, "other", target), (key, deployment, "other")]
    places = product((PLACE, *other_item), ("resp_1", "resp_2"))
    result = {IDS.seal(*place, own_value) for place, own_value in places}

    assert len(result) == 8
    assert not any(text[5:21] == two[5:21] for text in result for two in result - {text})
    for name in result:
        raw = urlsafe_b64decode(name[5:] + "==")
        assert not any(word.encode() in raw for word in (*PLACE, "resp_1"))


@given(st.data())
def test_changed_character_does_not_open(data: st.DataObject) -> None:
    index = data.draw(st.integers(0, len(SEALED) - 1))
    other_text = data.draw(st.characters(codec="utf-8").filter(lambda c: c != SEALED[index]))

    assert IDS.open(SEALED[:index] + other_text + SEALED[index + 1 :], PLACE[0]) is None
    assert IDS.open(SEALED[:index], PLACE[0]) is None


@for_each(
    "text",
    ["", "resp_", "resp_1", "resp_" + "A" * 24, "resp_" + "A" * 60_000, "msg_" + SEALED[5:]]
    + [SEALED + end for end in ("=", "==", "A", "\n", " ")]
    + ["resp_\ud800" + "A" * 40, "resp_" + "é" * 40, SEALED.upper()],
)
def test_arbitrary_text_does_not_open(text: str) -> None:
    assert IDS.open(text, PLACE[0]) is None


def decoded(sealed: str) -> bytes:
    return urlsafe_b64decode(sealed[5:] + "=" * (-(len(sealed) - 5) % 4))


def test_other_spellings_of_the_same_bytes_do_not_open() -> None:
    places = [(*PLACE[:2], "t" * size) for size in range(3)]
    for sealed in [IDS.seal(*place, "resp_1") for place in places]:
        raw = decoded(sealed)
        letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
        other_items = [sealed[:-1] + letter for letter in letters if sealed[-1] != letter]
        equivalents = [text for text in other_items if decoded(text) == raw]
        assert len(raw) % 3 == 0 or equivalents
        assert [letter for letter in equivalents if IDS.open(letter, PLACE[0])] == []


def test_old_secret_opens_but_does_not_seal() -> None:
    ids, ids_before = IdSealer.from_secrets([NEW, OLD]), IdSealer.from_secrets([OLD])
    given_before = ids_before.seal(*PLACE, "resp_1")

    opened = ids.open(given_before, PLACE[0])

    assert opened == StateRef(given_before, *STORED_AT, "resp_1")
    assert ids.seal(*PLACE, "resp_1") == SEALED
    assert IDS.open(given_before, PLACE[0]) is None


@for_each("own_text", ["", ".", "..", "../x", "a/b", "a b", "é", "x" * 2000, "a\n"])
def test_other_texts_are_not_sealed(own_text: str) -> None:
    assert IDS.seal(*PLACE, own_text) == own_text


def test_id_with_too_long_names_is_not_sealed() -> None:
    assert IDS.seal("k", "d", "t" * MAX_SEALED_LENGTH, "resp_1") == "resp_1"


def test_repr_hides_secret_and_provider_id() -> None:
    assert NEW not in repr(IDS)
    assert "resp_1" not in repr(IDS.open(SEALED, PLACE[0]))


def test_documents_and_events_get_sealed_ids() -> None:
    place = DocumentSealer(IDS, *PLACE)
    document = response(previous_response_id="resp_0", conversation=None)

    result = place.seal(document)

    items = [text_item(" Paris.", IDS.seal(*PLACE, "msg_1", kind=ITEMS))]
    sealed = {"id": SEALED, "previous_response_id": IDS.seal(*PLACE, "resp_0"), "output": items}
    assert result == {**document, **sealed}
    event = {"type": "response.completed", "response": document}
    assert place.seal(event) == {**event, "response": result}
    delta = {"type": "response.output_text.delta", "item_id": "msg_1", "delta": "resp_1"}
    by_name = {**delta, "item_id": IDS.seal(*PLACE, "msg_1", kind=ITEMS)}
    assert place.seal(delta) == by_name
    odd = {"output": [], "id": 7, "previous_response_id": None}
    assert place.seal(odd) is None


def test_previous_response_id_is_returned_sealed() -> None:
    old = IdSealer.from_secrets([OLD]).seal(*PLACE, "resp_0")
    ids = IdSealer.from_secrets([NEW, OLD])
    pin = ids.open(old, PLACE[0])
    place = DocumentSealer(ids, *PLACE, state_ref=pin)

    document = place.seal(response(previous_response_id="resp_0"))

    assert document is not None
    assert (document["id"], document["previous_response_id"]) == (SEALED, old)


def test_call_goes_to_the_target_of_its_id() -> None:
    call = call_with_ids(SEALED)

    assert call.state_ref == StateRef(SEALED, *STORED_AT, "resp_1")
    assert (call.deployment, call.body) == ("support-chat", {"model": "m"})


@for_each("text", ["", "resp_1", SEALED[:-1], "x" * 100_000])
def test_unknown_id_is_not_found(text: str) -> None:
    with pytest.raises(NotFound) as refused:
        call_with_ids(text)
    words = f"Previous response with id '{text[:200]}' not found."
    assert str(refused.value).startswith(words)
    assert ("are not stored" in str(refused.value)) == text.startswith("x")
    assert refused.value.param == "previous_response_id"


def test_id_of_another_key_has_the_same_error() -> None:
    forged = SEALED[:-1] + ("A" if SEALED[-1] != "A" else "B")
    with pytest.raises(NotFound) as unknown:
        call_with_ids(forged)
    with pytest.raises(NotFound) as other_info:
        call_with_ids(SEALED, key="search-box")
    assert str(other_info.value).replace(SEALED, forged) == str(unknown.value)


ROTATION = [
    {"SECRET": OLD},
    {"SECRET": OLD, "SECRETS_ACCEPTED": NEW},
    {"SECRET": NEW, "SECRETS_ACCEPTED": OLD},
]
"""The documented steps, but for the last, after which old ids are given up."""


def replica(step: int) -> Settings:
    environ = {f"HEADRACE_{name}": value for name, value in ROTATION[step].items()}
    address = Address("127.0.0.1", 0)
    return from_environment(Path("p"), address, address, environ)


@for_each("step", range(1, len(ROTATION)))
def test_every_replica_opens_ids_during_rotation(step: int) -> None:
    """During each step of a rotation every replica opens the ids of all replicas and steps."""
    sealers = [IdSealer.from_secrets(replica(n).id_secrets) for n in range(step + 1)]
    sealed = [sealer.seal(*PLACE, "resp_1") for sealer in sealers]

    for sealer, text in product(sealers[-2:], sealed):
        assert sealer.open(text, PLACE[0]) == StateRef(text, *STORED_AT, "resp_1")


def test_fingerprints_differ_by_secret_and_reveal_none() -> None:
    metrics = [Metrics("1") for _ in ROTATION]
    for step, metric in enumerate(metrics):
        telemetry.set_secret_fingerprints(metric, replica(step))
    label = re.compile(r'headrace_secret_info\{fingerprint="(\w+)",use="(\w+)"\}')
    texts = [metric.render()[0].decode() for metric in metrics]

    steps = [{use: output for output, use in label.findall(text)} for text in texts]
    assert steps[0]["ids"] == steps[1]["ids"] != steps[2]["ids"]
    assert steps[0]["accepted"] != steps[1]["accepted"] == steps[2]["accepted"]
    assert all(len(fingerprint) == 8 for step in steps for fingerprint in step.values())


THOUGHT: Json = {"id": "rs_1", "type": "reasoning", "summary": []}
CALL: Json = {
    **{"id": "fc_1", "type": "function_call", "call_id": "call_1", "status": "completed"},
    **{"name": "look_up", "arguments": '{"city": "Paris"}'},
}


OTHER_ID = IDS.seal("search-box", *STORED_AT, "rs_" + "0af1" * 12, kind=ITEMS)
FOREIGN = ["rs_" + "0af1" * 12, OTHER_ID, "rs_9", "item_0", "item_1", "__fake_id__", "x" * 9_999]


def restored_items(*items: Json, caller: str = PLACE[0]) -> list[Json]:
    call = Call(HEAD, {"model": "m", "input": [*items]}, scheduling_key=caller)
    call = resolve_state_refs(call, IDS)
    results: list[Json] = replace_short_item_ids(call.body["input"], call.item_ids)
    return results


@for_each("text", [*FOREIGN, "é", "\ud800", " "])
def test_foreign_id_is_replaced(text: str) -> None:
    own_value = {**CALL, "id": IDS.seal(*PLACE, "fc_1", kind=ITEMS)}

    foreign = {**THOUGHT, "id": text}
    thought, calls, repeated = restored_items(foreign, own_value, foreign)

    assert calls == CALL
    assert thought == repeated == {**THOUGHT, "id": thought["id"]}
    assert thought["id"] != text
    assert len(thought["id"]) <= 64
    assert thought["id"].startswith("rs_" if text.startswith("rs_") else "item_")
    assert thought == restored_items(foreign)[0]
    assert thought != restored_items(foreign, caller="search-box")[0]


def test_encrypted_item_loses_foreign_id() -> None:
    thought = {**THOUGHT, "encrypted_content": "gAAA"}
    excluded = {name: value for name, value in thought.items() if name != "id"}
    own_value = {**thought, "id": IDS.seal(*PLACE, "rs_1", kind=ITEMS)}

    restored = restored_items({**thought, "id": OTHER_ID}, thought, own_value)
    assert restored == [excluded, excluded, thought]


def test_empty_id_is_unchanged() -> None:
    assert restored_items({**CALL, "id": ""}) == [{**CALL, "id": ""}]
