"""What a client may say to an upstream: of a request what the policy neither drops nor refuses, at
its top, within its fields and within groups of options.

Names are compared as some servers do: see ``squeezed``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from proxy.dialects.bounds import GROUPS, groups
from proxy.dialects.openai import OPENAI
from proxy.errors import BadField
from proxy.field_problems import NOT_ALLOWED
from proxy.types import Json, OpenedId, Upstream
from proxy.types.nested import ANYWHERE, NestedNames
from proxy.types.spelling import squeezed
from proxy.types.target import CHOSEN_IN_GROUPS, CLIENTS_OWN, CONTAINER_IDS, USUAL
from proxy.words import ascii_word

ID = "id"
SQUEEZED = {name: squeezed(name) for fields in OPENAI.fields.values() for name in fields}
"""The fields of most requests."""
FILE_ID, INPUT, LIST, METADATA, SKILL_ID = "file_id", "input", "[]", "metadata", "skill_id"
OWN = frozenset(map(squeezed, CLIENTS_OWN))
Path = tuple[str, ...]
"""Steps from the top of a body to a member: its name, and ``[]`` where the member is a list."""
Names = tuple[NestedNames, ...]
"""Names that may go on from one place, the longest first. The last one is the root, by which a name
begins, unless the place is within the client's own JSON."""


class FieldGroup(NamedTuple):
    """The values of equal paths, and the names that may go on from them."""

    outer: FieldGroup | None
    step: str
    values: list[Any]
    names: Names
    is_group: bool


Dropped = dict[str, None]  # by the policy's own spelling: a client may have thousands


def permitted(body: Json, upstream: Upstream) -> tuple[Json, list[str]]:
    """Return a copy of what a client may say to an upstream, and the fields that the policy drops.
    Raises ``BadField`` for one that it refuses."""
    banned = upstream.banned
    names = [SQUEEZED.get(name) or squeezed(name) for name in body]
    if GROUPS.isdisjoint(body) and banned.keys().isdisjoint(names):
        return _without_nested(dict(body), upstream, [])
    allowed: Json = {}
    dropped: Dropped = {}
    for name, value in body.items():
        known = banned.get(squeezed(name))
        if known is not None and (known in upstream.drops or value is None):
            if value is not None:
                dropped[known] = None
            continue
        if known is not None and name not in upstream.accepts:
            _check(known, value, upstream, name)
        allowed[name] = value
        if name in GROUPS and isinstance(value, dict):
            _check_groups(name, value, upstream)
    return _without_nested(allowed, upstream, list(dropped))


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


def _without_nested(body: Json, upstream: Upstream, dropped: list[str]) -> tuple[Json, list[str]]:
    """Return a body without the nested fields that the policy drops, and all that is dropped.
    Raises ``BadField`` for a nested field that a client may not set. An id that was opened for this
    very client is its to send."""
    unsent: set[str] = set()
    for path, listed, members in _nested_fields(body, upstream.nested):
        is_dropped = listed in upstream.drops
        if is_dropped and not GROUPS.intersection(path[:1]):
            unsent.add(listed)
        elif listed in CONTAINER_IDS and all(isinstance(member, OpenedId) for member in members):
            continue
        elif is_dropped or listed not in upstream.accepts:
            raise BadField(_shown(path, listed), NOT_ALLOWED)
    if unsent:
        body = _without(body, (upstream.nested,), upstream.nested, frozenset(unsent), is_group=True)
    return body, [*dropped, *sorted(unsent)]


def has_nested(body: Json, names: NestedNames) -> bool:
    """Return True if a listed name occurs in a body, at any depth."""
    return next(_nested_fields(body, names), None) is not None


def _nested_fields(body: Json, root: NestedNames) -> Iterator[tuple[Path, str, list[Any]]]:
    """Yield the path, the listed name and the values of each nested field. Values of equal paths
    are inspected together, as a body may have a hundred thousand."""
    level = [FieldGroup(outer=None, step="", values=[body], names=(root,), is_group=True)]
    while level:
        deeper: list[FieldGroup] = []
        for place in level:
            for step, members in _members(place.values, place.names, root).items():
                listed, inner = _next(place.names, root, step, is_group=place.is_group)
                is_group = place.is_group and step in GROUPS
                found = FieldGroup(
                    outer=place, step=step, values=members, names=inner, is_group=is_group
                )
                if listed is not None:
                    yield _path(found), listed, members
                    continue
                by_id = _by_id(inner, root)
                if by_id is not None and (texts := _texts(members)):
                    yield (*_path(found), ID), by_id, texts
                if inner:
                    deeper.append(found)
        level = deeper


def _path(place: FieldGroup | None) -> Path:
    steps: list[str] = []
    while place is not None and place.step:
        steps.append(place.step)
        place = place.outer
    return tuple(reversed(steps))


def _members(values: list[Any], names: Names, root: NestedNames) -> dict[str, list[Any]]:
    """Return the members of objects by their step: only those that may lead to a listed name."""
    objects = _objects(values)
    is_open = names[-1] is root
    known = {
        name
        for name in set().union(*objects)
        if any(_squeezed(name) in each.within for each in names)
    }
    found: dict[str, list[Any]] = {}
    for item in objects:
        for name, member in item.items():
            if name in known:
                if member is None or _is_public(name, item):
                    continue
            elif not (is_open and isinstance(member, dict | list)):
                continue
            found.setdefault(name + LIST if isinstance(member, list) else name, []).append(member)
    return found


def _next(
    names: Names, root: NestedNames, step: str, *, is_group: bool
) -> tuple[str | None, Names]:
    """Return the listed name that ends at a step, the longest one if several do, and the names
    that may go on from there. ``is_group`` is true at the top and in groups of options."""
    name = step.removesuffix(LIST)
    spelled = _squeezed(name)
    found = [each.within[spelled] for each in names if spelled in each.within]
    listed = next((each.listed for each in found if each.listed is not None), None)
    is_option = is_group and name != METADATA
    is_open = names[-1] is root and (is_option or not (spelled in OWN or step == INPUT))
    return listed, (*(each for each in found if each.within), *((root,) if is_open else ()))


def _by_id(names: Names, root: NestedNames) -> str | None:
    """Return the listed name of an id for which a text may stand in place of its object."""
    inner = [each.within[ID].listed for each in names if each is not root and ID in each.within]
    return next((listed for listed in inner if listed is not None), None)


def _is_public(name: str, item: Json) -> bool:
    """Return True for an id that reads no data of the account: a file that an output reports, or a
    skill that Anthropic publishes."""
    kind = str(item.get("type"))
    return (name == FILE_ID and kind.endswith("_output")) or (
        name == SKILL_ID and kind == "anthropic"
    )


def _squeezed(name: str) -> str:
    return SQUEEZED.get(name) or squeezed(name)


def _shown(path: Path, listed: str) -> str:
    """Return a listed name after the steps that lead to it, of which eight are shown."""
    name = listed.removeprefix(ANYWHERE)
    return ".".join([*map(ascii_word, path[: -1 - name.count(".")][-8:]), name])


def _objects(values: list[Any]) -> list[Json]:
    """Return the objects among values, and those in lists."""
    objects: list[Json] = []
    while values:
        objects += [value for value in values if isinstance(value, dict)]
        values = [item for value in values if isinstance(value, list) for item in value]
    return objects


def _texts(members: list[Any]) -> list[str]:
    """Return the texts among members, and those in lists; none that is empty."""
    items = [item for each in members for item in (each if isinstance(each, list) else (each,))]
    return [item for item in items if item and isinstance(item, str)]


def _without(
    value: Any, names: Names, root: NestedNames, unsent: frozenset[str], *, is_group: bool
) -> Any:
    """Return a copy of a value without nested fields: None for an id alone."""
    if isinstance(value, list):
        return [_without(item, names, root, unsent, is_group=False) for item in value]
    if isinstance(value, str) and _by_id(names, root) in unsent:
        return None
    if not isinstance(value, dict):
        return value
    kept: Json = {}
    for name, member in value.items():
        step = name + LIST if isinstance(member, list) else name
        listed, inner = _next(names, root, step, is_group=is_group)
        if listed is None and inner:
            in_group = is_group and step in GROUPS
            kept[name] = _without(member, inner, root, unsent, is_group=in_group)
        elif listed not in unsent:
            kept[name] = member
    return kept
