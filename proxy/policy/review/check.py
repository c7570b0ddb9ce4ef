"""``headrace check``: warnings about valid policies that are probably a mistake, and the report."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import orjson
from pydantic import ValidationError

from proxy.dialects import DIALECTS
from proxy.errors.words import format_count, quote
from proxy.policy import schema
from proxy.policy.compile import compile_policies
from proxy.policy.compile.rules import iter_limit_configs
from proxy.policy.compile.targets import find_gateway_reason
from proxy.policy.decide.snapshot import Snapshot
from proxy.policy.files.load import LoadedFolder, get_folder_name, load_policies_with_problems
from proxy.policy.files.source import Finding, KeyPath, PolicyError, Problem, format_path
from proxy.policy.files.validation import suggest_similar
from proxy.policy.review import lint_deployments, lint_guards, lint_rules
from proxy.policy.review.lint_guards import (
    iter_random_placeholder_notes,
    iter_rejected_media_notes,
    iter_stream_delay_notes,
)
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
    if not provider.is_openai_compatible or provider.endpoints != ENDPOINTS
}
"""Providers that lack features of OpenAI."""
UNUSED_MESSAGES = {
    "upstreams": "is not used by any deployment or rule. Use it in a target, or remove it.",
    "deployments": "cannot be called: no key lists it under deployments",
    "policies": 'is not used by any deployment. Set it under "policy:" there, or remove it.',
}
MAX_PLAUSIBLE_USD = 1_000  # per million tokens; the dearest models cost a few hundred


def list_warnings(loaded: LoadedFolder, snapshot: Snapshot, now: datetime) -> list[Problem]:
    """Return the warnings in the order of the files.

    ``now`` decides which keys have expired. Raise ``PolicyError`` if a lint fails unexpectedly.
    The error names the part that the lint inspected.
    """
    document, policies = loaded.document, loaded.policies
    lints: list[tuple[KeyPath, Iterator[Finding]]] = [
        (("deployments", name), lint_deployments.lint_deployment(deployment, snapshot))
        for name, deployment in snapshot.deployments.items()
    ]
    lints += [
        (("upstreams",), _find_unused_parts(policies, snapshot)),
        (("upstreams",), _check_upstream_urls_and_headers(policies)),
        (("tags",), _check_tags_and_limit_scopes(policies)),
        (("keys",), _find_ambiguous_models(snapshot)),
        (("keys",), _find_unusable_keys_and_revocations(policies, snapshot, now)),
        (("prices",), _check_price_table_rows(loaded)),
        (("policies",), lint_rules.find_exceeded_limits(snapshot, now)),
        (("policies",), lint_guards.lint_guard_calls(policies, snapshot)),
        (("policies",), lint_rules.lint_rules(snapshot)),
    ]
    problems: set[Problem] = set()
    for inspected_path, findings in lints:
        with document.wrap_errors_in_policy_error(inspected_path):
            problems |= {
                Problem(document.get_location(path), format_path(path), text)
                for path, text in findings
            }
    return sorted(problems)


def _find_unused_parts(policies: schema.PoliciesConfig, snapshot: Snapshot) -> Iterator[Finding]:
    for section, message in UNUSED_MESSAGES.items():
        for name in getattr(policies, section).keys() - snapshot.referenced_names[section]:
            if section != "policies" or policies.policies[name].rules:
                yield (section, name), message


def _check_upstream_urls_and_headers(policies: schema.PoliciesConfig) -> Iterator[Finding]:
    for name, upstream in policies.upstreams.items():
        path: KeyPath = ("upstreams", name)
        base_url = upstream.base_url.rstrip("/")
        if upstream.api_key and lint_guards.is_unencrypted(upstream.base_url):
            message = "does not use https: the API key and all prompts are sent unencrypted"
            yield (*path, "base_url"), message
        suffix = next((path for path in ENDPOINT_PATHS if base_url.endswith(path)), None)
        if suffix is not None:
            base = base_url.removesuffix(suffix)
            message = f"ends with {suffix}, which Headrace appends to it. Use {base}."
            yield (*path, "base_url"), message
        provider = PROVIDER_BY_HOST.get(urlsplit(upstream.base_url).hostname)
        if provider and upstream.provider is None and upstream.api_dialect == OPENAI.dialect:
            advice = f'To adapt requests, add "provider: {provider}".'
            yield path, f"lacks some features of OpenAI. {advice}"
        headers = {header.lower() for header in upstream.headers}
        for header in DIALECTS[upstream.api_dialect].server.required_headers:
            if header not in headers:
                dialect = upstream.dialect.capitalize()
                yield path, f'has no header "{header}" under "headers:". {dialect} requires it.'


def iter_gateway_notes(policies: schema.PoliciesConfig) -> Iterator[str]:
    for name, upstream in policies.upstreams.items():
        if (sign := find_gateway_reason(upstream)) is not None:
            yield (
                f"upstreams.{name}: is a gateway ({sign}). Clients can set only the request fields "
                'of its API and those under "accepts"; others are dropped, and so is "metadata".'
            )


def _check_tags_and_limit_scopes(policies: schema.PoliciesConfig) -> Iterator[Finding]:
    tags = [part.tags for part in policies.deployments.values()]
    tags += [part.tags for part in policies.keys.values()]
    used = {name for names in tags for name in names}
    for name, tag in policies.tags.items():
        if name not in used and not tag.caller:
            message = "is never set: no deployment or key sets it, and clients may not set it. "
            yield ("tags", name), f'{message}Remove it, or add "caller: true".'
    client_tags = {f"tag.{tag}" for tag in used if policies.tags[tag].caller}
    for path, limit in iter_limit_configs(policies):
        mixed = [per for per in limit.per if per in client_tags]
        if mixed and "key" not in limit.per and limit.across is None:
            message = f"each key has its own counter, because clients may set {mixed[0]}. For one "
            message += 'counter, add "across: keys", or remove "caller: true" from the tag.'
            yield (*path, "per"), message


def _find_ambiguous_models(snapshot: Snapshot) -> Iterator[Finding]:
    for key in snapshot.keys.values():
        for name, deployments in key.by_model.items():
            if key.find_sole_or_default(deployments) is None and "/" not in name:
                names = ", ".join(sorted(d.deployment.name for d in deployments))
                message = f"model {quote(name)} is served by deployments {names}. Calls for it "
                message += "must select one with the header x-headrace-deployment."
                yield ("keys", key.name, "deployments"), message


def _find_unusable_keys_and_revocations(
    policies: schema.PoliciesConfig, snapshot: Snapshot, now: datetime
) -> Iterator[Finding]:
    """Yield keys that no call can use, and revocations without effect.

    The name of a removed key may stay in ``revoked``, so only one similar to a key's is a finding.
    """
    if not policies.keys:
        hint = '. A running proxy keeps its previous policies unless you write "keys: {}".'
        hint = "" if snapshot.has_empty_keys else hint
        yield ("keys",), f"there are no keys, so every call is rejected{hint}"
    for index, name in enumerate(policies.revoked):
        similar = "" if name in policies.keys else suggest_similar(name, policies.keys)
        if similar:
            message = f"virtual key {quote(name)} does not exist. This entry has no effect{similar}"
            yield ("revoked", index), message
    for name in policies.keys:
        reason = snapshot.find_rejection_reason(name, now)
        if reason is not None:
            text = reason if reason.startswith("expired") else f"is {reason}"
            yield ("keys", name), f"the key {text}, so every call with it is rejected"


def _check_price_table_rows(loaded: LoadedFolder) -> Iterator[Finding]:
    """Yield the invalid, repeated and implausible rows of the price table, in use or not."""
    for provider, names in loaded.policies.prices.items():
        for name, value in names.items():
            starts: set[date | None] = set()
            for index, row in enumerate(schema.iter_price_rows(value)):
                path = loaded.document.get_written_path(("prices", provider, name, index))
                if isinstance(row, ValidationError):
                    yield path, "is not a valid price. Targets of this model will be rejected."
                    continue
                if row.since in starts:
                    yield path, "has the same start as another row. Remove one of them."
                starts.add(row.since)
                yield from ((path, problem) for problem in _find_implausible_prices(row))


def _find_implausible_prices(row: schema.PriceConfig) -> Iterator[str]:
    parts: list[Any] = [row, *row.tiers]
    for part in parts:
        for name, usd in part:
            if isinstance(usd, Decimal) and usd > MAX_PLAUSIBLE_USD:
                yield f"{name} is implausible: {usd:f} USD per million tokens. Check the unit."
    if row.input is not None and row.cached_input is not None and row.cached_input > row.input:
        yield "cached_input costs more than input. Check both prices."
    bounds = [tier.above for tier in row.tiers]
    if len(set(bounds)) < len(bounds):
        yield "two tiers start above the same number of tokens. Remove one of them."


@frozen
class CheckReport:
    """Errors and warnings of a folder, notes on the delay of streams, and other notes.

    There are no warnings about a folder with errors.
    """

    folder: Path
    summary: str
    errors: tuple[Problem, ...] = ()
    warnings: tuple[Problem, ...] = ()
    delays: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def iter_problems(self) -> Iterator[tuple[str, Problem]]:
        yield from (("error", problem) for problem in self.errors)
        yield from (("warning", problem) for problem in self.warnings)


def check_folder(
    folder: Path, environ: Mapping[str, str] | None, now: datetime | None = None
) -> CheckReport:
    """Check a folder as ``serve`` reads it, without its secrets if ``environ`` is None."""
    loaded = load_policies_with_problems(folder)
    try:
        snapshot = compile_policies(loaded, environ)
        with loaded.document.wrap_errors_in_policy_error(()):
            problems = tuple(list_warnings(loaded, snapshot, now or datetime.now(UTC)))
            delays = tuple(iter_stream_delay_notes(snapshot))
            notes = [
                *iter_gateway_notes(loaded.policies),
                *iter_rejected_media_notes(loaded.policies, snapshot),
            ]
            notes += iter_random_placeholder_notes(snapshot, environ) if environ is not None else ()
    except PolicyError as error:
        summary = f"invalid, {format_count(len(error.problems), 'error')}"
        return CheckReport(folder=folder, summary=summary, errors=error.problems)
    deployments, keys = format_count(len(snapshot.deployments), "deployment"), len(snapshot.keys)
    total = f", {format_count(len(problems), 'warning')}" if problems else ""
    summary = (
        f"valid{total} (revision {snapshot.revision}, {deployments}, {format_count(keys, 'key')})"
    )
    return CheckReport(folder, summary, warnings=problems, delays=delays, notes=tuple(notes))


def format_text(report: CheckReport) -> str:
    warnings = (f"{p.location}: warning: {p.path}: {p.message}" for p in report.warnings)
    summary = f"{report.folder}: {report.summary}"
    lines = (*map(str, report.errors), *warnings, *report.delays, *report.notes, summary)
    return "\n".join(lines)


def format_json(report: CheckReport) -> str:
    """Return the report as JSON with the members ``problems``, ``held`` and ``notes``.

    A problem has severity, file, line, column, path and message. ``held`` lists the streaming
    delays of output guards.
    """
    problems = [
        {"severity": kind, **p.location._asdict(), "path": p.path, "message": p.message}
        for kind, p in report.iter_problems()
    ]
    data = {"good": not report.errors, "summary": report.summary, "problems": problems}
    data |= {"held": report.delays, "notes": report.notes}
    return orjson.dumps(data, option=orjson.OPT_INDENT_2).decode()


def format_github(report: CheckReport) -> str:
    """Return workflow commands, which GitHub shows as annotations of a change."""
    lines = []
    for kind, problem in report.iter_problems():
        folder, text = report.folder, f"{problem.path}: {problem.message}"
        name, line, column = problem.location
        file = folder if name == get_folder_name(folder) else folder / name
        text = text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
        lines.append(f"::{kind} file={file},line={line},col={column}::{text}")
    return "\n".join([*lines, f"{report.folder}: {report.summary}"])


FORMATS: dict[str, Callable[[CheckReport], str]] = {
    "text": format_text,
    "json": format_json,
    "github": format_github,
}
