"""Removes or refuses request fields that an upstream must not get, wherever they occur in a body.

Rules match the end of a field's path, such as ``tools[].headers``. The longest matching rule
decides. Normalized names are compared, as lenient servers do.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from proxy.errors import InvalidField
from proxy.errors.field_problems import NOT_ALLOWED
from proxy.errors.words import shorten_to_ascii
from proxy.fields.field_table import FIELDS
from proxy.fields.member_table import FREE_FORM, MEMBERS
from proxy.fields.rules import FieldRule, FieldRules, compile_field_rules
from proxy.fields.spelling import normalize_name
from proxy.fields.token_bounds import OPTION_GROUPS
from proxy.types import Json, Upstream
from proxy.types.passthrough import PassthroughPath

NORMALIZED_NAMES = {name: normalize_name(name) for name in (*FIELDS, *MEMBERS)}
"""Normalized names of the fields of most requests, and of their members."""
FREE_FORM_RULES = compile_field_rules({"accept": FREE_FORM}, anywhere=())
SCHEMA_NAMES = frozenset(normalize_name(row.name) for row in MEMBERS.values() if row.is_schema)
SCHEMA_MAP_NAMES = frozenset(
    normalize_name(row.name) for row in MEMBERS.values() if row.is_schema_map
)
CODE_OUTPUTS = frozenset({"bash_code_execution_output", "code_execution_output"})
CONTAINERS = frozenset({dict, list})
ONLY_ACCEPT = frozenset({"accept"})
ID, LIST_SUFFIX, MODEL, SCHEMA = "id", "[]", "model", "schema"
MAX_STEPS = 8  # steps of a path in a message


@dataclass(slots=True)
class PathGroup:
    """The objects or lists at one path of a body.

    No group refers to inner ones: a cycle would keep bodies in memory.
    """

    outer: PathGroup | None
    name: str
    """Ends in ``[]`` for a list."""
    is_option_group: bool
    """True for the body, and for groups of options in it."""
    free_form_depth: int = 0
    """The number of steps within free-form JSON."""
    is_schema: bool = False
    """True within a JSON schema."""
    values: list[Any] = field(default_factory=list)


class RestrictedField(NamedTuple):
    """A field to which a rule applies, and the object that has it."""

    rule: FieldRule
    group: PathGroup
    name: str
    value: Any
    parent: Json


def apply_field_rules(body: Json, upstream: Upstream, model: str = "") -> tuple[Json, list[str]]:
    """Return a copy of a body without the fields to drop for an upstream, and their names.

    ``model`` is the target's: nested fields with this value are kept. Raises ``InvalidField`` for a
    refused field.
    """
    dropped: set[str] = set()
    removed: set[tuple[int, str]] = set()
    for found in find_restricted_fields(body, upstream.rules, model):
        if found.rule.verdict != "drop":
            raise _make_refused_field_error(found, model)
        dropped.add(found.rule.name)
        removed.add((id(found.parent), found.name))
    return _remove_fields(body, removed) if removed else dict(body), sorted(dropped)


def list_declared_fields(path: PassthroughPath, upstream: Upstream) -> Collection[str] | None:
    """Return the fields of a body that may pass to an upstream, None if all may."""
    if path.fields is None and not upstream.is_gateway:
        return None
    return {MODEL, *(path.fields or ()), *upstream.accepts}


def check_restricted_fields(body: Json, upstream: Upstream, model: str) -> None:
    """Raise ``InvalidField`` for a field that would be dropped or refused.

    Used for bodies that are not rewritten.
    """
    refused = next(find_restricted_fields(body, upstream.rules, model), None)
    if refused is not None:
        raise _make_refused_field_error(refused, model)


def find_restricted_fields(
    body: Json, rules: FieldRules, model: str = ""
) -> Iterator[RestrictedField]:
    """Yield the fields that a rule drops or refuses, outer objects first."""
    rules_by_name: dict[str, tuple[FieldRule, ...]] = {}
    groups = [PathGroup(None, "", is_option_group=True, values=[body])]
    for group in groups:
        inner: dict[str, PathGroup] = {}
        for parent in _flatten_and_collect_objects(group.values):
            for name, value in parent.items():
                rules_of_name = rules_by_name.get(name)
                if rules_of_name is None:
                    rules_of_name = rules_by_name[name] = rules.get(
                        NORMALIZED_NAMES.get(name) or normalize_name(name), ()
                    )
                has_rule = rules_of_name and value is not None
                found = (
                    _find_restriction(rules_of_name, group, name, value, parent)
                    if has_rule
                    else None
                )
                if found is not None and not _has_harmless_value(found, model):
                    if found.rule.verdict != "accept":
                        yield found
                elif value and type(value) in CONTAINERS:
                    step = name + LIST_SUFFIX if isinstance(value, list) else name
                    inner_group = inner.get(step) or _add_inner_group(inner, group, name, step)
                    inner_group.values.append(value)
        groups += inner.values()


def _flatten_and_collect_objects(values: list[Any]) -> list[Json]:
    """Return the objects in lists of any depth, outer ones first. Extends ``values``."""
    objects: list[Json] = []
    for value in values:
        if isinstance(value, dict):
            objects.append(value)
        elif isinstance(value, list):
            values += value
    return objects


def _add_inner_group(
    inner: dict[str, PathGroup], outer: PathGroup, name: str, step: str
) -> PathGroup:
    end = NORMALIZED_NAMES.get(name) or normalize_name(name)
    is_option_group = outer.is_option_group and name in OPTION_GROUPS
    is_free = outer.free_form_depth > 0 or (outer.is_schema and end in SCHEMA_MAP_NAMES)
    if not is_free and end in FREE_FORM_RULES:
        is_free = any(_matches_path(rule, outer) for rule in FREE_FORM_RULES[end])
    is_schema = not is_option_group and (end in SCHEMA_NAMES or end.endswith(SCHEMA))
    inner[step] = group = PathGroup(outer, step, is_option_group)
    if is_free:
        group.free_form_depth = outer.free_form_depth + 1
    group.is_schema = outer.is_schema or is_schema
    return group


def _matches_path(rule: FieldRule, group: PathGroup) -> bool:
    # Inside of free-form JSON, only rules that begin outside of it apply.
    if len(rule.steps) <= group.free_form_depth or (rule.is_anchored and not group.is_option_group):
        return False
    outer: PathGroup | None = group
    for step in rule.steps[1:]:
        if outer is None or normalize_name(outer.name.removesuffix(LIST_SUFFIX)) != step:
            return False
        outer = outer.outer
    return True


def _find_restriction(
    rules: Sequence[FieldRule], group: PathGroup, name: str, value: Any, parent: Json
) -> RestrictedField | None:
    """Return a field with the rule that restricts it, or None.

    If the upstream accepts a field and no other rule matches it, its members are inspected.
    """
    if group.outer is None and rules[0].steps[0] == MODEL:
        return None  # the target's value replaces it
    rules = [rule for rule in rules if not rule.is_text or _has_text(value)]
    matching = [rule for rule in rules if _matches_path(rule, group)]
    if {rule.verdict for rule in matching} <= ONLY_ACCEPT:
        return None
    return RestrictedField(matching[0], group, name, value=value, parent=parent)


def _has_text(value: Any) -> bool:
    items = value if isinstance(value, list) else [value]
    return any(isinstance(item, str) and item for item in items)


def _has_harmless_value(found: RestrictedField, model: str) -> bool:
    """Return True for a value that has no effect, such as the target's own model."""
    rule, value = found.rule, found.value
    if rule.verdict == "limit":
        return not isinstance(value, str) or value in FIELDS[rule.name].client_values
    is_harmless = HARMLESS_CHECKS.get(rule.steps[0])
    return is_harmless is not None and is_harmless(value, found.parent, model)


def _names_no_other_model(value: Any, _: Json, model: str) -> bool:
    """Return True for the target's model, and for an object without the id of another model."""
    if isinstance(value, dict):
        return all(member == model for name, member in value.items() if normalize_name(name) == ID)
    return bool(value == model)


HARMLESS_CHECKS: Mapping[str, Callable[[Any, Json, str], bool]] = {
    MODEL: _names_no_other_model,
    normalize_name("file_id"): lambda _, parent, __: str(parent.get("type")) in CODE_OUTPUTS,
    normalize_name("skill_id"): lambda _, parent, __: parent.get("type") == "anthropic",
}
"""Tests for values without effect, by the last name of a rule. Such values are the target's own
model, a file in an output, and a skill that Anthropic publishes."""


def _make_refused_field_error(found: RestrictedField, model: str) -> InvalidField:
    rule = found.rule
    if rule.verdict == "limit":
        allowed = ", ".join(sorted(FIELDS[rule.name].client_values))
        problem = f"only {allowed} may be set: other values can cost more than the model's price"
    elif rule.steps[0] == MODEL and model:
        problem = f'must be "{shorten_to_ascii(model)}"'
    else:
        problem = NOT_ALLOWED
    step = rule.name.rpartition(".")[2]
    if not rule.is_text and found.name not in (step, step.removesuffix(LIST_SUFFIX)):
        problem += f', also not as "{shorten_to_ascii(found.name)}"'
    if rule.verdict != "drop":
        problem += f', unless the upstream accepts "{rule.name}"'
    return InvalidField(_format_field_path(found), problem)


def _format_field_path(found: RestrictedField) -> str:
    """Return the full path of a rejected field: its outer objects, then the name in its rule."""
    names = [found.rule.name]
    group: PathGroup | None = found.group
    for _ in found.rule.steps[1:]:
        group = group and group.outer
    while group is not None and group.outer is not None:
        names.append(shorten_to_ascii(group.name))
        group = group.outer
    return ".".join(reversed(names[: MAX_STEPS + 1]))


def _remove_fields(value: Any, removed: set[tuple[int, str]]) -> Any:
    """Return a copy without the members in ``removed``: pairs of an object's id and a name."""
    if isinstance(value, list):
        return [_remove_fields(item, removed) for item in value]
    if not isinstance(value, dict):
        return value
    return {
        name: _remove_fields(member, removed)
        for name, member in value.items()
        if (id(value), name) not in removed
    }
