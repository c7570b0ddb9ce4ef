"""A call without guards passes as it is; one with any of them meets its gate."""

from __future__ import annotations

import pytest

from proxy.app.context import new_record
from proxy.guards.engine import Engine
from proxy.guards.run import CallGate, PolicyGuards
from proxy.guards.unguarded import GuardsOnDemand, OpenGate
from proxy.types import Call, Head, Plan, RequestHead
from proxy.types.events import Frame
from proxy.types.guard import Capture, Guarding
from tests.guards.doubles import Ticks, rule

HEAD = RequestHead("openai", "chat", "/v1/chat/completions", "req_1")
CALL = Call(HEAD, {"messages": [{"role": "user", "content": "Hi"}]})
GUARDS = GuardsOnDemand(lambda: PolicyGuards(Engine(Ticks())))


def planned(guards: Guarding) -> Plan:
    return Plan("1", "k", "d", {}, (), guards=guards)


def test_guards_are_made_once_a_call_has_some() -> None:
    made: list[PolicyGuards] = []

    def make() -> PolicyGuards:
        made.append(PolicyGuards(Engine(Ticks())))
        return made[-1]

    guards = GuardsOnDemand(make)
    guards.gate(planned(Guarding()), CALL, new_record())
    assert made == []

    for _ in range(2):
        guards.gate(planned(Guarding(input=(rule("hippo"),))), CALL, new_record())
    assert len(made) == 1


async def test_what_no_guard_looks_at_passes_as_it_is() -> None:
    plan, frame = planned(Guarding()), Frame((), "chat", {"choices": []}, b'{"choices": []}')
    gate = GUARDS.gate(plan, CALL, new_record())
    watch = gate.watch(CALL, Head(streamed=False))

    assert isinstance(gate, OpenGate)
    assert await gate.inspect() == (plan, CALL)
    assert await watch.feed(frame) == (frame,)
    assert (watch.again, watch.cut()) == (False, ())


@pytest.mark.parametrize(
    "guards",
    [
        Guarding(input=(rule("hippo"),)),
        Guarding(output=(rule("hippo"),)),
        Guarding(capture=Capture(1.0)),
    ],
    ids=["input", "output", "capture"],
)
def test_what_somebody_looks_at_has_a_gate_of_its_own(guards: Guarding) -> None:
    assert isinstance(GUARDS.gate(planned(guards), CALL, new_record()), CallGate)


async def test_a_clean_question_is_not_copied() -> None:
    gate = GUARDS.gate(planned(Guarding(input=(rule("hippo"),))), CALL, new_record())

    _, safe = await gate.inspect()

    assert safe is CALL
