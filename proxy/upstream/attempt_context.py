"""One leg of one call on its way through the targets, and the time it may still take."""

from __future__ import annotations

from proxy.frozen import frozen
from proxy.record import Record
from proxy.types import Call, ModelCall, Plan


@frozen
class AttemptContext:
    """What is to be fetched. All tries together take no longer than the client, or the upstreams
    of the leg's targets together, allow."""

    plan: Plan
    call: Call
    record: Record
    leg: int
    model_leg: ModelCall

    def time_left(self) -> float:
        """Return the seconds that are left; 0 or less when another try is too late."""
        allowed = 0.0
        for target in self.model_leg.targets:
            allowed += target.upstream.timeouts.total
        if self.call.timeout_s is not None:
            allowed = min(allowed, self.call.timeout_s)
        return allowed - (self.record.now() - self.record.started)
