"""Circuit breakers, concurrency and retry budgets of targets.

Consecutive failures of one caller open the circuit for that caller only, and count for others only
up to a share: the caller's requests may be at fault. State is keyed by name and survives a reload;
bounds are the policy's. Every method runs in one step of the event loop.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from proxy.errors import (
    CircuitOpen,
    ProxyError,
    ResponseTooLarge,
    UpstreamBusy,
    UpstreamError,
    UpstreamForbids,
    UpstreamNotFound,
)
from proxy.types import Breaker, Endpoint, Target, Upstream
from proxy.upstream.client import PoolExhausted

MAX_ENDPOINTS = 4096
MAX_FAILING_CALLERS = 128  # of one endpoint
BUSY_RETRY_S = 1.0
RETRY_SHARE = 0.2
MAX_SAVED_RETRIES = 10.0
INCONCLUSIVE_ERRORS = (UpstreamForbids, UpstreamNotFound, ResponseTooLarge, PoolExhausted)
"""Failures that depend on the request, caller, policy or proxy rather than on the target."""
CircuitState = Literal["closed", "half_open", "open"]
OnChange = Callable[[Target, Endpoint, CircuitState], None]


@dataclass(slots=True)
class Circuit:
    """Circuit of one endpoint of a target, for all callers or for one failing caller.

    - ``open_until``: monotonic time from which a probe is admitted. None while it is closed.
    - ``probing_until``: time until which a probe keeps others from probing. 0 without a probe.
    - ``only_caller``: the caller, as long as only one has used the endpoint.
    - ``is_shared``: several callers have used the endpoint.
    - ``callers``: circuits of the callers that have failed, up to ``MAX_FAILING_CALLERS``.
    """

    in_flight: int = 0
    failures: int = 0
    open_until: float | None = None
    probing_until: float = 0.0
    only_caller: str | None = None
    is_shared: bool = False
    callers: dict[str, Circuit] = field(default_factory=dict)

    @property
    def is_idle(self) -> bool:
        return not (self.in_flight or self.failures) and self.state == "closed"

    @property
    def state(self) -> CircuitState:
        """State for operators: half open during a probe, or if it is open for some keys only."""
        if self.open_until is not None:
            return "half_open" if self.probing_until else "open"
        is_open = any(caller.open_until is not None for caller in self.callers.values())
        return "half_open" if is_open else "closed"


@dataclass(slots=True)
class Load:
    """Requests in flight at an upstream, or at one of its targets.

    Each request adds ``RETRY_SHARE`` to ``saved_retries``, the retry budget of an upstream.
    """

    in_flight: int = 0
    saved_retries: float = MAX_SAVED_RETRIES


class EndpointStates(NamedTuple):
    """States that a request at an endpoint of a target changes."""

    target: Load
    circuit: Circuit
    upstream: Load


@dataclass(slots=True)
class TargetSlot:
    """Slot of one request at a target. Call ``release`` exactly once."""

    health: Health
    target: Target
    endpoint: Endpoint
    caller: str
    states: EndpointStates
    is_probe: bool
    is_caller_probe: bool
    has_worked: bool | None = None
    reached_upstream: bool = True

    def record_probe_success(self) -> None:
        """Close the circuit once the response has begun, because its end may be minutes away."""
        self.has_worked = True
        self.health.record_result(self)
        self.has_worked, self.is_probe, self.is_caller_probe = None, False, False

    def release(self) -> None:
        """Release the slot and update the circuit."""
        target, circuit, upstream = self.states
        target.in_flight -= 1
        circuit.in_flight -= 1
        upstream.in_flight -= 1
        self.health.record_result(self)

    def fail(self, error: BaseException) -> None:
        """Record a failure. An error that blames the request proves that the target works."""
        if isinstance(error, ProxyError) and error.is_final:
            self.has_worked = True
        elif isinstance(error, UpstreamError) and not isinstance(error, INCONCLUSIVE_ERRORS):
            self.has_worked, self.reached_upstream = False, error.reached_upstream


@dataclass(slots=True)
class Health:
    """States of all targets. ``on_change`` is called when a circuit changes."""

    now: Callable[[], float]
    on_change: OnChange
    _targets: dict[tuple[str, str], Load] = field(default_factory=dict)
    _upstreams: dict[str, Load] = field(default_factory=dict)
    _endpoints: dict[tuple[str, str, Endpoint], EndpointStates] = field(default_factory=dict)

    def take_slot(self, target: Target, endpoint: Endpoint, caller: str) -> TargetSlot:
        """Take a slot. Raises ``CircuitOpen`` or ``UpstreamBusy``.

        While the circuit is open for all, a caller that has failed probes for itself only. Its
        failure or slowness does not keep others from probing.
        """
        states = self._endpoints.get((target.upstream.name, target.model, endpoint))
        if states is None:
            states = self._add_endpoint_states(target, endpoint)
        target_state, circuit, upstream = states
        is_new_caller = not circuit.is_shared and circuit.only_caller != caller
        if is_new_caller and self._close_if_second_caller(circuit, target, caller):
            self.on_change(target, endpoint, circuit.state)
        caller_circuit, is_probe, is_caller_probe = None, False, False
        if circuit.callers or circuit.open_until is not None:
            caller_circuit = circuit.callers.get(caller)
            is_probe, is_caller_probe = self._choose_probes(target, circuit, caller_circuit)
        max_concurrency = target.upstream.max_concurrency
        if max_concurrency is not None and upstream.in_flight >= max_concurrency:
            raise UpstreamBusy(BUSY_RETRY_S)
        if caller_circuit is not None and is_caller_probe:
            caller_circuit.probing_until = self._compute_circuit_end(target)
        if is_probe:
            circuit.probing_until = self._compute_circuit_end(target)
            self.on_change(target, endpoint, "half_open")
        target_state.in_flight += 1
        circuit.in_flight += 1
        upstream.in_flight += 1
        if upstream.saved_retries < MAX_SAVED_RETRIES:
            upstream.saved_retries = min(MAX_SAVED_RETRIES, upstream.saved_retries + RETRY_SHARE)
        return TargetSlot(
            self,
            target,
            endpoint,
            caller=caller,
            states=states,
            is_probe=is_probe,
            is_caller_probe=is_caller_probe,
        )

    def _choose_probes(
        self, target: Target, circuit: Circuit, caller: Circuit | None
    ) -> tuple[bool, bool]:
        """Return whether a request probes the circuit, and its caller's circuit."""
        is_probe = self._must_probe(target, circuit)
        if is_probe and caller is not None and circuit.is_shared:
            is_probe = False
            if caller.open_until is None:
                caller.open_until = self.now()
        return is_probe, caller is not None and self._must_probe(target, caller)

    def _close_if_second_caller(self, circuit: Circuit, target: Target, caller: str) -> bool:
        """Record a new caller. Return True if that closes a circuit that only one caller opened.

        The circuit stays open for that caller.
        """
        if circuit.only_caller is None:
            circuit.only_caller = caller
            return False
        was_open = circuit.open_until is not None
        circuit.is_shared, circuit.only_caller = True, None
        circuit.failures = min(circuit.failures, _get_caller_failure_cap(target.upstream.breaker))
        circuit.open_until, circuit.probing_until = None, 0.0
        return was_open

    def _compute_circuit_end(self, target: Target) -> float:
        breaker = target.upstream.breaker
        return self.now() + (breaker.open_s if breaker is not None else 0.0)

    def _must_probe(self, target: Target, circuit: Circuit) -> bool:
        """Return True if a request would probe an open circuit. Raises ``CircuitOpen``.

        One probe runs at a time. Another may start after ``open_s`` if the first takes longer.
        """
        if circuit.open_until is None or target.upstream.breaker is None:
            return False
        remaining_s = circuit.open_until - self.now()
        if remaining_s > 0:
            raise CircuitOpen(remaining_s)
        if circuit.probing_until > self.now():
            raise CircuitOpen(BUSY_RETRY_S)
        return True

    def try_spend_retry(self, upstream: Upstream) -> bool:
        """Spend a saved retry of the upstream. Return False if there is none."""
        state = self._upstreams.setdefault(upstream.name, Load())
        if state.saved_retries < 1:
            return False
        state.saved_retries -= 1 + RETRY_SHARE  # the retry itself saves nothing
        return True

    def record_result(self, slot: TargetSlot) -> None:
        """Update the circuit by the result of a request. An unknown result changes nothing."""
        circuit = slot.states.circuit
        if slot.is_probe:
            circuit.probing_until = 0.0
        if slot.is_caller_probe and (caller := circuit.callers.get(slot.caller)) is not None:
            caller.probing_until = 0.0
        breaker = slot.target.upstream.breaker
        if breaker is None or slot.has_worked is None:
            return
        has_failures = circuit.failures or circuit.open_until is not None
        has_failures = has_failures or slot.caller in circuit.callers
        if slot.has_worked and not has_failures and not slot.is_probe:
            return
        state_before = circuit.state
        if slot.has_worked:
            circuit.callers.pop(slot.caller, None)
            circuit.failures, circuit.open_until, circuit.probing_until = 0, None, 0.0
        else:
            self._count_failure(slot, breaker)
        if slot.is_probe or state_before != circuit.state:
            self.on_change(slot.target, slot.endpoint, circuit.state)

    def _count_failure(self, slot: TargetSlot, breaker: Breaker) -> None:
        """Count a failure for its caller and, up to a share, for all.

        A connection that failed counts for all only.
        """
        circuit, open_until = slot.states.circuit, self._compute_circuit_end(slot.target)
        counts_for_all = True
        if slot.reached_upstream:
            if slot.caller not in circuit.callers and len(circuit.callers) >= MAX_FAILING_CALLERS:
                del circuit.callers[next(iter(circuit.callers))]
            caller = circuit.callers.setdefault(slot.caller, Circuit())
            caller.failures += 1
            must_open = caller.open_until is None and caller.failures >= breaker.failures
            if must_open or slot.is_caller_probe:
                caller.open_until = open_until
            cap = _get_caller_failure_cap(breaker)
            counts_for_all = not circuit.is_shared or caller.failures <= cap
        if counts_for_all:
            circuit.failures += 1
        must_open = circuit.open_until is None and circuit.failures >= breaker.failures
        if must_open or slot.is_probe:
            circuit.open_until = open_until

    def count_in_flight(self, upstream: str, model: str) -> int:
        load = self._targets.get((upstream, model))
        return 0 if load is None else load.in_flight

    def sort_pool_by_load(self, targets: Sequence[Target], pool_size: int) -> tuple[Target, ...]:
        """Sort the first ``pool_size`` targets by requests in flight."""
        pool = sorted(
            targets[:pool_size], key=lambda t: self.count_in_flight(t.upstream.name, t.model)
        )
        return (*pool, *targets[pool_size:])

    def _add_endpoint_states(self, target: Target, endpoint: Endpoint) -> EndpointStates:
        """Add the states of an endpoint. Drop idle ones beyond ``MAX_ENDPOINTS``."""
        if len(self._endpoints) >= MAX_ENDPOINTS:
            used = {key: s for key, s in self._endpoints.items() if not s.circuit.is_idle}
            self._endpoints = used
            self._targets = {key[:2]: states.target for key, states in used.items()}
            self._upstreams = {key[0]: states.upstream for key, states in used.items()}
        name, model = target.upstream.name, target.model
        states = self._endpoints[name, model, endpoint] = EndpointStates(
            self._targets.setdefault((name, model), Load()),
            Circuit(),
            self._upstreams.setdefault(name, Load()),
        )
        return states


def _get_caller_failure_cap(breaker: Breaker | None) -> int:
    """Return the maximum number of one caller's failures that count for all callers.

    It is too low to open the circuit for all.
    """
    return 0 if breaker is None else min(breaker.failures - 1, (breaker.failures + 1) // 2)
