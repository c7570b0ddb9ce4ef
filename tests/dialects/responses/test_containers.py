"""Ids of containers: sealed wherever they stand in answers, opened in tools, items and paths that
are passed on, for the key that was given them, at the upstream that has them."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from proxy.dialects.responses import containers
from tests.conftest import KEY
from tests.dialects.test_leaning import OTHER, SECRET, House, house, policy
from tests.doubles import (
    Json,
    ScriptedUpstream,
    answer,
    item_events,
    response,
    response_events,
    stream,
    text_item,
)
from tests.for_each import for_each

OWN = "cntr_" + "0af1" * 12
CITED: Json = {"type": "container_file_citation", "container_id": OWN}
RAN: Json = {
    **{"id": "ci_1", "type": "code_interpreter_call", "status": "completed"},
    **{"code": "1 + 1", "container_id": OWN, "outputs": []},
}
SHELL: Json = {
    **{"id": "sh_1", "type": "shell_call", "call_id": "call_1", "status": "completed"},
    "environment": {"type": "container_reference", "container_id": OWN},
}
SPOKEN = text_item("See the file.")
SPOKEN["content"][0]["annotations"] = [CITED]
TOOLS: list[Json] = [
    {"type": "code_interpreter", "container": OWN},
    {"type": "shell", "environment": {"type": "container_reference", "container_id": OWN}},
]
WHOLE = response(RAN, SHELL, SPOKEN, tools=TOOLS[:1])
PLACES = (containers.in_item, RAN), (containers.in_item, SHELL), (containers.in_item, SPOKEN)
LISTED = """    passthrough:
      - {path: '/v1/containers/{id}/files/{file}', methods: [GET]}
      - /v1/anything
"""


def replaced(value: Any, old: str, new: str) -> Any:
    return json.loads(json.dumps(value).replace(old, new))


@for_each(("within", "value"), [*PLACES, *((containers.in_tool, t) for t in TOOLS)])
def test_each_place_is_changed_and_told(within: containers.Within, value: Json) -> None:
    told: list[str] = []

    def change(text: str, place: str) -> str:
        told.append(place)
        return "other"

    assert within(value, change, "x") == replaced(value, OWN, "other")
    assert [place.partition(".")[0] for place in told] == ["x"]
    assert within(value, lambda text, place: text, "x") is value


@for_each(
    "value",
    [
        {},
        {"container_id": 1, "environment": "x", "content": "x"},
        {"content": [1, {"annotations": {}}, {"annotations": ["x", {}]}], "environment": {}},
        {"container": {"type": "auto"}},
    ],
)
def test_what_has_none_is_the_very_same(value: Json) -> None:
    for within in (containers.in_item, containers.in_tool):
        assert within(value, lambda text, place: "other", "") is value
    assert containers.beside_items({"tools": [value], "part": value}, lambda *_: "other") == {}


@pytest.fixture
async def there(upstream: ScriptedUpstream, tmp_path: Path) -> AsyncIterator[House]:
    upstream.answer_with(answer(response()))
    upper, sep, rest = policy(upstream.url).partition("  resilient:\n")
    async with house(tmp_path / "policies", upstream, upper + LISTED + sep + rest) as running:
        yield running


async def sealed(there: House, **more: Any) -> tuple[str, Json]:
    """Return the id of a container as its client gets it, and the answer it stands in."""
    there.upstream.then(answer(WHOLE))
    auto = {"type": "code_interpreter", "container": {"type": "auto"}}
    status, whole = await there.ask(tools=[auto], **more)
    assert status == 200, whole
    return str(whole["output"][0]["container_id"]), whole


@pytest.mark.parametrize("store", [True, False])
async def test_an_answer_has_the_sealed_id_wherever_it_says_it(store: bool, there: House) -> None:
    events = response_events(item_events(0, SPOKEN, "See the ", "file."), whole=WHOLE)
    added = {"type": "response.output_text.annotation.added", "annotation": CITED}
    events.insert(5, {**added, "item_id": "msg_1", "output_index": 0, "content_index": 0})
    there.upstream.then(answer(WHOLE), stream(events, done=False))

    _, whole = await there.ask(store=store)
    _, streamed = await there.ask(store=store, stream=True)

    given = whole["output"][0]["container_id"]
    assert given.startswith("cntr_")
    assert len(given) <= 128  # or guards take it for a text
    for each in (whole, streamed):
        text = json.dumps(each)
        assert OWN not in text
        assert text.count(given) >= 4 - ("events" in each)
    assert any(
        each.get("annotation", {}).get("container_id") == given for each in streamed["events"]
    )


@pytest.mark.parametrize("to", ["gpt-4o-mini", "watched"])
async def test_its_key_uses_it_again_in_tools_and_items(to: str, there: House) -> None:
    given, whole = await sealed(there, model=to)
    tools = replaced(TOOLS, OWN, given)

    status, body = await there.ask(model=to, tools=tools, input=[*whole["output"]])

    assert status == 200, body
    asked = there.last.json
    assert asked["tools"] == TOOLS
    assert given not in json.dumps(asked)
    assert [item["id"] for item in asked["input"]] == ["ci_1", "sh_1", "msg_1"]
    assert asked["input"][0]["container_id"] == OWN
    assert asked["input"][2]["content"][0]["annotations"] == [CITED]


async def test_nobody_else_uses_it(there: House) -> None:
    given, _ = await sealed(there)
    forged = given[:-1] + ("A" if given[-1] != "A" else "B")
    asked = len(there.upstream.requests)

    for key, text in ((OTHER, given), (KEY, forged), (KEY, OWN)):
        for tools in replaced([[tool] for tool in TOOLS], OWN, text):
            status, body = await there.ask(key=key, tools=tools)
            assert (status, body["error"]["param"].partition("[")[0]) == (400, "tools"), body
    assert len(there.upstream.requests) == asked


async def test_a_call_goes_where_it_is_kept_or_nowhere(there: House) -> None:
    given, _ = await sealed(there)
    elsewhere, _ = await sealed(there, model="primary")
    tools = [{"type": "code_interpreter", "container": given}]

    other, found = await there.ask(model="primary", tools=tools)
    mixed, refused = await there.ask(
        tools=[*tools, {"type": "code_interpreter", "container": elsewhere}]
    )
    there.upstream.answer_with(answer({"error": {"message": "Later."}}, 503))
    asked = len(there.upstream.requests)
    failing, _ = await there.ask(tools=tools)

    assert (other, found["error"]["param"]) == (404, "tools.0.container")
    assert "Container with id" in found["error"]["message"]
    assert (mixed, refused["error"]["param"]) == (400, "tools.1.container")
    assert failing == 503
    assert {each.path for each in there.upstream.requests[asked:]} == {"/v1/responses"}


async def test_it_stands_beside_a_response_of_the_same_upstream(there: House) -> None:
    given, whole = await sealed(there)

    status, _ = await there.ask(
        previous_response_id=whole["id"], tools=[{"type": "code_interpreter", "container": given}]
    )

    assert status == 200
    assert there.last.json["previous_response_id"] == "resp_1"
    assert there.last.json["tools"] == TOOLS[:1]


async def test_a_path_that_is_passed_on_takes_it(there: House) -> None:
    given, _ = await sealed(there)
    headers = {"authorization": f"Bearer {KEY}"}
    there.upstream.answer_with(answer(b"\0" * 10, media_type="image/png"))
    path = f"/v1/containers/{given}/files/cfile_1"

    async with there.session.get(path, headers=headers) as got:
        assert (got.status, await got.read()) == (200, b"\0" * 10)
    assert there.last.path == f"/v1/containers/{OWN}/files/cfile_1"
    asked = len(there.upstream.requests)
    for key, other in ((OTHER, given), (KEY, OWN), (KEY, given[:-1])):
        headers = {"authorization": f"Bearer {key}"}
        path = f"/v1/containers/{other}/files/cfile_1"
        async with there.session.get(path, headers=headers) as got:
            error = (await got.json())["error"]
            assert got.status == 404
        assert error["message"] == f"Container with id '{other}' not found."
        assert error["param"] == "container_id"
    assert len(there.upstream.requests) == asked


@pytest.mark.parametrize("secrets", [(), (SECRET,)])
async def test_a_path_takes_any_id_where_none_is_sealed_or_all_are_of_one_tenant(
    secrets: tuple[str, ...], upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    upper, sep, rest = policy(upstream.url).partition("  resilient:\n")
    policies = upper + LISTED + sep + rest
    if secrets:
        said = "openai: {dialect: openai, accepts: ['tools[].container.id'],"
        policies = policies.replace("openai: {dialect: openai,", said)
    upstream.answer_with(answer(b"x", media_type="image/png"))
    async with house(tmp_path / "policies", upstream, policies, id_secrets=secrets) as there:
        path = f"/v1/containers/{OWN}/files/cfile_1"
        async with there.session.get(path, headers={"authorization": f"Bearer {KEY}"}) as got:
            assert got.status == 200
    assert there.last.path == path


RAW = [
    {"container": OWN},
    {"tools": TOOLS[:1]},
    {"tools": TOOLS[1:]},
    {"input": [RAN]},
    {"input": [SHELL]},
    {"previous_response_id": "resp_1"},
    {"conversation": "conv_1"},
    {"tools": [{"type": "file_search", "vector_store_ids": ["vs_1"]}]},
]


@pytest.mark.parametrize("body", RAW)
async def test_no_path_takes_a_body_with_what_is_kept_for_anybody(body: Json, there: House) -> None:
    asked, headers = len(there.upstream.requests), {"authorization": f"Bearer {KEY}"}

    async with there.session.post("/v1/anything", headers=headers, json=body) as got:
        status, refused = got.status, await got.json()

    assert status == 400, refused
    assert (
        "clients may not set this field, unless the upstream accepts" in refused["error"]["message"]
    )
    assert len(there.upstream.requests) == asked


@pytest.mark.parametrize(
    ("said", "status"),
    [
        ("refuse: ['tools[].container']", 400),
        ("refuse: [tools]", 400),
        ("accepts: ['tools[].container.id']", 200),
    ],
)
async def test_what_the_policy_says_of_containers_counts(
    said: str, status: int, upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    policies = policy(upstream.url).replace(
        "openai: {dialect: openai,", f"openai: {{dialect: openai, {said},"
    )
    async with house(tmp_path / "policies", upstream, policies) as there:
        upstream.answer_with(answer(WHOLE))
        _, whole = await there.ask()
        tools = [{"type": "code_interpreter", "container": whole["output"][0]["container_id"]}]
        got, body = await there.ask(tools=tools)

    assert got == status, body


async def test_ids_of_files_are_refused_unless_the_upstream_accepts_them(
    upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    said = "openai: {dialect: openai, accepts: ['input[].content[].file_id'],"
    policies = policy(upstream.url)
    upstream.answer_with(answer(response()))
    found = []
    for each in (policies, policies.replace("openai: {dialect: openai,", said)):
        async with house(tmp_path / "policies", upstream, each) as there:
            part = {"type": "input_file", "file_id": "file-1"}
            found.append(await there.ask(model="kept", input=[{"role": "user", "content": [part]}]))

    assert [status for status, _ in found] == [400, 200]
    assert found[0][1]["error"]["param"] == "input[].content[].file_id"


async def test_a_clients_own_names_of_items_are_never_those_of_containers(there: House) -> None:
    given, _ = await sealed(there)
    tool = {"type": "code_interpreter", "container": given}
    items = [{"role": "user", "content": "x", "id": f"item_{at}"} for at in range(3)]

    status, _ = await there.ask(input=items, tools=[tool])

    sent = {item["id"] for item in there.last.json["input"]}
    assert (status, len(sent)) == (200, 3)
    assert sent.isdisjoint({OWN, "item_0", "item_1", "item_2"})


async def test_a_large_question_has_it_opened_too(there: House) -> None:
    given, _ = await sealed(there)
    items = [{"role": "user", "content": "word " * 60_000}, {**RAN, "container_id": given}]

    status, body = await there.ask(input=items)

    assert status == 200, body
    assert there.last.json["input"][1]["container_id"] == OWN
