"""What a client may say to an upstream: of a request what the policy neither drops nor refuses, at
its top, within its fields and within groups of options.

Names are compared as some servers do: see ``squeezed``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from proxy.dialects.bounds import GROUPS, groups
from proxy.dialects.openai import OPENAI
from proxy.errors import BadField
from proxy.field_problems import NOT_ALLOWED
from proxy.types import Json, OpenedId, Upstream
from proxy.types.nested import NestedNames
from proxy.types.spelling import squeezed
from proxy.types.target import CHOSEN_IN_GROUPS, CONTAINER_IDS, USUAL
from proxy.words import ascii_word

ID = "id"
SQUEEZED = {name: squeezed(name) for fields in OPENAI.fields.values() for name in fields}
"""The fields of most requests."""
Dropped = dict[str, None]  # by the policy's own spelling: a client may have thousands


def permitted(body: Json, upstream: Upstream) -> tuple[Json, list[str]]:
    """Return a copy of what a client may say to an upstream, and the fields that the policy drops.
    Raises ``BadField`` for one that it refuses."""
    banned, nested = upstream.banned, upstream.nested.within
    names = [SQUEEZED.get(name) or squeezed(name) for name in body]
    if GROUPS.isdisjoint(body) and upstream.looked_for.isdisjoint(names):
        return dict(body), []
    allowed: Json = {}
    dropped: Dropped = {}
    for name, value in body.items():
        spelled = squeezed(name)
        known = banned.get(spelled)
        if known is not None and (known in upstream.drops or value is None):
            if value is not None:
                dropped[known] = None
            continue
        if known is not None and name not in upstream.accepts:
            _check(known, value, upstream, name)
        inner = nested.get(spelled)
        if inner is not None and (unsent := _check_within([value], inner, upstream, "")):
            dropped |= dict.fromkeys(sorted(unsent))
            allowed[name] = _without(value, inner, unsent)
        else:
            allowed[name] = value
        if name in GROUPS and isinstance(value, dict):
            _check_groups(name, value, upstream)
    return allowed, list(dropped)


def _check(known: str, value: Any, upstream: Upstream, name: str, path: str = "") -> None:
    """Raise ``BadField`` for a field that a client may not say, or not with this value."""
    if known in upstream.refuses or known in upstream.drops:
        raise _not_yours(known, name, path)
    if isinstance(value, str) and value not in USUAL.get(known, (value,)):
        allowed = ", ".join(sorted(USUAL[known]))
        problem = f"only {allowed} may be set: other values can cost more than the model's price"
        raise BadField(path + known, problem)


def _not_yours(known: str, name: str, path: str) -> BadField:
    """Return the refusal of a field, which the client may have spelled otherwise."""
    other = "" if name == known else f', also not as "{ascii_word(name)}"'
    return BadField(path + known, NOT_ALLOWED + other)


def _check_groups(name: str, value: Json, upstream: Upstream) -> None:
    """Raise ``BadField`` for what a client may not say within a group of options."""
    for path, group in groups({name: value}):
        for inner, member in group.items() if path else ():
            spelled = squeezed(inner)
            chosen = CHOSEN_IN_GROUPS.get(spelled)
            if chosen:
                raise _not_yours(chosen, inner, path)
            known = upstream.banned.get(spelled)
            if known is not None and known not in upstream.accepts:
                _check(known, member, upstream, inner, path)
            names = upstream.nested.within.get(spelled)
            for listed in _check_within([member], names, upstream, path) if names else ():
                raise BadField(path + listed, NOT_ALLOWED)


def _check_within(values: list[Any], names: NestedNames, upstream: Upstream, path: str) -> set[str]:
    """Return the names of what is to be dropped of values of one field, or of their items. Raises
    ``BadField`` for what a client may not say there. All values are looked at together, as there
    may be a hundred thousand. A text in the place of an object that has an id is that id; one
    that was opened for this very client is its to say."""
    dropped: set[str] = set()
    for inner, members in _known(values, names):
        if inner.listed in upstream.drops:
            dropped.add(str(inner.listed))
        elif inner.listed is not None and inner.listed not in upstream.accepts:
            if inner.listed in CONTAINER_IDS and all(isinstance(m, OpenedId) for m in members):
                continue
            raise BadField(path + inner.listed, NOT_ALLOWED)
        else:
            dropped |= _check_within(members, inner, upstream, path)
    return dropped


def _known(values: list[Any], names: NestedNames) -> Iterable[tuple[NestedNames, list[Any]]]:
    """Return which of the names stand in values, or in their items, and what is there."""
    objects = [item for value in values for item in _objects(value)]
    if ID in names.within:
        objects += [{ID: text} for value in values for text in _texts(value)]
    every = {name: squeezed(name) for name in set().union(*objects)}
    known = {name: step for name, step in every.items() if step in names.within}
    members: dict[str, list[Any]] = {}
    for item in objects if known else ():
        for name, member in item.items():
            if name in known and member is not None:
                members.setdefault(known[name], []).append(member)
    return [(names.within[step], found) for step, found in members.items()]


def _objects(value: Any) -> list[Json]:
    """Return an object, or those of a list."""
    items = value if isinstance(value, list) else (value,)
    return [item for item in items if isinstance(item, dict)]


def _texts(value: Any) -> list[str]:
    """Return a text, or those of a list; none that is empty."""
    items = value if isinstance(value, list) else (value,)
    return [item for item in items if item and isinstance(item, str)]


def _without(value: Any, names: NestedNames, dropped: set[str]) -> Any:
    """Return a copy of a value without what is dropped within it: None for an id alone."""
    if isinstance(value, str) and ID in names.within and names.within[ID].listed in dropped:
        return None
    if isinstance(value, list):
        return [
            _without(item, names, dropped) if isinstance(item, dict | str) else item
            for item in value
        ]
    if not isinstance(value, dict):
        return value
    kept: Json = {}
    for name, member in value.items():
        inner = names.within.get(squeezed(name))
        if inner is None:
            kept[name] = member
        elif inner.listed not in dropped:
            kept[name] = _without(member, inner, dropped)
    return kept
