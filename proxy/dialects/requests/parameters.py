"""Applies parameter rules of a policy to a request in OpenAI's form.

Parameters that the endpoint lacks are skipped. The output bound has several names: a cap lowers
each of them, and a value that a rule sets replaces each of them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

from proxy.dialects.vendors.openai import OPENAI
from proxy.fields.field_table import FIELDS, UNDECLARED
from proxy.fields.token_bounds import (
    BOUNDS,
    BUDGETS,
    CHOICES,
    FLOORS,
    GROUPS,
    LEGACY_DEFAULT,
    LENGTHS,
    counts_as,
    groups,
)
from proxy.types import Endpoint, Json, ParameterOverrides
from proxy.types.reasoning import WISHES, is_reasoning_model

SAME: Mapping[str, frozenset[str]] = {
    **dict.fromkeys(BOUNDS, frozenset(LENGTHS)),
    "n": frozenset(CHOICES) - {"best_of"},
}
"""Names of a parameter at servers, if it has more than one."""

READ = GROUPS.union(LENGTHS, CHOICES, WISHES)
"""Fields on which the change of a request may depend, beside those that the rules name."""

NOTHING: Json = {}
Change = Callable[[str, Any], Any]


def apply_parameters(
    endpoint: Endpoint,
    body: Json,
    changes: ParameterOverrides,
    obeyed: Collection[str],
    *,
    takes_zero: bool = False,
) -> Json:
    """Return the body as changed by rules, the same object if they change nothing.

    ``endpoint`` is the target's, ``obeyed`` are the fields that the target is known to obey. A cap
    leaves a bound of at least 1 unless the target ``takes_zero``: other servers read 0 as no bound.
    """
    if not (changes.set or changes.cap) or endpoint not in OPENAI.fields:
        return body  # an estimate has no parameters
    for name, value in changes.set.items():
        body = _set(endpoint, body, name, value)
    for name, maximum in changes.cap.items():
        minimum = 0 if takes_zero else 1
        body = _cap(endpoint, body, name, (minimum, maximum), obeyed)
    return body


def _set(endpoint: Endpoint, body: Json, name: str, value: Any) -> Json:
    is_known = name in OPENAI.fields[endpoint] or endpoint in FIELDS.get(name, UNDECLARED).elsewhere
    if not is_known and name not in BOUNDS:
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
    bounds: tuple[int, float],
    obeyed: Collection[str],
) -> Json:
    minimum, maximum = bounds

    def change(field: str, old: Any) -> Any:
        if field in BUDGETS:
            return _thought(old, maximum)
        if field not in BOUNDS:
            return min(old, maximum)
        return min(max(old, minimum), maximum) if old >= BOUNDS[field] else maximum

    body = _mapped(body, name, change)
    bound = _bound_name(endpoint, body, name) if name in BOUNDS else None
    if bound is None:
        return body
    for field in BOUNDS.keys() & body.keys():
        if field in obeyed and body[field] is not None:
            return body
    return body | {bound: _lowest(endpoint, body, maximum)}


def _thought(budget: Any, maximum: Any) -> Any:
    """Return a budget of thoughts that leaves room for an answer within a bound, because some
    servers count both together."""
    return min(budget, max(1, maximum - 1))


def _mapped(body: Json, name: str, change: Change, path: str = "") -> Json:
    """Return the body with a number changed under all its names, also in groups of options. A
    change to None removes the field."""
    names = SAME.get(name) or {name}
    if names.isdisjoint(body) and GROUPS.isdisjoint(body):
        return body
    changed: Json = {}
    for field, value in body.items():
        if field in names and type(value) in (int, float):
            if (new := change(counts_as(path, field), value)) is not None:
                changed[field] = new
        elif field in GROUPS and isinstance(value, dict):
            changed[field] = _mapped(value, name, change, f"{path}{field}.")
        else:
            changed[field] = value
    return changed


def _bound_name(endpoint: Endpoint, body: Json, name: str) -> str | None:
    """Return an endpoint's name for the bound of an answer, None if it has no answers."""
    if endpoint == "completions":
        return "max_tokens"
    if endpoint == "responses":
        return "max_output_tokens"
    if endpoint != "chat":
        return None
    if is_reasoning_model(str(body.get("model")), body):  # such models refuse the old name
        return "max_completion_tokens"
    return name


def _lowest(endpoint: Endpoint, body: Json, maximum: float) -> float:
    """Return the bound to add for a target that may ignore those of the request.

    It is the lowest of them and of the endpoint's default, at least 1.
    """
    lowest = min(maximum, LEGACY_DEFAULT) if endpoint == "completions" else maximum
    for path, group in groups(body):
        for name in BOUNDS.keys() & group.keys():
            if group[name] is not None and counts_as(path, name) in BOUNDS:
                lowest = min(lowest, group[name])
    return max(1, lowest)
