"""What is allowed in guards that ask somebody else but was hardly meant."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from urllib.parse import urlsplit

from proxy.config.references import references
from proxy.policy import schema
from proxy.policy.decide.snapshot import Snapshot
from proxy.policy.files.source import Finding, Path_
from proxy.policy.label_catalog import services_of
from proxy.policy.schema.plugged import AnyGuard

MEASURED = 0.95  # the threshold that false alarms were counted at
LOOPBACK = ("127.", "localhost", "::1")


def findings(policies: schema.PoliciesConfig, snapshot: Snapshot) -> Iterator[Finding]:
    ask = {
        name: {whom for _, whom in services_of(each)} for name, each in snapshot.deployments.items()
    }
    for path, guard in written(policies):
        for key, name in references(guard, "deployment"):
            if _reaches(ask, name, name):
                message = "has guards that ask it again: they do not look at what guards ask"
                yield (*path, key), f"{name} {message}"
        if guard.guard == "injection" and guard.action != "flag" and errs_much(guard):
            message = "errs on more than 1 of 100 texts of some kinds at this threshold: flag by it"
            yield (*path, "by_model"), f"the model {message}"
        for key, url in references(guard, "service"):
            if clear(url):
                yield (*path, key), "is not https: all texts go in the clear"


def errs_much(guard: AnyGuard) -> bool:
    """True of an injection guard whose model has more false alarms than 1 %, as
    docs/guard-quality.md counts them at the default threshold."""
    return bool(getattr(guard, "by_model", False)) and getattr(guard, "threshold", 1.0) <= MEASURED


def clear(url: str) -> bool:
    """True if what is sent to an address can be read on its way."""
    parts = urlsplit(url)
    return parts.scheme == "http" and not (parts.hostname or "").startswith(LOOPBACK)


def written(policies: schema.PoliciesConfig) -> Iterator[tuple[Path_, AnyGuard]]:
    """Yield all guards, with where they are written."""
    for path, part in policies.parts():
        if isinstance(part, schema.DeploymentConfig):
            continue
        for stage, guards in (("input", part.input), ("output", part.output)):
            yield from (((*path, stage, n), guard) for n, guard in enumerate(guards or ()))


def asked(policies: schema.PoliciesConfig) -> set[str]:
    """Name the deployments that guards ask."""
    guards = (guard for _, guard in written(policies))
    return {name for guard in guards for _, name in references(guard, "deployment")}


def endpoints(policies: schema.PoliciesConfig) -> set[str]:
    """Name the upstreams that guards ask, or send calls to."""
    guards = [guard for _, guard in written(policies)]
    asked = {name for guard in guards for _, name in references(guard, "upstream")}
    return asked | {target.upstream for guard in guards for target in guard.to or ()}


def _reaches(ask: Mapping[str, set[str]], start: str, end: str) -> bool:
    seen: set[str] = set()
    ahead = [start]
    while ahead:
        for name in ask.get(ahead.pop(), set()) - seen:
            seen.add(name)
            ahead.append(name)
    return end in seen
