"""How targets are doing: what each has under way, and which endpoints of theirs are left alone.

The state is kept by names, so it outlives a reload of the policies, which bring the bounds along.
Everything here happens in one step of the event loop: no call can slip between a look and a count.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from proxy.errors import (
    AnswerTooLarge,
    CircuitOpen,
    ProxyError,
    UpstreamBusy,
    UpstreamError,
    UpstreamForbids,
)
from proxy.types import Endpoint, Target, Upstream

MAX_TARGETS = 4096
BUSY_S = 1.0
RETRY_SHARE = 0.2
RETRIES_SAVED = 10.0
TELLS_NOTHING = (UpstreamForbids, AnswerTooLarge)
Circuit = Literal["closed", "half_open", "open"]
Tell = Callable[[Target, Endpoint, Circuit], None]


@dataclass(slots=True)
class TargetState:
    """One upstream and model."""

    under_way: int = 0


@dataclass(slots=True)
class CircuitState:
    """One endpoint of a target: what fails at one may work at another. ``open_until`` is a moment
    of the monotonic clock."""

    under_way: int = 0
    failures: int = 0
    open_until: float | None = None
    probing: bool = False

    @property
    def idle(self) -> bool:
        return not (self.under_way or self.failures or self.open_until)


@dataclass(slots=True)
class UpstreamState:
    """One upstream. Each request saves up a share of a retry; a retry spends a whole one."""

    under_way: int = 0
    retries: float = RETRIES_SAVED


@dataclass(slots=True)
class Slot:
    """The place of one request at a target; ``give_back`` it once, whatever way it ended."""

    health: Health
    target: Target
    endpoint: Endpoint
    target_state: TargetState
    circuit: CircuitState
    upstream_state: UpstreamState
    probe: bool
    worked: bool | None = None

    def give_back(self) -> None:
        """Free the place, and let the breaker learn what is known of how it went."""
        self.target_state.under_way -= 1
        self.circuit.under_way -= 1
        self.upstream_state.under_way -= 1
        self.health.learn(self)

    def failed(self, error: BaseException) -> None:
        """Note a failure that says something of the target: one that is the request's own fault
        says that it works. A call that is forbidden may be so for what it asks, or for whom, and
        an answer is too large for somebody who asked for it."""
        if isinstance(error, ProxyError) and error.final:
            self.worked = True
        elif isinstance(error, UpstreamError) and not isinstance(error, TELLS_NOTHING):
            self.worked = False


@dataclass(slots=True)
class Health:
    """All targets that have been asked. ``tell`` hears of every circuit that opens or closes."""

    now: Callable[[], float]
    tell: Tell
    _targets: dict[tuple[str, str], TargetState] = field(default_factory=dict)
    _circuits: dict[tuple[str, str, Endpoint], CircuitState] = field(default_factory=dict)
    _upstreams: dict[str, UpstreamState] = field(default_factory=dict)

    def take(self, target: Target, endpoint: Endpoint) -> Slot:
        """Take a place. Raises ``CircuitOpen`` or ``UpstreamBusy``: then nothing was asked."""
        state, whole = self._state(target), self._upstream(target.upstream)
        circuit = self._circuit(target, endpoint)
        probe = self._admitted(target, circuit)
        most = target.upstream.max_concurrency
        if most is not None and whole.under_way >= most:
            raise UpstreamBusy(BUSY_S)
        if probe:
            circuit.probing = True
            self.tell(target, endpoint, "half_open")
        state.under_way += 1
        circuit.under_way += 1
        whole.under_way += 1
        whole.retries = min(RETRIES_SAVED, whole.retries + RETRY_SHARE)
        return Slot(self, target, endpoint, state, circuit, whole, probe)

    def _admitted(self, target: Target, state: CircuitState) -> bool:
        """Say whether this would be the one probe of an open circuit that has had its rest."""
        if state.open_until is None or target.upstream.breaker is None:
            return False
        left = state.open_until - self.now()
        if left > 0:
            raise CircuitOpen(left)
        if state.probing:
            raise CircuitOpen(BUSY_S)
        return True

    def may_retry(self, upstream: Upstream) -> bool:
        """Spend a retry at an upstream, if its traffic has saved one up."""
        whole = self._upstream(upstream)
        if whole.retries < 1:
            return False
        whole.retries -= 1 + RETRY_SHARE  # the retry is no traffic that saves up for another
        return True

    def learn(self, slot: Slot) -> None:
        """Open, keep or close the circuit by how a request went; one that tells nothing, as its
        client left, leaves things as they are."""
        state, breaker = slot.circuit, slot.target.upstream.breaker
        if slot.probe:
            state.probing = False
        if breaker is None or slot.worked is None:
            return
        if slot.worked:
            was_open = state.open_until is not None
            state.failures, state.open_until = 0, None
            if was_open:
                self.tell(slot.target, slot.endpoint, "closed")
            return
        state.failures += 1
        if slot.probe or (state.open_until is None and state.failures >= breaker.failures):
            state.open_until = self.now() + breaker.rest
            self.tell(slot.target, slot.endpoint, "open")

    def least_loaded_first(self, targets: Sequence[Target], pool: int) -> tuple[Target, ...]:
        """Order the first ``pool`` targets by what each has under way; the rest stay behind."""
        if pool < 2:  # one has nobody to be compared with
            return tuple(targets)
        equals = sorted(targets[:pool], key=lambda target: self._state(target).under_way)
        return (*equals, *targets[pool:])

    def _state(self, target: Target) -> TargetState:
        name = (target.upstream.name, target.model)
        state = self._targets.get(name)
        if state is None:
            if len(self._targets) >= MAX_TARGETS:
                self._targets = {n: each for n, each in self._targets.items() if each.under_way}
            state = self._targets[name] = TargetState()
        return state

    def _circuit(self, target: Target, endpoint: Endpoint) -> CircuitState:
        name = (target.upstream.name, target.model, endpoint)
        state = self._circuits.get(name)
        if state is None:
            if len(self._circuits) >= MAX_TARGETS:
                self._circuits = {n: each for n, each in self._circuits.items() if not each.idle}
            state = self._circuits[name] = CircuitState()
        return state

    def _upstream(self, upstream: Upstream) -> UpstreamState:
        state = self._upstreams.get(upstream.name)
        if state is None:
            if len(self._upstreams) >= MAX_TARGETS:
                busy = {n: each for n, each in self._upstreams.items() if each.under_way}
                self._upstreams = busy
            state = self._upstreams[upstream.name] = UpstreamState()
        return state
