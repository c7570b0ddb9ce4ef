"""Differences between two folders of policies, in words and for recorded calls."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import orjson

from proxy.plural import counted
from proxy.policy.decide.snapshot import Snapshot, VirtualKey
from proxy.policy.review.compare import Divergence, Way, by_way, decided, divergences, other_key
from proxy.policy.schema import PoliciesConfig
from proxy.types import Call, RequestHead

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
            yield f"inherited policy {name} changed" if number else f"policy {name} changed"
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
        yield f"{self.otherwise} of {counted(self.calls, 'call')} would be decided differently"
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
    """Decide recorded calls under both. A line is one of the call log, with the ``parameters`` of
    its request, or has a ``body`` and ``headers`` beside, where they were captured; of what is not
    recorded both know nothing."""
    found = Replayed()
    for line in lines:
        record = _read(line)
        if record is None:
            found.unread += bool(line.strip())
            continue
        if not _is_decided(record):
            found.unasked += 1
            continue
        key = old.key_named(record.get("key"))
        if key is None:
            found.unknown += 1
            continue
        call = _call(old, key, record)
        at = call.head.at
        if old.lapse_of(key.name, at) is not None and new.lapse_of(key.name, at) is not None:
            found.unknown += 1
            continue
        found.calls += 1
        sized = isinstance(record.get("body", record.get("parameters")), dict)
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


def _read(line: bytes) -> dict[str, Any] | None:
    """Return a line of a call; None for any other."""
    try:
        record = orjson.loads(line)
    except orjson.JSONDecodeError:
        return None
    return record if isinstance(record, dict) and record.get("event") == "call" else None


def _is_decided(record: Mapping[str, Any]) -> bool:
    """True if policies decided on a call, by no more than its line tells."""
    return bool(record.get("models")) and record.get("endpoint") in ENDPOINTS


def _call(old: Snapshot, key: VirtualKey, record: Mapping[str, Any]) -> Call:
    """Return a recorded call as it was made. The deployment and the tags that it named itself are
    those that the old policies do not give it without."""
    request = str(record.get("request_id"))
    time = datetime.fromisoformat(str(record.get("time")))
    headers = {str(name).lower(): str(v) for name, v in (record.get("headers") or {}).items()}
    head = RequestHead(
        dialect=str(record.get("dialect")),
        endpoint=record["endpoint"],
        route=str(record.get("route")),
        request_id=request,
        nonce=request,
        headers=headers,
        at=time if time.tzinfo else time.replace(tzinfo=UTC),
    )
    body = record.get("body", record.get("parameters"))
    call = Call(
        head,
        body if isinstance(body, dict) else {},
        models=tuple(map(str, record["models"])),
        stream=record.get("stream") is True,
    )
    return _with_callers_tags(old, key, call, record)


def _with_callers_tags(
    old: Snapshot, key: VirtualKey, call: Call, record: Mapping[str, Any]
) -> Call:
    deployment, tags = record.get("deployment"), record.get("tags") or {}
    plan = decided(old, key, call)
    if deployment and getattr(plan, "deployment", None) != deployment:
        call = replace(call, head=replace(call.head, deployment=str(deployment)))
    if not deployment or deployment not in key.deployments:
        return call
    own = key.deployments[deployment].tags
    brought = tuple((name, str(v)) for name, v in tags.items() if own.get(name) != v)
    return replace(call, head=replace(call.head, tags=brought))
