"""Circuit breakers, slots and retry budgets, with a clock of the test."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy import errors
from proxy.types import Breaker, Endpoint, Target, Upstream
from proxy.upstream.client import PoolExhausted
from proxy.upstream.health import MAX_ENDPOINTS, MAX_FAILING_CALLERS, Health
from tests.for_each import for_each

UP = Upstream("up", "openai", "http://127.0.0.1:9", breaker=Breaker(failures=2, open_s=10.0))
NEAR_TARGET = Target(UP, "here")
DOWN = errors.UpstreamUnavailable("down")
UNREACHABLE = errors.UpstreamTimeout("connect")
FIRST_CALLER, SECOND_CALLER, THIRD_CALLER = "one", "other", "third"


@dataclass
class Watched:
    now: float = 0.0
    transitions: list[tuple[str, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.health = Health(
            lambda: self.now, lambda t, endpoint, state: self.transitions.append((t.model, state))
        )

    def ask(
        self,
        target: Target = NEAR_TARGET,
        error: BaseException | None = None,
        endpoint: Endpoint = "chat",
        caller: str = FIRST_CALLER,
    ) -> None:
        slot = self.health.take_slot(target, endpoint, caller)
        slot.has_worked = True
        if error is not None:
            slot.fail(error)
        slot.release()

    def refuses(self, caller: str = FIRST_CALLER) -> bool:
        try:
            self.health.take_slot(NEAR_TARGET, "chat", caller)
        except errors.CircuitOpen:
            return True
        return False


def open_circuit(now: float = 0.0) -> Watched:
    """Return a circuit that two failures have opened."""
    watched = Watched()
    watched.ask(error=DOWN)
    watched.ask(error=DOWN)
    watched.now = now
    return watched


def test_success_between_failures_keeps_the_circuit_closed() -> None:
    watched = Watched()
    for error in (DOWN, None, DOWN, errors.UpstreamRejected("x", upstream_status=400), DOWN):
        watched.ask(error=error)

    assert watched.transitions == []


@for_each(
    "failure",
    [
        errors.UpstreamRejected("x", upstream_status=501),
        errors.BlockedByUpstream("x", upstream_status=446),
        errors.UpstreamForbids("x", upstream_status=403),
        errors.UpstreamNotFound("x", upstream_status=404),
        errors.ResponseTooLarge("x"),
        PoolExhausted(),
    ],
)
def test_errors_of_others_never_open_the_circuit(failure: errors.ProxyError) -> None:
    watched = Watched()
    for _ in range(5):
        watched.ask(error=failure)

    assert watched.transitions == []


def test_one_probe_decides_after_the_pause() -> None:
    watched = open_circuit(now=10.0)

    probe = watched.health.take_slot(NEAR_TARGET, "chat", FIRST_CALLER)
    assert watched.refuses(FIRST_CALLER)
    probe.fail(DOWN)
    probe.release()
    assert watched.refuses(FIRST_CALLER)
    watched.now = 20.0
    watched.ask()
    watched.ask()

    assert [state for _, state in watched.transitions] == [
        "open", "half_open", "open", "half_open", "closed",
    ]  # fmt: skip


def test_abandoned_probe_leaves_the_decision_to_the_next() -> None:
    watched = open_circuit(now=10.0)

    watched.health.take_slot(NEAR_TARGET, "chat", FIRST_CALLER).release()

    watched.ask()
    assert watched.transitions[-1] == ("here", "closed")


def test_probe_with_response_head_admits_others() -> None:
    watched = open_circuit(now=10.0)

    probe = watched.health.take_slot(NEAR_TARGET, "chat", FIRST_CALLER)
    probe.record_probe_success()
    watched.health.take_slot(NEAR_TARGET, "chat", FIRST_CALLER)
    watched.health.take_slot(NEAR_TARGET, "chat", SECOND_CALLER)

    assert watched.transitions[-1] == ("here", "closed")
    probe.release()
    assert watched.transitions[-1] == ("here", "closed")


def test_slow_probe_is_replaced_after_a_pause() -> None:
    watched = open_circuit(now=10.0)
    watched.health.take_slot(NEAR_TARGET, "chat", FIRST_CALLER)
    watched.now = 19.0
    assert watched.refuses(FIRST_CALLER)
    watched.now = 20.0

    watched.ask()

    assert watched.transitions[-1] == ("here", "closed")


@for_each("failures", [1, 2, 3, 5])
def test_failures_of_one_caller_do_not_affect_others(failures: int) -> None:
    watched = Watched()
    target = Target(replace(UP, breaker=Breaker(failures, 10.0)), "here")
    watched.ask(target, caller=SECOND_CALLER)
    for moment in range(100):
        watched.now = float(moment)
        with suppress(errors.CircuitOpen):
            watched.ask(target, DOWN)
        watched.health.take_slot(target, "chat", SECOND_CALLER).release()  # a slot without a result

    with pytest.raises(errors.CircuitOpen):
        watched.health.take_slot(target, "chat", FIRST_CALLER)
    assert set(watched.transitions) == {("here", "half_open")}
    watched.now += 10
    watched.ask(target)
    assert watched.transitions[-1] == ("here", "closed")


def test_failures_of_two_callers_open_the_circuit_for_all() -> None:
    watched = Watched()
    watched.ask(error=DOWN)
    watched.ask(error=DOWN, caller=SECOND_CALLER)

    assert watched.refuses(THIRD_CALLER)
    assert watched.transitions[-1] == ("here", "open")


def test_connection_failures_count_for_all_callers() -> None:
    watched = Watched()
    watched.ask(caller=SECOND_CALLER)
    watched.ask(error=UNREACHABLE)
    watched.ask(error=UNREACHABLE)

    assert watched.refuses(SECOND_CALLER)


def test_circuit_opened_by_the_only_caller_admits_another() -> None:
    watched = open_circuit()
    assert watched.transitions[-1] == ("here", "open")

    watched.ask(caller=SECOND_CALLER)

    assert watched.refuses(FIRST_CALLER)


def test_probe_of_a_failed_caller_decides_only_for_it() -> None:
    watched = Watched()
    watched.ask(caller=THIRD_CALLER)
    for caller in (FIRST_CALLER, SECOND_CALLER):
        watched.ask(error=DOWN, caller=caller)
    assert watched.refuses(THIRD_CALLER)
    watched.now = 10.0

    watched.ask(error=DOWN, caller=FIRST_CALLER)
    assert watched.refuses(FIRST_CALLER)
    watched.ask(caller=THIRD_CALLER)

    watched.ask(caller=SECOND_CALLER)


def test_slow_probe_of_a_failed_caller_delays_no_other() -> None:
    watched = Watched()
    watched.ask(caller=THIRD_CALLER)
    for caller in (FIRST_CALLER, SECOND_CALLER):
        watched.ask(error=DOWN, caller=caller)
    watched.now = 10.0

    slow = watched.health.take_slot(NEAR_TARGET, "chat", FIRST_CALLER)
    assert watched.refuses(FIRST_CALLER)
    watched.ask(caller=THIRD_CALLER)

    assert watched.transitions[-1] == ("here", "half_open")  # for the pending probe
    slow.record_probe_success()
    assert watched.transitions[-1] == ("here", "closed")


def test_late_failure_does_not_extend_the_pause() -> None:
    watched = Watched()
    slow = watched.health.take_slot(NEAR_TARGET, "chat", FIRST_CALLER)
    watched.ask(error=DOWN)
    watched.ask(error=DOWN)
    watched.now = 9.0
    slow.fail(DOWN)
    slow.release()
    watched.now = 10.0

    watched.ask()


@given(st.lists(st.booleans(), max_size=400))
def test_retry_budget_is_a_fifth_of_traffic_plus_savings(wants: list[bool]) -> None:
    watched = Watched()
    request = retried = 0
    for want in wants:
        watched.ask()
        request += 1
        if want and watched.health.try_spend_retry(UP):
            watched.ask()
            retried += 1

    assert retried <= 0.2 * request + 10


def test_state_of_targets_is_bounded() -> None:
    watched = Watched()
    for number in range(MAX_ENDPOINTS + 10):
        watched.ask(Target(replace(UP, name=f"up-{number}"), f"model-{number}"))

    health = watched.health
    for states in (health._targets, health._upstreams, health._endpoints):
        assert len(states) <= MAX_ENDPOINTS


def test_endpoint_with_a_failed_caller_is_dropped_unless_its_circuit_is_open() -> None:
    watched = Watched()
    for model, failures in (("failed-once", 1), ("open", 2)):
        target = Target(UP, model)
        watched.ask(target, caller=SECOND_CALLER)
        for _ in range(failures):
            watched.ask(target, DOWN)
        watched.ask(target, caller=SECOND_CALLER)
    for number in range(MAX_ENDPOINTS):
        watched.ask(Target(UP, f"model-{number}"))

    models = {model for _, model, _ in watched.health._endpoints}
    assert ("failed-once" in models, "open" in models) == (False, True)


def test_state_of_callers_is_bounded() -> None:
    watched = Watched()
    watched.ask(caller="first")
    for number in range(MAX_FAILING_CALLERS + 10):
        watched.ask(error=DOWN, caller=f"caller-{number}")
        watched.ask(error=None, caller="first")

    [states] = watched.health._endpoints.values()
    assert len(states.circuit.callers) <= MAX_FAILING_CALLERS
