"""Policy for the calls that guards and caches make: any deployment, under its own rules and limits.

Such a call has no guards, so that none can ask itself, and no cache, so that a verdict is one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from proxy.errors import NotFound, Unauthorized
from proxy.frozen import frozen
from proxy.policy.decide import decide
from proxy.policy.decide.snapshot import Deployment, Snapshot
from proxy.types import Call, Plan, RequestHead
from proxy.types.guard import UNGUARDED


@frozen
class GuardPolicies:
    """The policies as guards meet them. ``current`` gives what is in force."""

    current: Callable[[], Snapshot]

    def in_force_now(self) -> GuardPolicy:
        return GuardPolicy(self.current())

    async def read(self, head: RequestHead) -> GuardPolicy:
        return self.in_force_now()


@frozen
class GuardPolicy:
    """One revision, for one call of a guard."""

    snapshot: Snapshot

    @property
    def revision(self) -> str:
        return self.snapshot.revision

    def identify(self, head: RequestHead) -> GuardCaller:
        """Take the key at its word: no client can write a head that has one."""
        if head.internal_key is None:
            raise Unauthorized
        deployment = self.snapshot.deployments.get(head.deployment or "")
        if deployment is None:
            raise NotFound("The deployment of this internal call no longer exists.")
        return GuardCaller(self.snapshot, head.internal_key, deployment)


@frozen
class GuardCaller:
    """A guard as a caller."""

    snapshot: Snapshot
    key: str
    deployment: Deployment
    credential: None = None
    may_trace: bool = False  # it is sampled with the call that it looks at

    def decide(self, call: Call) -> Plan:
        by_callers = frozenset(tag for tag, rule in self.snapshot.tags.items() if rule.caller)
        reach = self.deployment.reached_by(self.key, self.deployment.tags, by_callers)
        return replace(
            decide(self.snapshot, reach.alone(self.key), call), guards=UNGUARDED, cache=None
        )
