"""Warnings of ``headrace check``: valid policies that are probably a mistake."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime
from urllib.parse import urlsplit

from proxy.dialects import DIALECTS
from proxy.errors.words import quoted
from proxy.policy import schema
from proxy.policy.compile.deployments import embedding_deployments
from proxy.policy.compile.rules import written
from proxy.policy.compile.upstreams import gateway_sign
from proxy.policy.decide.snapshot import Snapshot
from proxy.policy.files.load import Loaded, maybe
from proxy.policy.files.source import Finding, KeyPath, Problem, problem_at
from proxy.policy.review import lint_deployments, lint_guards, lint_limits, lint_rules
from proxy.runtime.frozen import frozen
from proxy.types.providers import ENDPOINTS, OPENAI, PROVIDERS

ENDPOINT_PATHS = sorted(
    {path for dialect in DIALECTS.values() for path in dialect.server.paths.values()},
    key=lambda path: (-len(path), path),
)
"""Paths that are appended to a base URL, longest first."""
PROVIDER_BY_HOST = {
    urlsplit(provider.base_url).hostname: provider.name
    for provider in PROVIDERS.values()
    if provider.base_url and provider.dialect == OPENAI.dialect
    if not provider.is_plain or provider.endpoints != ENDPOINTS
}
"""Providers that lack features of OpenAI."""


@frozen
class LintInput:
    """The input of a lint. ``now`` decides which keys have expired."""

    policies: schema.PoliciesConfig
    snapshot: Snapshot
    now: datetime


def warnings(loaded: Loaded, snapshot: Snapshot, now: datetime) -> list[Problem]:
    """Return the warnings at a time, in the order of the files. Raise ``PolicyError`` if a lint
    fails unexpectedly; it names the part that the lint inspected."""
    document, lint_input = loaded.document, LintInput(loaded.policies, snapshot, now)
    findings: list[Finding] = []
    for name, deployment in snapshot.deployments.items():
        with document.located(("deployments", name)):
            findings += lint_deployments.findings(("deployments", name), deployment, snapshot)
    for section, lint in LINTS:
        with document.located((section,)):
            findings += lint(lint_input)
    return sorted({problem_at(document.place(path), path, text) for path, text in findings})


def _unused_upstreams(given: LintInput) -> Iterator[Finding]:
    used = lint_guards.used_upstreams(given.policies)
    for _, part in given.policies.parts():
        if not isinstance(part, schema.PolicyConfig):
            used |= {t.upstream for t in (*(part.targets or ()), *(part.fallback or ()))}
    for name in given.policies.upstreams.keys() - used:
        message = "is not used by any deployment or rule. Use it in a target, or remove it."
        yield ("upstreams", name), message


def _upstreams(given: LintInput) -> Iterator[Finding]:
    for name, upstream in given.policies.upstreams.items():
        path: KeyPath = ("upstreams", name)
        base_url = upstream.base_url.rstrip("/")
        if upstream.api_key and lint_guards.is_unencrypted(upstream.base_url):
            message = "does not use https: the API key and all prompts are sent unencrypted"
            yield (*path, "base_url"), message
        suffix = next((each for each in ENDPOINT_PATHS if base_url.endswith(each)), None)
        if suffix is not None:
            base = base_url.removesuffix(suffix)
            message = f"ends with {suffix}, which Headrace appends to it. Use {base}."
            yield (*path, "base_url"), message
        provider = PROVIDER_BY_HOST.get(urlsplit(upstream.base_url).hostname)
        if provider and upstream.provider is None and upstream.spoken == OPENAI.dialect:
            yield path, f'lacks some features of OpenAI. Add "provider: {provider}".'
        headers = {header.lower() for header in upstream.headers}
        for header in DIALECTS[upstream.spoken].server.required_headers:
            if header not in headers:
                dialect = upstream.dialect.capitalize()
                yield path, f'has no header "{header}" under "headers:". {dialect} requires it.'


def gateway_notes(policies: schema.PoliciesConfig) -> Iterator[str]:
    """Yield a note on each upstream that is a gateway."""
    for name, upstream in policies.upstreams.items():
        if (sign := gateway_sign(upstream)) is not None:
            yield (
                f"upstreams.{name}: is a gateway ({sign}). Clients can set only the request fields "
                'of its API and those under "accepts"; others are dropped, and so is "metadata".'
            )


def _unused_deployments(given: LintInput) -> Iterator[Finding]:
    called = {name for key in given.snapshot.keys.values() for name in key.deployments}
    called |= lint_guards.called_deployments(given.policies)
    called |= {name for _, name in embedding_deployments(given.policies)}
    for name in given.snapshot.deployments.keys() - called:
        yield ("deployments", name), "cannot be called: no key lists it under deployments"


def _tags(given: LintInput) -> Iterator[Finding]:
    policies = given.policies
    tags = [part.tags for part in policies.deployments.values()]
    tags += [part.tags for part in policies.keys.values()]
    used = {name for names in tags for name in names}
    for name, tag in policies.tags.items():
        if name not in used and not tag.caller:
            message = "is never set: no deployment or key sets it, and clients may not set it. "
            yield ("tags", name), f'{message}Remove it, or add "caller: true".'
    client_tags = {f"tag.{tag}" for tag in used if policies.tags[tag].caller}
    for path, limit in written(policies):
        mixed = [per for per in limit.per if per in client_tags]
        if mixed and "key" not in limit.per and limit.across is None:
            message = f"each key has its own counter, because clients may set {mixed[0]}. For one "
            message += 'counter, add "across: keys", or remove "caller: true" from the tag.'
            yield (*path, "per"), message


def _ambiguous_models(given: LintInput) -> Iterator[Finding]:
    """Yield the models for which calls with a key must select a deployment."""
    for key in given.snapshot.keys.values():
        for name, deployments in key.named.items():
            if key.default_of(deployments) is None and "/" not in name:
                names = ", ".join(sorted(each.deployment.name for each in deployments))
                message = f"model {quoted(name)} is served by deployments {names}. Calls for it "
                message += "must select one with the header x-headrace-deployment."
                yield ("keys", key.name, "deployments"), message


def _keys(given: LintInput) -> Iterator[Finding]:
    """Yield keys that no call can use, and revocations without effect.

    The name of a removed key may stay in ``revoked``, so only a name like that of a key is a
    finding.
    """
    policies, snapshot, now = given.policies, given.snapshot, given.now
    if not policies.keys:
        hint = 'If this is intended, write "keys: {}"; otherwise a running proxy ignores this '
        hint = "" if snapshot.wants_no_keys else f". {hint}change."
        yield ("keys",), f"there are no keys, so every call is rejected{hint}"
    for index, name in enumerate(policies.revoked):
        similar = "" if name in policies.keys else maybe(name, policies.keys)
        if similar:
            message = f"key {quoted(name)} does not exist. This entry has no effect{similar}"
            yield ("revoked", index), message
    for name, key in policies.keys.items():
        lapse = snapshot.lapse_of(name, now)
        if lapse is None:
            continue
        path: KeyPath = ("keys", name)
        is_expired = key.expires is not None and key.expires <= now
        secrets = key.sha256
        all_revoked = all({name, secret.digest} & {*policies.revoked} for secret in secrets)
        all_expired = is_expired or all(each.until and each.until <= now for each in secrets)
        if all_revoked:
            message = f"the key is revoked{' and expired' if all_expired else ''}"
        elif all_expired:
            path, message = (*path, "expires" if is_expired else "sha256"), f"the key {lapse}"
        else:
            path = (*path, "sha256")
            message = "all secrets of the key are revoked or expired"
        yield path, f"{message}, so every call with it is rejected"


LINTS: tuple[tuple[str, Callable[[LintInput], Iterator[Finding]]], ...] = (
    ("upstreams", _unused_upstreams),
    ("upstreams", _upstreams),
    ("deployments", _unused_deployments),
    ("tags", _tags),
    ("keys", _ambiguous_models),
    ("keys", _keys),
    ("policies", lambda given: lint_limits.findings(given.snapshot, given.now)),
    ("policies", lambda given: lint_guards.findings(given.policies, given.snapshot)),
    ("policies", lambda given: lint_rules.unused_policies(given.policies, given.snapshot)),
    ("policies", lambda given: lint_rules.findings(given.snapshot)),
)
"""Lints that inspect several parts, with the section that an unexpected error is reported for."""
