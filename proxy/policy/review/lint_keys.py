"""Warnings about keys that cannot be used, and revocations without effect."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from datetime import datetime

from proxy.policy import schema
from proxy.policy.decide.snapshot import Snapshot
from proxy.policy.files.load import maybe
from proxy.policy.files.source import Finding, Path_
from proxy.words import quoted

REJECTED = "every call with it is rejected"
UNINTENDED = 'If this is intended, write "keys: {}"; otherwise a running proxy ignores this change.'


def _revoked(name: str, key: schema.KeyConfig, revoked: Collection[str]) -> list[bool]:
    """Return for each secret of a key whether it is revoked, alone or with the key."""
    return [name in revoked or each.digest in revoked for each in key.sha256]


def findings(
    policies: schema.PoliciesConfig, snapshot: Snapshot, at: datetime
) -> Iterator[Finding]:
    """Yield the warnings at a time. A revoked name is reported only if it resembles a key: it may
    be the name of a removed key."""
    if not policies.keys:
        hint = "" if snapshot.wants_no_keys else f". {UNINTENDED}"
        yield ("keys",), f"there are no keys, so every call is rejected{hint}"
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
            too = " and expired" if all(ended) else ""
            yield path, f"the key is revoked{too}, so {REJECTED}"
        elif all(ended):
            field = "expires" if expired else "sha256"
            yield (*path, field), f"the key {lapse}, so {REJECTED}"
        else:
            yield (*path, "sha256"), f"all secrets of the key are revoked or expired, so {REJECTED}"
