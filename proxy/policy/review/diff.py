"""Lists the changes between two policy folders, and their effect on recorded calls."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import MAXYEAR, UTC, datetime
from typing import Annotated, Any, Literal, cast

import orjson
from pydantic import AfterValidator, BaseModel, ConfigDict

from proxy.dialects.wire.strict_json import parse_rejecting_duplicates
from proxy.errors.words import format_count
from proxy.policy.decide.snapshot import Snapshot, VirtualKey
from proxy.policy.review.compare import MAX_CHANGES, ChangeTally, compare_snapshots, decide_call
from proxy.policy.schema import PoliciesConfig
from proxy.types import Call, Endpoint, RequestHead

KIND_BY_SECTION = {
    "deployments": "deployment",
    "keys": "key",
    "policies": "policy",
    "upstreams": "upstream",
    "tags": "tag",
    "prices": "prices of",
}
REPLAYED_ENDPOINTS = ("chat", "completions", "responses", "embeddings")
MAX_VALUE_CHARS = 80
NO_CALL, UNKNOWN_KEY = "not a call", "OLD does not accept the key"
UNSUPPORTED = f"the log has no model, or an endpoint other than {', '.join(REPLAYED_ENDPOINTS)}"


def list_changes(old: PoliciesConfig, new: PoliciesConfig) -> Iterator[str]:
    """Yield a line for each changed part, followed by its details."""
    old_data, new_data = (
        policies.model_dump(by_alias=True, exclude_defaults=True, warnings=False)
        for policies in (old, new)
    )
    for section in PoliciesConfig.model_fields:
        old_data.setdefault(section, {})
        new_data.setdefault(section, {})
    names = {
        section: sorted({*old_data[section], *new_data[section]}) for section in KIND_BY_SECTION
    }
    changed = {
        (section, name)
        for section in KIND_BY_SECTION
        for name in names[section]
        if old_data[section].get(name) != new_data[section].get(name)
    }
    for section, kind in KIND_BY_SECTION.items():
        for name in names[section]:
            details = list(_describe_changes(section, old_data[section], new_data[section], name))
            if section == "deployments" and name in old_data[section] and name in new_data[section]:
                details += _find_indirect_changes(new_data, new_data[section][name], changed)
            if details:
                yield f"{kind} {name}"
                yield from (f"    {detail}" for detail in details)
    for section in ("caller_tags", "cors", "price_table", "revoked"):
        yield from _compare_values(section, old_data[section], new_data[section])


def _describe_changes(
    section: str, old_parts: Mapping[str, Any], new_parts: Mapping[str, Any], name: str
) -> Iterator[str]:
    if name not in old_parts:
        yield "added"
        if section == "prices":  # reviewers must see the prices of a new model
            yield from _compare_values("", {}, new_parts[name])
    elif name not in new_parts:
        yield "removed"
    else:
        yield from _compare_values("", old_parts[name], new_parts[name])


def _find_indirect_changes(
    new_data: Mapping[str, Any], deployment: Mapping[str, Any], changed: set[tuple[str, str]]
) -> Iterator[str]:
    names = [deployment.get("policy") or "default"]
    for policy in names:  # grows by the policies that a policy extends
        bases = new_data["policies"].get(policy, {}).get("extends") or ()
        names += [base for base in bases if base not in names]
    for policy in names:
        if ("policies", policy) in changed:
            by = f" (policy {names[0]} extends it)" if policy != names[0] else ""
            yield f"policy {policy} changed{by}"
    parts = [deployment, *(new_data["policies"].get(policy, {}) for policy in names)]
    for upstream in sorted(set(_find_upstream_names(parts))):
        if ("upstreams", upstream) in changed:
            yield f"upstream {upstream} changed"


def _find_upstream_names(part: Any) -> Iterator[str]:
    if isinstance(part, dict):
        name = part.get("upstream")
        if isinstance(name, str):
            yield name
    if isinstance(part, (dict, list)):
        for inner in part.values() if isinstance(part, dict) else part:
            yield from _find_upstream_names(inner)


def _compare_values(path: str, old_value: Any, new_value: Any) -> Iterator[str]:
    """Yield every difference below a path. Items of lists are compared by name and by order."""
    if old_value == new_value:
        return
    old, new = _group_parts_by_name(old_value), _group_parts_by_name(new_value)
    if old is None or new is None:
        yield f"{path}: {_format_value(new_value)} (was {_format_value(old_value)})"
        return
    for name in dict.fromkeys([*old, *new]):
        inner = f"{path}.{name}" if path else str(name)
        if name not in old:
            yield f"{inner}: {_format_value(new[name])} (added)"
        elif name not in new:
            yield f"{inner}: {_format_value(old[name])} (removed)"
        else:
            yield from _compare_values(inner, old[name], new[name])
    order = [[name for name in names if name in old and name in new] for names in (old, new)]
    if isinstance(old_value, list) and order[0] != order[1]:
        yield f"{path}: new order {', '.join(map(str, new))}"


def _group_parts_by_name(value: Any) -> dict[str, Any] | None:
    """Return the items by name, or None if an item has no name or two have the same."""
    if isinstance(value, dict):
        return value
    names = [_get_part_name(item) for item in value] if isinstance(value, list) else [None]
    if None in names or len(set(names)) < len(names):
        return None
    return {str(name): item for name, item in zip(names, value, strict=True)}


def _get_part_name(part: Any) -> str | None:
    if isinstance(part, str):
        return part
    if not isinstance(part, dict):
        return None
    if "upstream" in part and "model" in part:
        return f"{part['upstream']}/{part['model']}"
    name = part.get("name") or part.get("digest") or part.get("guard")
    return name if isinstance(name, str) else None


def _format_value(value: Any) -> str:
    """Return a value on one line. Long text is cut, numbers are not."""
    if isinstance(value, str):
        return value if len(value) <= MAX_VALUE_CHARS else f"{value[:MAX_VALUE_CHARS]}…"
    return orjson.dumps(value, default=str).decode()


@dataclass(slots=True)
class ReplayResult:
    """Result of replaying a call log under two revisions.

    ``skipped`` counts lines by the reason why they were not replayed.
    """

    calls: int = 0
    changed: int = 0
    without_parameters: int = 0
    skipped: Counter[str] = field(default_factory=Counter)
    tally: ChangeTally = field(default_factory=ChangeTally)

    def format_lines(self) -> Iterator[str]:
        yield f"{self.changed} of {format_count(self.calls, 'call')} would have another result"
        changes = self.tally.by_change.items()
        for (kind, rule), count in sorted(changes, key=lambda change: -change[1].calls):
            by = f" by {rule}" if rule else ""
            examples = "; ".join(f"{request_id} ({text})" for request_id, text in count.examples)
            yield f"    {kind}{by}: {format_count(count.calls, 'call')}, for example {examples}"
        if self.tally.is_truncated:
            yield f"only the last {MAX_CHANGES} changes are shown, older ones are not"
        if self.without_parameters:
            lines = format_count(self.without_parameters, "line has", "lines have")
            yield f"{lines} no parameters, so changes by set and cap are not compared"
        for reason, number in self.skipped.items():
            yield f"{format_count(number, 'line was', 'lines were')} skipped: {reason}"


def replay_calls(old: Snapshot, new: Snapshot, lines: Iterable[bytes]) -> ReplayResult:
    """Decide the calls of a call log under two snapshots."""
    result = ReplayResult()
    for line in filter(bytes.strip, lines):
        recorded = parse_recorded_call(line)
        if recorded is None:
            result.skipped[NO_CALL] += 1
            continue
        if not recorded.models or recorded.endpoint not in REPLAYED_ENDPOINTS:
            result.skipped[UNSUPPORTED] += 1
            continue
        key = old.find_key(recorded.key)
        reasons = [s.find_rejection_reason(str(recorded.key), recorded.time) for s in (old, new)]
        if key is None or None not in reasons:
            result.skipped[UNKNOWN_KEY] += 1
            continue
        result.calls += 1
        call = recorded.build_call(old, key)
        differences = compare_snapshots(old, new, call, key)
        if recorded.body is None and recorded.parameters is None:
            result.without_parameters += 1
            differences = [d for d in differences if d.kind != "parameters"]
        result.changed += bool(result.tally.count_changes(call.head.request_id, differences))
    return result


def _to_utc(time: datetime) -> datetime:
    if not 1 < time.year < MAXYEAR:  # another time zone may have no such time
        raise ValueError("out of range")
    return time.astimezone(UTC) if time.tzinfo else time.replace(tzinfo=UTC)


class RecordedCall(BaseModel):
    """The fields of a logged call that decide it. Some logs have no ``headers`` and no ``body``."""

    model_config = ConfigDict(strict=True)

    event: Literal["call"]
    time: Annotated[datetime, AfterValidator(_to_utc)]
    request_id: str | None = None
    key: str | None = None
    dialect: str | None = None
    endpoint: str | None = None
    route: str | None = None
    models: list[str] | None = None
    stream: bool | None = None
    deployment: str | None = None
    tags: dict[str, str] | None = None
    headers: dict[str, str] | None = None
    parameters: dict[str, Any] | None = None
    body: dict[str, Any] | None = None

    def build_call(self, old: Snapshot, key: VirtualKey) -> Call:
        """Return the call as the client may have sent it.

        It names the logged deployment if ``old`` would select another one, and has the logged tags
        that neither the key nor the deployment sets.
        """
        head = RequestHead(
            dialect=str(self.dialect),
            endpoint=cast("Endpoint", self.endpoint),
            route=str(self.route),
            request_id=str(self.request_id),
            call_id=str(self.request_id),
            headers={name.lower(): value for name, value in (self.headers or {}).items()},
            received_at=self.time,
        )
        models, body = tuple(self.models or ()), self.body or self.parameters or {}
        call = Call(head, body, requested_models=models, stream=self.stream is True)
        decision = decide_call(old, key, call)
        if self.deployment and getattr(decision, "deployment", None) != self.deployment:
            head = replace(head, deployment=self.deployment)
        key_deployment = key.deployments.get(self.deployment or "")
        if key_deployment is not None:
            tags = (self.tags or {}).items()
            client_tags = (tag for tag in tags if key_deployment.tags.get(tag[0]) != tag[1])
            head = replace(head, tags=tuple(client_tags))
        return replace(call, head=head)


def parse_recorded_call(line: bytes) -> RecordedCall | None:
    try:
        parse_rejecting_duplicates(line)
        return RecordedCall.model_validate_json(line)
    except ValueError:
        return None
