"""Guards are created for calls that have some. Other calls pass unchanged."""

from __future__ import annotations

import pytest

from proxy.call.record import new_record
from proxy.guards.engine import Engine
from proxy.guards.run import GuardedCall, PolicyGuards
from proxy.guards.unguarded import LazyGuards, NoCallGuards
from proxy.types import Call, Plan, RequestHead, ResponseHead
from proxy.types.events import Frame
from proxy.types.guard import Capture, GuardPlan
from tests.guards.doubles import Ticks, rule

HEAD = RequestHead("openai", "chat", "/v1/chat/completions", "req_1")
CALL = Call(HEAD, {"messages": [{"role": "user", "content": "Hi"}]})
GUARDS = LazyGuards(lambda: PolicyGuards(Engine(Ticks())))


def plan_with(guards: GuardPlan) -> Plan:
    return Plan("1", "k", "d", {}, (), guards=guards)


def test_guards_are_created_for_the_first_guarded_call() -> None:
    guardses: list[PolicyGuards] = []

    def make() -> PolicyGuards:
        guardses.append(PolicyGuards(Engine(Ticks())))
        return guardses[-1]

    guards = LazyGuards(make)
    guards.build_call_guards(plan_with(GuardPlan()), CALL, new_record())
    assert guardses == []

    for _ in range(2):
        guards.build_call_guards(plan_with(GuardPlan(input=(rule("hippo"),))), CALL, new_record())
    assert len(guardses) == 1


async def test_unguarded_call_passes_unchanged() -> None:
    plan, frame = plan_with(GuardPlan()), Frame((), "chat", {"choices": []}, b'{"choices": []}')
    build_call_guards = GUARDS.build_call_guards(plan, CALL, new_record())
    watch = build_call_guards.build_output_guards(CALL, ResponseHead(streamed=False))

    assert isinstance(build_call_guards, NoCallGuards)
    assert await build_call_guards.inspect() == (plan, CALL)
    assert await watch.inspect(frame) == (frame,)
    assert (watch.is_retry_requested, watch.release_partial_placeholder()) == (False, ())


@pytest.mark.parametrize(
    "guards",
    [
        GuardPlan(input=(rule("hippo"),)),
        GuardPlan(output=(rule("hippo"),)),
        GuardPlan(capture=Capture(1.0)),
    ],
    ids=["input", "output", "capture"],
)
def test_guarded_call_is_inspected(guards: GuardPlan) -> None:
    assert isinstance(GUARDS.build_call_guards(plan_with(guards), CALL, new_record()), GuardedCall)


async def test_clean_request_is_not_copied() -> None:
    plan = plan_with(GuardPlan(input=(rule("hippo"),)))
    build_call_guards = GUARDS.build_call_guards(plan, CALL, new_record())

    _, safe = await build_call_guards.inspect()

    assert safe is CALL
