"""Internal calls of guards: their request, and their response or error."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.call.record import new_record
from proxy.egress import InternalExchange
from proxy.errors import InvalidField, LimitExceeded, UpstreamInvalid
from proxy.types import RequestHead, ResponseHead
from proxy.types.events import STOP, Frame
from tests.doubles import chat
from tests.for_each import for_each

HEAD = RequestHead(
    "openai", "chat", "guard", "req_2", deployment="judge-smol", internal_key="guard/house"
)
BODY = {"messages": [{"role": "user", "content": "Is it?"}]}


async def test_guard_call_names_the_deployment() -> None:
    exchange = InternalExchange(HEAD, BODY)
    call = await exchange.read_call(exchange.read_head())

    assert (call.head, call.requested_models, call.stream) == (HEAD, ("judge-smol",), False)
    assert call.body["messages"] == BODY["messages"]
    assert exchange.is_disconnected
    with pytest.raises(InvalidField):
        await InternalExchange(HEAD, {"messages": []}).read_call(HEAD)


async def test_response_is_its_first_choice() -> None:
    exchange, record = InternalExchange(HEAD, BODY), new_record()
    await exchange.read_call(HEAD)
    await exchange.start(ResponseHead(streamed=False), record)
    await exchange.send([Frame((STOP,), "chat", chat("It is."), last=True)])

    assert exchange.text() == "It is."
    assert record.status == 200
    assert record.first_sent is not None


@for_each("fields", [None, {}, {"choices": []}, {"choices": [{}]}, chat(["x"])])  # type: ignore[arg-type]
async def test_response_without_text_is_invalid(fields: Any) -> None:
    exchange = InternalExchange(HEAD, BODY)
    await exchange.read_call(HEAD)
    await exchange.start(ResponseHead(streamed=False), new_record())
    await exchange.send([Frame((STOP,), "chat", fields, last=True)])

    with pytest.raises(UpstreamInvalid):
        exchange.text()


async def test_refusal_is_raised() -> None:
    exchange, record = InternalExchange(HEAD, BODY), new_record()
    await exchange.send_error(LimitExceeded("No.", "two", "requests", 1.0), record)

    with pytest.raises(LimitExceeded):
        exchange.text()
    assert record.status == 429
