"""A shared answer repeats the request of the call that gets it."""

from __future__ import annotations

from proxy.cache.echo import for_call
from proxy.types import Call, Json, RequestHead
from proxy.types.events import Frame, Start
from tests.for_each import for_each

ANNA: Json = {"user": "anna", "metadata": {"for": "anna"}, "safety_identifier": "safe-anna"}
BERTHA: Json = {"user": "bertha", "metadata": {"for": "bertha"}, "safety_identifier": "safe-bertha"}
NOBODY: Json = {"user": None, "metadata": {}, "safety_identifier": None}
RESPONSE: Json = {"id": "resp_1", "object": "response", "output": []}


def call(body: Json) -> Call:
    return Call(RequestHead("openai", "responses", "/v1/responses", "req_1"), body)


@for_each(("body", "repeated"), [(BERTHA, BERTHA), ({}, NOBODY)])
def test_responses_repeat_the_request_of_the_call(body: Json, repeated: Json) -> None:
    whole = Frame((Start("resp_1", "m", 1),), "responses", RESPONSE | ANNA, b"anna")
    event = whole._replace(doc={"type": "response.created", "response": RESPONSE | ANNA})

    assert for_call(whole, call(body)) == whole._replace(doc=RESPONSE | repeated, raw=None)
    changed = {"type": "response.created", "response": RESPONSE | repeated}
    assert for_call(event, call(body)) == whole._replace(doc=changed, raw=None)


def test_events_without_the_response_stay() -> None:
    delta = Frame((), "responses", {"type": "response.output_text.delta", "delta": "a"}, b"raw")

    assert for_call(delta, call(BERTHA)) is delta
    assert for_call(Frame((), "chat", {"object": "response"}), call(BERTHA)).doc is not None
    assert for_call(Frame(()), call(BERTHA)) == Frame(())
