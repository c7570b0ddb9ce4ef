"""Billing of background responses, over sockets."""

from __future__ import annotations

import asyncio
import re
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from proxy.call.summary import summarize
from proxy.ledger.audit import audit
from proxy.settings import LedgerLocation
from tests.conftest import KEY
from tests.dialects.test_stored_state import OTHER_KEY, StatefulProxy, policy, stateful_proxy
from tests.doubles import Json, ScriptedUpstream, respond, response, text_item

PRICED = 11_000  # nano-USD: 5 tokens at 1,000 and 3 at 2,000
BUDGET_POLICIES = """policies:
  stopping: {output: [{guard: keywords, words: [classified], action: block}]}
  retrying: {output: [{guard: keywords, words: [classified], action: retry}]}
  spent:
    limits: [{name: money, usd: 0.00001 per month}, {name: tokens, tokens: 1000 per day}]
"""
LIMITED = """deployments:
  limited:
    targets: [{upstream: openai, model: costly, price: {input: 1, output: 2}}]
    policy: spent
  stopped:
    targets: [{upstream: openai, model: stopped, price: {input: 1, output: 2}}]
    policy: stopping
  again:
    targets: [{upstream: openai, model: again, price: {input: 1, output: 2}}]
    policy: retrying
  by-responses:
    targets: [{upstream: openai, model: by-responses, endpoint: responses}]
  strict:
    targets: [{upstream: strict, model: strict, price: {input: 1, output: 2}}]
"""
STRICT = """upstreams:
  strict: {dialect: openai, base_url: 'http://127.0.0.1:9/v1', refuse: [background]}
"""


def background_response(status: str = "completed", **fields: Any) -> Json:
    return response(status=status, background=True, **fields)


QUEUED = background_response("queued", output=[], usage=None)
RUNNING = background_response("in_progress", output=[], usage=None)
SORRY = {"code": "server_error", "message": "Sorry."}
DELETED: Json = {"id": "resp_1", "object": "response", "deleted": True}
NO_MORE: Json = {"error": {"message": "Response with id 'resp_1' not found."}}
GET, CANCEL, DELETE, ITEMS = (
    ("GET", ""),
    ("POST", "/cancel"),
    ("DELETE", ""),
    ("GET", "/input_items"),
)
Step = tuple[tuple[str, str], Json, int]
CROSSINGS: dict[str, tuple[Json, int, list[Step]]] = {
    "read twice after its end": (QUEUED, 0, [(GET, RUNNING, 0),
        (GET, background_response(), PRICED), (GET, background_response(), 0)]),
    "partial usage while it is made": (QUEUED, 0,
        [(GET, background_response("in_progress"), 0), (GET, background_response(), PRICED)]),
    "cancelled": (QUEUED, 0, [(CANCEL, background_response("cancelled"), PRICED),
        (GET, background_response("cancelled"), 0)]),
    "cancelled before it began": (QUEUED, 0,
        [(CANCEL, background_response("cancelled", usage=None), 0),
        (GET, background_response("cancelled", usage=None), 0)]),
    "failed": (QUEUED, 0, [(GET, background_response("failed", error=SORRY), PRICED),
        (GET, background_response("failed"), 0)]),
    "incomplete": (QUEUED, 0, [(GET, background_response("incomplete"), PRICED)]),
    "deleted before it was read": (QUEUED, 0, [(DELETE, DELETED, 0), (GET, NO_MORE, 0)]),
    "its input first": (QUEUED, 0,
        [(ITEMS, {"object": "list", "data": []}, 0), (GET, background_response(), PRICED)]),
    "finished at once": (background_response(), PRICED, [(GET, background_response(), 0)]),
    "not in the background after all": (response(), PRICED, [(GET, response(), 0)]),
}  # fmt: skip


@dataclass
class Asker:
    stateful_proxy: StatefulProxy
    response_id: str = ""
    ids: list[str] = field(default_factory=list)
    headers: dict[str, str] = field(default_factory=dict)

    async def begin(self, document: Json, **fields: Any) -> int:
        self.stateful_proxy.upstream.answer_with(respond(document))
        status, body = await self.stateful_proxy.ask(background=True, **fields)
        self.response_id = body.get("id", "")
        return status

    async def about(
        self, document: Json, way: tuple[str, str] = GET, key: str = KEY
    ) -> tuple[int, Json]:
        self.stateful_proxy.upstream.answer_with(
            respond(document, 404 if document is NO_MORE else 200)
        )
        path = f"/v1/responses/{self.response_id}{way[1]}"
        status, body, self.headers = await self.stateful_proxy.send(path, way[0], key=key)
        return status, body

    async def records(self, count: int) -> list[Any]:
        return await self.stateful_proxy.proxy.sink.wait(count)


@pytest.fixture
async def asker(upstream: ScriptedUpstream, tmp_path: Path) -> AsyncIterator[Asker]:
    policy_text = policy(upstream.url).replace("policies:\n", BUDGET_POLICIES)
    policy_text = policy_text.replace("deployments:\n", LIMITED).replace("upstreams:\n", STRICT)
    policy_text = policy_text.replace(
        "chatting]", "chatting, limited, stopped, again, strict, by-responses]"
    )
    async with stateful_proxy(tmp_path / "policies", upstream, policy_text) as running:
        yield Asker(running)


@pytest.mark.parametrize("crossing", [*CROSSINGS.values()], ids=[*CROSSINGS])
async def test_first_read_of_the_end_is_charged(
    crossing: tuple[Json, int, list[Step]], asker: Asker
) -> None:
    first_document, cost, steps = crossing

    assert await asker.begin(first_document) == 200
    outputs = []
    for way, document, _ in steps:
        status, body = await asker.about(document, way)
        assert status == (404 if document is NO_MORE else 200)
        if "status" in document:
            assert (body["status"], body["usage"]) == (document["status"], document["usage"])
            outputs.append(asker.headers["x-headrace-cost-usd"])

    records = await asker.records(1 + len(steps))
    assert [record.billing.cost for record in records] == [cost, *(item[2] for item in steps)]
    charged = [record for record in records if record.billing.bills]
    assert len(charged) <= 1
    for record in charged:
        assert record.billing.tokens.total == 8
        assert record.billing.usage_source == "provider"
    for record in records:
        [attempt] = record.attempts
        if attempt.response_id is not None:
            assert attempt.response_id == asker.response_id
    assert [text != "0" for text in outputs] == [
        bool(item[2]) for item in steps if "status" in item[1]
    ]


async def test_end_without_usage_is_estimated_once(asker: Asker) -> None:
    await asker.begin(QUEUED)
    for _ in range(2):
        await asker.about(
            background_response(usage=None, output=[text_item("Paris it is, my dear.")])
        )

    [_, first_value, second] = await asker.records(3)
    assert first_value.billing.usage_source == "partial_estimate"
    assert first_value.billing.cost > 0
    assert second.billing.cost == 0


async def test_failed_response_is_a_loss_by_its_upstream(asker: Asker) -> None:
    await asker.begin(QUEUED)
    status, body = await asker.about(background_response("failed", error=SORRY))

    [_, record] = await asker.records(2)
    [billed] = summarize(record).attempts
    assert (status, body["error"]["code"], record.outcome) == (200, "server_error", "success")
    assert (billed.result.use, billed.result.loss) == ("abandoned", "upstream_broke")
    assert billed.attempt.error == "upstream_unavailable"


async def test_immediately_finished_response_is_billed_to_its_creator(asker: Asker) -> None:
    for _ in range(2):
        # A server that gives all responses the same id.
        assert await asker.begin(background_response()) == 200
    await asker.about(background_response())

    records = await asker.records(3)
    assert [record.billing.cost for record in records] == [PRICED, PRICED, 0]


async def test_blocked_response_is_billed_once(asker: Asker) -> None:
    await asker.begin(QUEUED, model="stopped")
    secret = background_response(output=[text_item("It is classified.")])
    statuses = [(await asker.about(secret))[0] for _ in range(2)]

    _, first_value, second = await asker.records(3)
    assert statuses == [400, 400]
    assert [record.outcome for record in (first_value, second)] == ["blocked"] * 2
    assert [record.billing.cost for record in (first_value, second)] == [PRICED, 0]
    assert summarize(first_value).attempts[0].result.use == "blocked"


async def test_response_with_guard_retry_is_billed_once(asker: Asker) -> None:
    await asker.begin(QUEUED, model="again")
    asker.stateful_proxy.upstream.then(
        respond(background_response(output=[text_item("It is classified.")]))
    )
    for _ in range(2):
        await asker.about(background_response())

    records = await asker.records(3)
    assert [record.billing.cost for record in records] == [0, PRICED, 0]


async def test_one_of_concurrent_readers_is_charged(asker: Asker) -> None:
    await asker.begin(QUEUED)

    await asyncio.gather(*(asker.about(background_response()) for _ in range(8)))

    records = await asker.records(9)
    assert sorted(record.billing.cost for record in records) == [0] * 8 + [PRICED]


async def test_other_key_gets_no_response_and_no_charge(asker: Asker) -> None:
    await asker.begin(QUEUED)

    status, _ = await asker.about(background_response(), key=OTHER_KEY)
    own_count, _ = await asker.about(background_response())

    records = await asker.records(3)
    assert (status, own_count) == (404, 200)
    assert [record.billing.cost for record in records] == [0, 0, PRICED]


async def test_exhausted_budget_bills_running_and_refuses_new_responses(asker: Asker) -> None:
    body: Json = {"model": "costly", "max_output_tokens": 1}
    for name in ("resp_1", "resp_2"):  # running responses hold no reservation
        assert await asker.begin({**QUEUED, "id": name}, **body) == 200
        asker.ids.append(asker.response_id)

    for asked_so_far, (index, cost) in enumerate(((0, PRICED), (1, PRICED), (0, 0)), 3):
        asker.response_id = asker.ids[index]
        document = background_response(id=("resp_1", "resp_2")[index])
        assert (await asker.about(document))[0] == 200
        record = (await asker.records(asked_so_far))[-1]
        charged = [("money", cost)] if cost else []
        assert [(charge.budget, charge.cost) for charge in record.charges] == charged
    assert await asker.begin(QUEUED, **body) == 429


async def test_charged_call_counts_the_tokens(asker: Asker) -> None:
    await asker.begin(QUEUED, model="costly", max_output_tokens=1)
    used = []
    for _ in range(3):
        await asker.about(background_response())
        used.append(1000 - int(asker.headers["x-ratelimit-remaining-tokens"]))

    assert (used[0], used[1]) == (0, 8)  # headers show the limits at the start of the call
    assert used[2] in (7, 8)


async def test_background_responses_are_neither_cached_nor_hedged(asker: Asker) -> None:
    for model in ("keeper", "primary"):  # with a cache, and with a hedge after 1 ms
        requests_before = len(asker.stateful_proxy.upstream.requests)
        for _ in range(2):
            assert await asker.begin(QUEUED, model=model) == 200
        assert len(asker.stateful_proxy.upstream.requests) == requests_before + 2

    records = await asker.records(4)
    assert {record.cache for record in records} == {"bypass"}
    assert [len(record.attempts) for record in records] == [1] * 4


@pytest.mark.parametrize(
    "options",
    [
        {"stream": True},
        {"store": False},
        {"conversation": {"id": "conv_1"}},
        {"model": "chatter"},
        {"model": "strict"},
        {"background": "yes"},
    ],
)
async def test_background_field_is_refused_if_unreadable_later(options: Json, asker: Asker) -> None:
    status, body = await asker.stateful_proxy.ask(**{"background": True, **options})

    assert (status, body["error"]["param"]) == (400, "background"), body
    assert asker.stateful_proxy.upstream.requests == []


async def test_chat_clients_may_not_request_background(asker: Asker) -> None:
    messages = [{"role": "user", "content": "Go on."}]
    body = {"model": "by-responses", "messages": messages, "background": True}

    status, document, _ = await asker.stateful_proxy.send("/v1/chat/completions", "POST", body)

    assert (status, document["error"]["param"]) == (400, "background"), document
    assert asker.stateful_proxy.upstream.requests == []


async def test_missing_secret_setting_is_named(upstream: ScriptedUpstream, tmp_path: Path) -> None:
    async with stateful_proxy(tmp_path / "one", upstream, id_secrets=()) as bare:
        status, body = await bare.ask(background=True)

    assert (status, body["error"]["param"]) == (400, "background")
    assert "HEADRACE_SECRET" in body["error"]["message"]
    assert upstream.requests == []


async def test_ledger_finds_cost_by_id(upstream: ScriptedUpstream, tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    policy_text, stored = policy(upstream.url), LedgerLocation("sqlite", path)
    async with stateful_proxy(
        tmp_path / "policies", upstream, policy_text, ledger=stored
    ) as running:
        asker = Asker(running)
        for name in ("resp_1", "resp_2", "resp_3"):
            await asker.begin({**QUEUED, "id": name})
        await asker.about(RUNNING | {"id": "resp_3"})
        for _ in range(2):
            await asker.about(background_response(id="resp_3"))
        upstream.answer_with(respond(response()))
        await running.ask()

    page = (Path(__file__).parents[2] / "docs" / "ledger.md").read_text()
    query = re.search(r"(SELECT begun.*?;)", page, re.DOTALL)
    assert query is not None
    with closing(sqlite3.connect(path)) as ledger:
        result = [row[1:] for row in ledger.execute(query[1])]
    assert audit(path).violations == ()
    assert [key for key, _ in result] == ["support-widget"] * 3
    assert sorted(cost or 0 for _, cost in result) == [0, 0, 1.1e-05]
