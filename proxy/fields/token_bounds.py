"""Upper bounds of the tokens that a request may cost, under all field names that servers use.

The names follow from the column ``count_role`` of the table of fields. A server obeys the fields
that it supports, at the top of a request or in a group of options, so each of them counts.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from proxy.errors import InvalidField
from proxy.fields.checks import Fields, add_maximum, anything, check_spelling
from proxy.fields.field_table import FIELDS, Count, get_fields
from proxy.fields.spelling import normalize_name

Json = dict[str, Any]
ASSUMED_TOKENS = 1024  # output tokens assumed for a request without a limit
DEFAULT_LEGACY_MAX_TOKENS = 16  # default of ``max_tokens`` in the legacy completions API


def _get_minimum_by_field(*roles: Count) -> Mapping[str, int]:
    """Return the fields with one of these count roles, each with its smallest valid value."""
    return {name: row.minimum for name, row in FIELDS.items() if row.count_role in roles}


OUTPUT_LIMIT_FIELDS = _get_minimum_by_field("bound")
"""Output limits of a response in tokens, with the smallest value that is a limit."""
MIN_OUTPUT_FIELDS = frozenset(_get_minimum_by_field("floor"))
"""Minimum output of a response in tokens."""
REASONING_BUDGET_FIELDS = frozenset(_get_minimum_by_field("budget"))
"""Reasoning budgets in tokens.

Some servers count reasoning as output, others add it. At 0 or less the server chooses.
"""
REASONING_GROUPS = frozenset(_get_minimum_by_field("thoughts"))
"""Groups of reasoning options: an output limit in them is a reasoning budget."""
CHOICE_COUNT_FIELDS = _get_minimum_by_field("n")
"""Numbers of choices per prompt, with the smallest value."""
OPTION_GROUPS = frozenset(_get_minimum_by_field("group", "thoughts"))
"""Groups of options, whose members some servers read as if they were at the top."""
TOKEN_FIELDS = frozenset(_get_minimum_by_field("bound", "floor", "budget"))
COUNT_FIELDS = TOKEN_FIELDS.union(CHOICE_COUNT_FIELDS)
COMMON_TYPES: Fields = get_fields("any")
"""Types of the fields that the proxy itself reads, for dialects that lack them."""
COUNT_TYPES: Fields = {name: COMMON_TYPES[name] for name in COUNT_FIELDS}
KNOWN_SPELLINGS: Mapping[str, str] = {normalize_name(name): name for name in COMMON_TYPES}
"""Names of the fields in ``COMMON_TYPES`` by normalized name."""


def remove_ranges(fields: Fields) -> Fields:
    """Return a dialect's fields without their ranges."""
    return {
        name: COUNT_TYPES.get(name)
        or replace(field.without_range or field, required=field.required, default=field.default)
        for name, field in fields.items()
    }


def replace_ranges_with_maxima(fields: Fields, maxima: Sequence[tuple[str, float]]) -> Fields:
    """Return fields with ``maxima``, of a number or an array's length, instead of their ranges."""
    if not maxima:
        return fields
    types = remove_ranges(
        {name: fields.get(name, COMMON_TYPES.get(name, anything())) for name, _ in maxima}
    )
    return {**fields, **{name: add_maximum(types[name], bound) for name, bound in maxima}}


def add_missing_common_fields(fields: Fields) -> Fields:
    """Return a dialect's fields, and ``COMMON_TYPES`` for the token fields that it lacks."""
    return {**fields, **{name: COMMON_TYPES[name] for name in COMMON_TYPES.keys() - fields.keys()}}


def list_body_and_option_groups(body: Json, path: str = "") -> list[tuple[str, Json]]:
    """Return the request and the groups of options in it, each with the path of its members."""
    result = [(path, body)]
    if not OPTION_GROUPS.isdisjoint(body):
        for name in OPTION_GROUPS & body.keys():
            if isinstance(body[name], dict):
                result += list_body_and_option_groups(body[name], f"{path}{name}.")
    return result


def check_counts_and_spelling_in_option_groups(body: Json) -> None:
    """Raise ``InvalidField`` for a bad number or a misspelled name in a group of options."""
    for path, group in list_body_and_option_groups(body):
        if not path:
            continue
        for name, value in group.items():
            field = COUNT_TYPES.get(name)
            problem = None if field is None or value is None else field.check(value)
            if problem is not None:
                raise InvalidField(path + name, problem)
            if field is None and name not in COMMON_TYPES:
                check_spelling(COMMON_TYPES, KNOWN_SPELLINGS, name, path)


def unify_budget_name(path: str, name: str) -> str:
    """Return ``budget_tokens`` for a reasoning budget in any group, else the name."""
    group = path.rstrip(".").rpartition(".")[2]
    is_budget = name in REASONING_BUDGET_FIELDS or (
        group in REASONING_GROUPS and name in OUTPUT_LIMIT_FIELDS
    )
    return "budget_tokens" if is_budget else name


def estimate_max_output_per_prompt(
    body: Json, obeyed_fields: Collection[str], *, accepts_zero: bool = False
) -> int:
    """Return the most output tokens of all choices for one prompt.

    ``obeyed_fields`` are the fields that the server is known to obey. A choice may have
    ``ASSUMED_TOKENS`` if none of them limits the output, or if the limit is 0 and the server may
    not accept that (``accepts_zero``). A reasoning budget in a group that the server obeys is part
    of the output limit, as in Anthropic's ``thinking``; any other is added.
    """
    longest, choices, bounded = 0, 1, False
    thoughts = {False: 0, True: 0}  # by whether the output limit includes them
    for path, group in list_body_and_option_groups(body):
        for field in COUNT_FIELDS.intersection(group):
            value = group[field]
            if value is None:
                continue
            name = unify_budget_name(path, field)
            if name in CHOICE_COUNT_FIELDS:
                choices = max(choices, value)
            elif name in REASONING_BUDGET_FIELDS:
                is_part = path[:-1] in obeyed_fields
                thoughts[is_part] = max(thoughts[is_part], value if type(value) is int else 0)
            elif name in OUTPUT_LIMIT_FIELDS and not (
                value > 0 or (accepts_zero and value >= OUTPUT_LIMIT_FIELDS[name])
            ):
                longest = max(longest, ASSUMED_TOKENS)
            else:
                longest = max(longest, value)
                bounded = bounded or (
                    not path and name in OUTPUT_LIMIT_FIELDS and name in obeyed_fields
                )
    included = thoughts[True]
    per_choice = max(longest, included) if bounded else max(longest, ASSUMED_TOKENS) + included
    return choices * (per_choice + thoughts[False])


def count_total_choices(body: Json) -> int:
    """Count the choices that a model generates for a request, including dropped candidates."""
    choices = 1
    for _, group in list_body_and_option_groups(body):
        for name in CHOICE_COUNT_FIELDS.keys() & group.keys():
            choices = max(choices, group[name] or 1)
    return choices * count_prompts(body)


def count_prompts(body: Json) -> int:
    """Count the prompts of a call: 1 except for lists in legacy calls.

    A list of numbers is one prompt.
    """
    if "prompt" not in body:
        return 1
    prompt = body["prompt"]
    if not isinstance(prompt, list) or not prompt or not isinstance(prompt[0], (str, list)):
        return 1
    return len(prompt)


def max_reasoning_tokens(body: Json) -> int:
    """Return the largest reasoning budget of a request in tokens, 0 if it has none."""
    budgets = [
        value
        for path, group in list_body_and_option_groups(body)
        for name, value in group.items()
        if name in TOKEN_FIELDS
        and unify_budget_name(path, name) in REASONING_BUDGET_FIELDS
        and type(value) is int
    ]
    return max(0, *budgets) if budgets else 0
