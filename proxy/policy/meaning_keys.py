"""What is doubtful about ``keys`` and ``revoked``: keys that every call is refused with, and names
that revoke nothing."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from proxy.policy import schema
from proxy.policy.load import maybe
from proxy.policy.snapshot import Snapshot
from proxy.policy.source import Path_

Finding = tuple[Path_, str]
NOT_WANTED = (
    "say keys: {} where that is meant, as a process that has keys in force does not take it"
)


def findings(policies: schema.Policies, snapshot: Snapshot, at: datetime) -> Iterator[Finding]:
    """Yield what is doubtful at a moment. A revoked name that is near no key may be one of before,
    and so may a digest."""
    if not policies.keys:
        wanted = "" if snapshot.wants_no_keys else f": {NOT_WANTED}"
        yield ("keys",), f"there is no key: every call is refused{wanted}"
    for index, name in enumerate(policies.revoked):
        near = "" if name in policies.keys else maybe(name, policies.keys)
        if near:
            yield ("revoked", index), f"there is no key {name!r}, so it revokes nothing{near}"
    for name, key in policies.keys.items():
        lapse = snapshot.lapse_of(name, at)
        if lapse is None:
            continue
        path: Path_ = ("keys", name)
        if lapse == "revoked":
            yield path, "the key is revoked: every call is refused"
        else:
            ended = key.expires is not None and key.expires <= at
            yield (
                (*path, "expires" if ended else "sha256"),
                f"the key {lapse}: every call is refused",
            )
