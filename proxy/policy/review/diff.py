"""Differences between two folders of policies, in words and for recorded calls."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import MAXYEAR, UTC, datetime
from typing import Annotated, Any, Literal, cast

import orjson
from pydantic import AfterValidator, BaseModel, ConfigDict

from proxy.dialects.counting import read_distinct
from proxy.policy.decide.snapshot import Snapshot, VirtualKey
from proxy.policy.review.compare import Divergence, Way, by_way, decided, divergences, other_key
from proxy.policy.schema import PoliciesConfig
from proxy.types import Call, Endpoint, RequestHead
from proxy.words import counted

SECTIONS = {
    "deployments": "deployment",
    "keys": "key",
    "policies": "policy",
    "upstreams": "upstream",
    "tags": "tag",
    "prices": "prices of",
}
EXAMPLES = 3
ENDPOINTS = ("chat", "completions", "responses", "embeddings")
MAX_SHOWN = 80


def changes(old: PoliciesConfig, new: PoliciesConfig) -> Iterator[str]:
    """Yield the changes in words: a line for each part, then its details."""
    before, after = _plain(old), _plain(new)
    touched = {
        (section, name)
        for section in SECTIONS
        for name in {*before[section], *after[section]}
        if before[section].get(name) != after[section].get(name)
    }
    for section, kind in SECTIONS.items():
        for name in sorted({*before[section], *after[section]}):
            details = list(_details(section, before[section], after[section], name))
            if section == "deployments" and name in before[section] and name in after[section]:
                details += _through(after, after[section][name], touched)
            if details:
                yield f"{kind} {name}"
                yield from (f"    {detail}" for detail in details)
    for section in ("caller_tags", "cors", "price_table", "revoked"):
        yield from _walk(section, before[section], after[section])


def _plain(policies: PoliciesConfig) -> dict[str, Any]:
    dumped = policies.model_dump(by_alias=True, exclude_defaults=True, warnings=False)
    return {name: dumped.get(name, {}) for name in PoliciesConfig.model_fields}


def _details(
    section: str, before: Mapping[str, Any], after: Mapping[str, Any], name: str
) -> Iterator[str]:
    if name not in before:
        yield "added"
        if section == "prices":  # a reviewer must see the prices of a new model
            yield from _walk("", {}, after[name])
    elif name not in after:
        yield "removed"
    else:
        yield from _walk("", before[name], after[name])


def _through(
    after: Mapping[str, Any], deployment: Mapping[str, Any], touched: set[tuple[str, str]]
) -> Iterator[str]:
    """Yield the other changes for a deployment: of its policies, and of the upstreams that it or
    a rule of its policies uses."""
    policies = _followed(after["policies"], deployment.get("policy") or "default")
    for number, name in enumerate(policies):
        if ("policies", name) in touched:
            by = f" (policy {policies[0]} extends it)" if number else ""
            yield f"policy {name} changed{by}"
    parts = [deployment, *(after["policies"].get(name, {}) for name in policies)]
    for upstream in sorted(set(_upstreams(parts))):
        if ("upstreams", upstream) in touched:
            yield f"upstream {upstream} changed"


def _followed(policies: Mapping[str, Any], name: str) -> list[str]:
    """Return a policy's name and those of all that it extends, each once, in their order."""
    names = [name]
    for each in names:  # which grows as it is read
        extended = policies.get(each, {}).get("extends") or ()
        above = [extended] if isinstance(extended, str) else extended
        names += [other for other in above if other not in names]
    return names


def _upstreams(part: Any) -> Iterator[str]:
    """Yield the upstreams that targets anywhere below a part name."""
    if isinstance(part, dict):
        named = part.get("upstream")
        if isinstance(named, str):
            yield named
        for inner in part.values():
            yield from _upstreams(inner)
    elif isinstance(part, list):
        for inner in part:
            yield from _upstreams(inner)


def _walk(path: str, before: Any, after: Any) -> Iterator[str]:
    """Yield every difference below a path. Rules, guards and targets are matched by name, and
    by their order."""
    if before == after:
        return
    was, now = _named(before), _named(after)
    if was is None or now is None:
        yield f"{path}: {_shown(after)} (was {_shown(before)})"
        return
    for name in dict.fromkeys([*was, *now]):
        inside = f"{path}.{name}" if path else str(name)
        if name not in was:
            yield f"{inside}: {_shown(now[name])} (added)"
        elif name not in now:
            yield f"{inside}: {_shown(was[name])} (removed)"
        else:
            yield from _walk(inside, was[name], now[name])
    stayed = [[name for name in order if name in was and name in now] for order in (was, now)]
    if isinstance(before, list) and stayed[0] != stayed[1]:
        yield f"{path}: new order {', '.join(map(str, now))}"


def _named(value: Any) -> dict[str, Any] | None:
    """Return the parts of a value by their names; None for a value without named parts."""
    if isinstance(value, dict):
        return value
    if not isinstance(value, list):
        return None
    names = [_name(each) for each in value]
    if None in names or len(set(names)) < len(names):
        return None
    return {str(name): each for name, each in zip(names, value, strict=True)}


def _name(part: Any) -> str | None:
    if isinstance(part, str):
        return part
    if not isinstance(part, dict):
        return None
    if "upstream" in part and "model" in part:
        return f"{part['upstream']}/{part['model']}"
    name = part.get("name") or part.get("digest") or part.get("guard")
    return name if isinstance(name, str) else None


def _shown(value: Any) -> str:
    """Return a value in a line: a long text is cut, numbers such as prices never are."""
    if isinstance(value, str):
        return value if len(value) <= MAX_SHOWN else f"{value[:MAX_SHOWN]}…"
    return orjson.dumps(value, default=str).decode()


@dataclass(slots=True)
class Replayed:
    """What recorded calls would meet. ``ways`` counts divergences by kind and rule; ``unsized`` the
    calls whose line does not tell their parameters, ``unasked`` those that were refused before
    their model was read, or are of none of ``ENDPOINTS``."""

    calls: int = 0
    otherwise: int = 0
    unread: int = 0
    unasked: int = 0
    unsized: int = 0
    unknown: int = 0
    ways: Counter[Way] = field(default_factory=Counter)
    examples: dict[Way, list[str]] = field(default_factory=dict)

    def lines(self) -> Iterator[str]:
        yield f"{self.otherwise} of {counted(self.calls, 'call')} would have another result"
        for (kind, rule), count in self.ways.most_common():
            by = f" by {rule}" if rule else ""
            calls, some = counted(count, "call"), "; ".join(self.examples[kind, rule])
            yield f"    {kind}{by}: {calls}, for example {some}"
        if self.unsized:
            lines = counted(self.unsized, "line has", "lines have")
            yield f"{lines} no parameters, so changes by set and cap are not compared"
        if self.unread:
            yield counted(self.unread, "line is not a call", "lines are not calls")
        if self.unasked:
            calls = counted(self.unasked, "call was", "calls were")
            why = "no model was read, or the endpoint is not one of"
            yield f"{calls} skipped: {why} {', '.join(ENDPOINTS)}"
        if self.unknown:
            calls = counted(self.unknown, "call was", "calls were")
            yield f"{calls} skipped: OLD does not accept the key"


def replay(old: Snapshot, new: Snapshot, lines: Iterable[bytes]) -> Replayed:
    """Decide recorded calls under both snapshots.

    A line of the call log has the ``parameters`` of its request. ``body`` and ``headers`` are used
    if a line has them.
    """
    found = Replayed()
    for line in lines:
        record = _read(line)
        if record is None:
            found.unread += bool(line.strip())
            continue
        if not record.models or record.endpoint not in ENDPOINTS:
            found.unasked += 1
            continue
        key = old.key_named(record.key)
        if key is None:
            found.unknown += 1
            continue
        call = record.call(old, key)
        at = call.head.at
        if old.lapse_of(key.name, at) is not None and new.lapse_of(key.name, at) is not None:
            found.unknown += 1
            continue
        found.calls += 1
        sized = record.body is not None or record.parameters is not None
        found.unsized += not sized
        _compare(old, new, key, call, found, sized=sized)
    return found


def _compare(
    old: Snapshot, new: Snapshot, key: VirtualKey, call: Call, found: Replayed, *, sized: bool
) -> None:
    different = _divergences(old, new, key, call)
    ways = by_way(each for each in different if sized or each.kind != "parameters")
    found.otherwise += bool(ways)
    for way, change in ways.items():
        found.ways[way] += 1
        examples = found.examples.setdefault(way, [])
        if len(examples) < EXAMPLES:
            examples.append(f"{call.head.request_id} ({change})")


def _divergences(old: Snapshot, new: Snapshot, key: VirtualKey, call: Call) -> list[Divergence]:
    lapses = [snapshot.lapse_of(key.name, call.head.at) for snapshot in (old, new)]
    if any(lapses):
        return [other_key(key.name, *lapses)]
    return divergences(call, decided(old, key, call), decided(new, new.keys[key.name], call))


def _in_utc(time: datetime) -> datetime:
    if not 1 < time.year < MAXYEAR:  # else it may not exist in another zone
        raise ValueError("out of range")
    return time.astimezone(UTC) if time.tzinfo else time.replace(tzinfo=UTC)


class RecordedCall(BaseModel):
    """The fields of a line of the call log that a decision depends on."""

    model_config = ConfigDict(strict=True)

    event: Literal["call"]
    time: Annotated[datetime, AfterValidator(_in_utc)]
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

    def call(self, old: Snapshot, key: VirtualKey) -> Call:
        """Return the call as it was made.

        The client named the deployment and those tags that the old policies do not set.
        """
        head = RequestHead(
            dialect=str(self.dialect),
            endpoint=cast("Endpoint", self.endpoint),
            route=str(self.route),
            request_id=str(self.request_id),
            nonce=str(self.request_id),
            headers={name.lower(): value for name, value in (self.headers or {}).items()},
            at=self.time,
        )
        call = Call(
            head,
            self.body or self.parameters or {},
            models=tuple(self.models or ()),
            stream=self.stream is True,
        )
        plan = decided(old, key, call)
        if self.deployment and getattr(plan, "deployment", None) != self.deployment:
            head = replace(head, deployment=self.deployment)
        reach = key.deployments.get(self.deployment or "")
        if reach is not None:
            given = (self.tags or {}).items()
            brought = tuple((name, value) for name, value in given if reach.tags.get(name) != value)
            head = replace(head, tags=brought)
        return replace(call, head=head)


def _read(line: bytes) -> RecordedCall | None:
    try:
        read_distinct(line)
        return RecordedCall.model_validate_json(line)
    except ValueError:
        return None
