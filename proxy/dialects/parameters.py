"""What the rules of a policy change in a request's parameters, in OpenAI's form.

A parameter that the endpoint does not have is left out. The bound on an answer has many names: a
cap lowers it under all of them, and a value that a rule sets takes the place of all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

from proxy.dialects.bounds import (
    BOUNDS,
    BUDGETS,
    CHOICES,
    FLOORS,
    GROUPS,
    LEGACY_DEFAULT,
    LENGTHS,
    counts_as,
    groups,
    is_bound,
)
from proxy.dialects.openai import OPENAI
from proxy.types import Changes, Endpoint, Json, Target
from proxy.types.reasoning import WISHES, reasons

SAME: Mapping[str, frozenset[str]] = {
    **dict.fromkeys(BOUNDS, frozenset(LENGTHS)),
    "n": frozenset(CHOICES) - {"best_of"},
}
"""The names under which a server may take a parameter, where it has more than one."""

ALSO: Mapping[Endpoint, frozenset[str]] = {
    "responses": frozenset({"reasoning_effort", "response_format", "verbosity"})
}
"""Parameters of a chat that an endpoint has in other words: what writes its requests knows them."""

READ = GROUPS.union(LENGTHS, CHOICES, WISHES)
"""The fields that may decide what becomes of a request, beside those that the rules name."""

NOTHING: Json = {}
Change = Callable[[str, Any], Any]


def apply_parameters(
    endpoint: Endpoint,
    body: Json,
    changes: Changes,
    obeyed: Collection[str],
    *,
    takes_zero: bool = False,
) -> Json:
    """Return the body as the rules want it; the very same one where they change nothing.

    ``endpoint`` is the target's, ``obeyed`` are the fields that the target is known to take.
    Unless it ``takes_zero`` for no tokens, a cap makes that the smallest bound: some servers take 0
    for no bound at all.
    """
    if not (changes.set or changes.cap) or endpoint not in OPENAI.fields:
        return body  # what counts a request has nothing that rules could change
    for name, value in changes.set.items():
        body = _set(endpoint, body, name, value)
    for name, most in changes.cap.items():
        least = 0 if takes_zero else 1
        body = _cap(endpoint, body, name, (least, most), obeyed)
    return body


def added_by(
    changes: Changes, endpoint: Endpoint, target: Target, obeyed: Collection[str]
) -> tuple[frozenset[str], Json]:
    """Return the fields of a request that the changes read, and the fields that they add for this
    endpoint of a target if the request has none of these. The result is cached in the changes."""
    key = endpoint, target.title
    if key not in changes.added:
        read = READ.union(changes.set, changes.cap)
        added = apply_parameters(endpoint, {"model": target.model}, changes, obeyed)
        changes.added[key] = read, {k: v for k, v in added.items() if k != "model"}
    return changes.added[key]


def _set(endpoint: Endpoint, body: Json, name: str, value: Any) -> Json:
    if name not in (OPENAI.fields[endpoint].keys() | ALSO.get(endpoint, ())) | BOUNDS.keys():
        return body

    def change(field: str, old: Any) -> Any:
        if field in BUDGETS:
            return _thought(old, value)
        return min(old, value) if field in FLOORS else None

    body = _mapped(body, name, change)
    if name in BOUNDS:
        bound = _bound_name(endpoint, body, name)
        return body if bound is None else body | {bound: value}
    return body | {name: value}


def _cap(
    endpoint: Endpoint,
    body: Json,
    name: str,
    within: tuple[int, float],
    obeyed: Collection[str],
) -> Json:
    least, most = within

    def change(field: str, old: Any) -> Any:
        if field in BUDGETS:
            return _thought(old, most)
        if field not in BOUNDS:
            return min(old, most)
        return min(max(old, least), most) if is_bound(field, old) else most

    body = _mapped(body, name, change)
    bound = _bound_name(endpoint, body, name) if name in BOUNDS else None
    if bound is None:
        return body
    for field in BOUNDS.keys() & body.keys():
        if field in obeyed and body[field] is not None:
            return body
    return body | {bound: _lowest(endpoint, body, most)}


def _thought(budget: Any, most: Any) -> Any:
    """Return a budget of thoughts within a bound; it leaves room for an answer, as servers that
    count both together want it."""
    return min(budget, max(1, most - 1))


def _mapped(body: Json, name: str, change: Change, path: str = "") -> Json:
    """Return the body with a number changed under all its names, in groups of options too; a change
    to None leaves the field out."""
    names = SAME.get(name) or {name}
    if names.isdisjoint(body) and GROUPS.isdisjoint(body):
        return body
    made: Json = {}
    for field, value in body.items():
        if field in names and type(value) in (int, float):
            if (new := change(counts_as(path, field), value)) is not None:
                made[field] = new
        elif field in GROUPS and isinstance(value, dict):
            made[field] = _mapped(value, name, change, f"{path}{field}.")
        else:
            made[field] = value
    return made


def _bound_name(endpoint: Endpoint, body: Json, name: str) -> str | None:
    """Return the name under which an endpoint takes the bound; None where it has no answers."""
    if endpoint == "completions":
        return "max_tokens"
    if endpoint == "responses":
        return "max_output_tokens"
    if endpoint != "chat":
        return None
    if reasons(str(body.get("model")), body):  # such models refuse the old name
        return "max_completion_tokens"
    return name


def _lowest(endpoint: Endpoint, body: Json, most: float) -> float:
    """Return the bound to add where the target may not know those that the request says.

    It is no higher than any of them, which are capped already, nor than what an endpoint does
    without a bound: a cap never lets a model answer more. It is 1 at least, as not all targets
    take 0.
    """
    lowest = min(most, LEGACY_DEFAULT) if endpoint == "completions" else most
    for path, group in groups(body):
        for name in BOUNDS.keys() & group.keys():
            if group[name] is not None and counts_as(path, name) in BOUNDS:
                lowest = min(lowest, group[name])
    return max(1, lowest)
