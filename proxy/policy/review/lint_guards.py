"""Warnings about guards that call models or services."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from urllib.parse import urlsplit

from proxy.config.references import references
from proxy.policy import schema
from proxy.policy.compile.compiler import DEFAULT_POLICY
from proxy.policy.decide.snapshot import Snapshot
from proxy.policy.files.source import Finding, Path_
from proxy.policy.label_catalog import services_of
from proxy.policy.review.explain import rejects_opaque
from proxy.policy.schema.plugged import AnyGuard
from proxy.words import listed, quoted

LOOPBACK = ("127.", "localhost", "::1")


def findings(policies: schema.PoliciesConfig, snapshot: Snapshot) -> Iterator[Finding]:
    ask = {
        name: {whom for _, whom in services_of(each)} for name, each in snapshot.deployments.items()
    }
    for path, guard in written(policies):
        for key, name in references(guard, "deployment"):
            if _reaches(ask, name, name):
                message = (
                    "has guards that call the same deployment. "
                    "Calls made by guards are not inspected."
                )
                yield (*path, key), f"deployment {quoted(name)} {message}"
        for key, url in references(guard, "service"):
            if clear(url):
                yield (*path, key), "does not use https: all texts are sent unencrypted"


def opaque_notes(policies: schema.PoliciesConfig, snapshot: Snapshot) -> Iterator[str]:
    """Yield a note on deployments whose guards reject images. ``opaque: refuse`` turns it off."""
    names = [
        name
        for name, deployment in snapshot.deployments.items()
        if rejects_opaque(deployment.guards)
        and not _sets_opaque(policies, policies.deployments[name].policy or DEFAULT_POLICY)
    ]
    if names:
        yield (
            f"{listed(names)}: requests with images, audio or files are rejected, because guards "
            'cannot inspect them. Set "opaque: allow" in the policy to accept them.'
        )


def restore_notes(snapshot: Snapshot, environ: Mapping[str, str]) -> Iterator[str]:
    """Yield a note on deployments that restore values where no secret makes placeholders stable."""
    names = [name for name, each in snapshot.deployments.items() if each.guards.of_input.restores]
    if names and not (environ.get("HEADRACE_SECRET") or environ.get("HEADRACE_ID_SECRET")):
        yield (
            f"{listed(names)}: placeholders of restored values differ between processes, which "
            "costs cached tokens at providers. Set HEADRACE_SECRET to keep them."
        )


def _sets_opaque(policies: schema.PoliciesConfig, name: str) -> bool:
    return name in policies.policies and "opaque" in policies.policies[name].model_fields_set


def clear(url: str) -> bool:
    """Return True if requests to a URL are unencrypted and leave this machine."""
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
