"""How targets are doing: what each has under way, and which endpoints of theirs are left alone.

A caller's failures in a row open the circuit for that caller, and count for the others' no more
than a share: a request may be at fault for what only its caller meets.

The state is kept by names, so it outlives a reload of the policies, which bring the bounds along.
Everything here happens in one step of the event loop: no call can slip between a look and a count.
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
from proxy.upstream.wire.pool import NoPlace

MAX_TARGETS = 4096
MAX_CALLERS = 4096  # that fail now, at all endpoints of all targets
BUSY_S = 1.0
RETRY_SHARE = 0.2
RETRIES_SAVED = 10.0
TELLS_NOTHING = (UpstreamForbids, UpstreamNotFound, ResponseTooLarge, NoPlace)
Circuit = Literal["closed", "half_open", "open"]
OnChange = Callable[[Target, Endpoint, Circuit], None]


@dataclass(slots=True)
class TargetState:
    """One upstream and model."""

    under_way: int = 0


@dataclass(slots=True)
class CircuitState:
    """One endpoint of a target: what fails at one may work at another. Each caller that fails has
    one such state too. ``open_until`` and ``probing_until`` are moments of the monotonic clock.
    ``only`` is who has asked here as long as nobody else has; ``open_for`` are the callers for whom
    it is open, whatever it is for others."""

    under_way: int = 0
    failures: int = 0
    open_until: float | None = None
    probing_until: float = 0.0
    only: str | None = None
    shared: bool = False
    open_for: int = 0

    @property
    def idle(self) -> bool:
        return not (self.under_way or self.failures or self.open_until or self.open_for)

    @property
    def shown(self) -> Circuit:
        """Return what an operator reads: half open is it, too, while open for some callers."""
        if self.open_until is not None:
            return "half_open" if self.probing_until else "open"
        return "half_open" if self.open_for else "closed"


@dataclass(slots=True)
class UpstreamState:
    """One upstream. Each request saves up a share of a retry; a retry spends a whole one."""

    under_way: int = 0
    retries: float = RETRIES_SAVED


class EndpointStates(NamedTuple):
    """All that is kept of one endpoint of a target for all callers."""

    target: TargetState
    circuit: CircuitState
    upstream: UpstreamState


@dataclass(slots=True)
class TargetSlot:
    """The place of one request at a target; ``give_back`` it once, whatever way it ended."""

    health: Health
    target: Target
    endpoint: Endpoint
    caller: str
    states: EndpointStates
    circuit: CircuitState
    probe: bool  # of the circuit of all
    own_probe: bool  # of the caller's own
    worked: bool | None = None
    reached: bool = True

    def begun(self) -> None:
        """Note that an answer has begun: a probe need not wait for all of it, which may be long."""
        if self.probe or self.own_probe:
            self.worked = True
            self.health.learn(self)
            self.worked, self.probe, self.own_probe = None, False, False

    def give_back(self) -> None:
        """Free the place, and let the breaker learn what is known of how it went."""
        target, circuit, upstream = self.states
        target.under_way -= 1
        circuit.under_way -= 1
        upstream.under_way -= 1
        self.health.learn(self)

    def failed(self, error: BaseException) -> None:
        """Note a failure that says something of the target: one that is the request's own fault
        says that it works. A call that is forbidden may be so for what it asks, or for whom, a
        model is unknown by the name that a policy has for it, an answer is too large for somebody
        who asked for it, and where all connections are in use nobody was asked."""
        if isinstance(error, ProxyError) and error.is_final:
            self.worked = True
        elif isinstance(error, UpstreamError) and not isinstance(error, TELLS_NOTHING):
            self.worked, self.reached = False, error.reached_upstream


@dataclass(slots=True)
class Health:
    """All targets that have been asked. ``on_change`` gets every circuit that opens or closes."""

    now: Callable[[], float]
    on_change: OnChange
    _targets: dict[tuple[str, str], TargetState] = field(default_factory=dict)
    _circuits: dict[tuple[str, str, Endpoint], CircuitState] = field(default_factory=dict)
    _callers: dict[tuple[str, str, Endpoint, str], CircuitState] = field(default_factory=dict)
    _upstreams: dict[str, UpstreamState] = field(default_factory=dict)
    _endpoints: dict[tuple[str, str, Endpoint], EndpointStates] = field(default_factory=dict)

    def take(self, target: Target, endpoint: Endpoint, caller: str) -> TargetSlot:
        """Take a place. Raises ``CircuitOpen`` or ``UpstreamBusy``: then nothing was asked.

        Where a circuit is open for all, a caller that has failed itself probes for itself alone:
        neither its failure nor its slowness keeps others from trying.
        """
        states = self._endpoints.get((target.upstream.name, target.model, endpoint))
        if states is None:
            states = self._states(target, endpoint)
        state, circuit, whole = states
        is_new = not circuit.shared and circuit.only != caller
        if is_new and self._is_no_longer_alone(circuit, target, caller):
            self.on_change(target, endpoint, circuit.shown)
        own, probe, own_probe = None, False, False
        if self._callers or circuit.open_until is not None:
            own, probe, own_probe = self._probes(target, endpoint, caller, circuit)
        most = target.upstream.max_concurrency
        if most is not None and whole.under_way >= most:
            raise UpstreamBusy(BUSY_S)
        if own is not None and own_probe:
            own.probing_until = self._rested(target)
        if probe:
            circuit.probing_until = self._rested(target)
            self.on_change(target, endpoint, "half_open")
        state.under_way += 1
        circuit.under_way += 1
        whole.under_way += 1
        if whole.retries < RETRIES_SAVED:
            whole.retries = min(RETRIES_SAVED, whole.retries + RETRY_SHARE)
        return TargetSlot(
            health=self,
            target=target,
            endpoint=endpoint,
            caller=caller,
            states=states,
            circuit=circuit,
            probe=probe,
            own_probe=own_probe,
        )

    def _probes(
        self, target: Target, endpoint: Endpoint, caller: str, circuit: CircuitState
    ) -> tuple[CircuitState | None, bool, bool]:
        """Return the caller's own circuit, if it has one, and whether a request of its probes that
        of all, and its own. Raises ``CircuitOpen``."""
        own = self._callers.get((target.upstream.name, target.model, endpoint, caller))
        probe = self._admitted(target, circuit)
        if probe and own is not None and circuit.shared:
            probe = False
            if own.open_until is None:
                self._open_own(circuit, own, self.now())
        return own, probe, own is not None and self._admitted(target, own)

    def _is_no_longer_alone(self, circuit: CircuitState, target: Target, caller: str) -> bool:
        """Note who asks. True if a second caller is the first to do so after a circuit that one
        caller alone has opened: from then on it is open for that one."""
        if circuit.only is None:
            circuit.only = caller
            return False
        was_open = circuit.open_until is not None
        circuit.shared, circuit.only = True, None
        circuit.failures = min(circuit.failures, _share(target.upstream.breaker))
        circuit.open_until, circuit.probing_until = None, 0.0
        return was_open

    def _rested(self, target: Target) -> float:
        """Return the moment when a rest is over that begins now."""
        breaker = target.upstream.breaker
        return self.now() + (breaker.open_s if breaker is not None else 0.0)

    def _admitted(self, target: Target, state: CircuitState) -> bool:
        """True if this would be a probe of an open circuit that has had its rest. There is one at a
        time; one that takes as long as a rest does not keep the next one waiting."""
        if state.open_until is None or target.upstream.breaker is None:
            return False
        left = state.open_until - self.now()
        if left > 0:
            raise CircuitOpen(left)
        if state.probing_until > self.now():
            raise CircuitOpen(BUSY_S)
        return True

    def may_retry(self, upstream: Upstream) -> bool:
        """Spend a retry at an upstream, if its traffic has saved one up."""
        whole = self._upstream(upstream)
        if whole.retries < 1:
            return False
        whole.retries -= 1 + RETRY_SHARE  # the retry is no traffic that saves up for another
        return True

    def learn(self, slot: TargetSlot) -> None:
        """Open, keep or close the circuit by how a request went; one that tells nothing, as its
        client left, leaves things as they are."""
        circuit = slot.circuit
        if slot.probe:
            circuit.probing_until = 0.0
        if slot.own_probe and (own := self._callers.get(self._name(slot))) is not None:
            own.probing_until = 0.0
        breaker = slot.target.upstream.breaker
        if breaker is None or slot.worked is None:
            return
        is_calm = not (self._callers or circuit.failures or circuit.open_until is not None)
        if slot.worked and is_calm and not slot.probe:
            return  # there is nothing to forget
        before = circuit.open_until, circuit.open_for
        if slot.worked:
            self._close(slot)
        else:
            self._count(slot, breaker)
        if slot.probe or before != (circuit.open_until, circuit.open_for):
            self.on_change(slot.target, slot.endpoint, circuit.shown)

    def _close(self, slot: TargetSlot) -> None:
        self._forget(self._name(slot))
        circuit = slot.circuit
        circuit.failures, circuit.open_until, circuit.probing_until = 0, None, 0.0

    def _count(self, slot: TargetSlot, breaker: Breaker) -> None:
        """Count a failure: that of a request for its caller and, up to a share, for all; that no
        connection was had for all alone."""
        circuit, until = slot.circuit, self._rested(slot.target)
        own = self._caller(slot) if slot.reached else None
        if own is not None:
            own.failures += 1
            due = own.open_until is None and own.failures >= breaker.failures
            if due or slot.own_probe:
                self._open_own(circuit, own, until)
        if own is None or not circuit.shared or own.failures <= _share(breaker):
            circuit.failures += 1
        due = circuit.open_until is None and circuit.failures >= breaker.failures
        if due or slot.probe:
            circuit.open_until = until

    def _open_own(self, circuit: CircuitState, own: CircuitState, until: float) -> None:
        circuit.open_for += own.open_until is None
        own.open_until = until

    def _name(self, slot: TargetSlot) -> tuple[str, str, Endpoint, str]:
        return slot.target.upstream.name, slot.target.model, slot.endpoint, slot.caller

    def _caller(self, slot: TargetSlot) -> CircuitState:
        """Return the circuit of one caller that fails. Of too many the oldest is forgotten."""
        state = self._callers.get(self._name(slot))
        if state is None:
            if len(self._callers) >= MAX_CALLERS:
                self._forget(next(iter(self._callers)))
            state = self._callers[self._name(slot)] = CircuitState()
        return state

    def _forget(self, name: tuple[str, str, Endpoint, str]) -> None:
        state = self._callers.pop(name, None)
        circuit = self._circuits.get(name[:3])
        if state is not None and state.open_until is not None and circuit is not None:
            circuit.open_for -= 1

    def least_loaded_first(self, targets: Sequence[Target], pool: int) -> tuple[Target, ...]:
        """Order the first ``pool`` targets by what each has under way; the rest stay behind."""
        if pool < 2:  # one has nobody to be compared with
            return tuple(targets)
        equals = sorted(targets[:pool], key=lambda target: self._state(target).under_way)
        return (*equals, *targets[pool:])

    def _states(self, target: Target, endpoint: Endpoint) -> EndpointStates:
        """Return what is kept of an endpoint, and keep that together. Where anything of any is
        forgotten, all are put together anew."""
        states = EndpointStates(
            self._state(target), self._circuit(target, endpoint), self._upstream(target.upstream)
        )
        self._endpoints[target.upstream.name, target.model, endpoint] = states
        return states

    def _state(self, target: Target) -> TargetState:
        name = (target.upstream.name, target.model)
        state = self._targets.get(name)
        if state is None:
            if len(self._targets) >= MAX_TARGETS:
                self._endpoints.clear()
                self._targets = {n: state for n, state in self._targets.items() if state.under_way}
            state = self._targets[name] = TargetState()
        return state

    def _circuit(self, target: Target, endpoint: Endpoint) -> CircuitState:
        name = (target.upstream.name, target.model, endpoint)
        state = self._circuits.get(name)
        if state is None:
            if len(self._circuits) >= MAX_TARGETS:
                self._endpoints.clear()
                self._circuits = {n: state for n, state in self._circuits.items() if not state.idle}
            state = self._circuits[name] = CircuitState()
        return state

    def _upstream(self, upstream: Upstream) -> UpstreamState:
        state = self._upstreams.get(upstream.name)
        if state is None:
            if len(self._upstreams) >= MAX_TARGETS:
                self._endpoints.clear()
                busy = {n: state for n, state in self._upstreams.items() if state.under_way}
                self._upstreams = busy
            state = self._upstreams[upstream.name] = UpstreamState()
        return state


def _share(breaker: Breaker | None) -> int:
    """Return how many failures in a row of one caller count for all: never enough by themselves."""
    return 0 if breaker is None else min(breaker.failures - 1, (breaker.failures + 1) // 2)
