"""What is doubtful about ``keys`` and ``revoked``: keys that every call is refused with, and names
that revoke nothing."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from datetime import datetime

from proxy.policy import schema
from proxy.policy.decide.snapshot import Snapshot
from proxy.policy.files.load import maybe
from proxy.policy.files.source import Finding, Path_
from proxy.words import quoted

REFUSED = "every call is refused"
NOT_WANTED = (
    "say keys: {} where that is meant, as a process that has keys in force does not take it"
)


def _revoked(name: str, key: schema.KeyConfig, revoked: Collection[str]) -> list[bool]:
    """Return of each text of a key whether it is revoked, by itself or by the name of the key."""
    return [name in revoked or each.digest in revoked for each in key.sha256]


def findings(
    policies: schema.PoliciesConfig, snapshot: Snapshot, at: datetime
) -> Iterator[Finding]:
    """Yield what is doubtful at a moment. A revoked name that is near no key may be one of before,
    and so may a digest."""
    if not policies.keys:
        wanted = "" if snapshot.wants_no_keys else f": {NOT_WANTED}"
        yield ("keys",), f"there is no key: every call is refused{wanted}"
    for index, name in enumerate(policies.revoked):
        near = "" if name in policies.keys else maybe(name, policies.keys)
        if near:
            yield (
                ("revoked", index),
                f"key {quoted(name)} does not exist. This entry has no effect{near}",
            )
    for name, key in policies.keys.items():
        lapse = snapshot.lapse_of(name, at)
        if lapse is None:
            continue
        path: Path_ = ("keys", name)
        expired = key.expires is not None and key.expires <= at
        revoked = _revoked(name, key, policies.revoked)
        ended = [expired or (each.until is not None and each.until <= at) for each in key.sha256]
        if all(revoked):
            too = ", and has expired too" if all(ended) else ""
            yield path, f"the key is revoked{too}: every call is refused"
        elif all(ended):
            field = "expires" if expired else "sha256"
            yield (*path, field), f"the key {lapse}: every call is refused"
        else:
            yield (*path, "sha256"), "each text of the key is revoked or has expired: " + REFUSED
