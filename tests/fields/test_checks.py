"""Types and ranges of request fields, null, and misspelled names."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import pytest

from proxy.dialects import CHECKED_FIELDS, DIALECTS
from proxy.errors import InvalidField
from proxy.fields import checks
from proxy.fields.spelling import MIN_MISSPELLED_LENGTH
from tests.for_each import for_each

BASE: dict[str, Any] = {"model": "m", "prompt": "p"}

RANGES: list[tuple[str, str, list[Any], list[Any]]] = [
    # dialect, field, valid values (bounds first), invalid values
    ("fireworks", "logprobs", [0, 5, True], [-1, 6, 1.0]),
    ("fireworks", "images", [[], ["data:"]], ["x", [1]]),
    ("scale", "logprobs", [True, False], ["1"]),
    ("scale", "seed", [-(2**63), 2**63 - 1], [2**63, 1.0]),
    ("scale", "best_of", [1, 20], [21]),
    ("scale", "inference_timeout", [0, 1.5], ["1"]),
    ("multimodel", "model", ["m", ["a", "b"]], [[], 1, [1]]),
    ("portkey", "best_of", [1, 20], [-1, "2"]),
    ("portkey", "max_tokens", [0, 16], [-1, "16"]),
    ("portkey", "n", [1, 128], [0]),
    ("enkrypt", "seed", [-(2**63), 2**63 - 1], [2**63]),
    ("openai", "stop", ["a", ["a"] * 4], [["a"] * 5]),
]
"""Ranges that `tests/conformance` does not check over sockets."""


def accepts(dialect: str, body: dict[str, Any]) -> bool:
    spoken = DIALECTS[dialect]
    try:
        checks.check_body(spoken.fields["completions"], body)
        for rule in spoken.client.rules["completions"]:
            rule(body)
    except InvalidField:
        return False
    return True


@for_each(
    ("dialect", "name", "inner", "excluded"),
    [pytest.param(*row, id=f"{row[0]}-{row[1]}") for row in RANGES],
)
def test_fields_have_types_and_ranges(
    dialect: str, name: str, inner: list[Any], excluded: list[Any]
) -> None:
    assert all(accepts(dialect, {**BASE, name: value}) for value in inner)
    assert not any(accepts(dialect, {**BASE, name: value}) for value in excluded)


@for_each("dialect", sorted(DIALECTS))
def test_bodies_without_restricted_fields_pass(dialect: str) -> None:
    client = DIALECTS[dialect].client
    for endpoint, rules in client.rules.items():
        names = DIALECTS[dialect].fields[endpoint].keys() - client.ruled_fields
        for rule, name in itertools.product(rules, names):
            for value in ("x", 0, 2, True, False, {}, {"a": 1}, [], ["a", "a"]):
                rule({"model": "m", "stream": False, name: value})


@for_each("dialect", sorted(DIALECTS))
def test_values_of_the_type_are_valid(dialect: str) -> None:
    for fields in CHECKED_FIELDS[dialect].values():
        for field in fields.values():
            values = ["", "x", 0, -1, 2**70, 0.5, True, False, {}, {"a": []}, [], [{}], None]
            assert not [v for v in values if type(v) is field.valid_class and field.check(v)]


@for_each("endpoint", ["completions", "chat"])
@for_each("dialect", sorted(DIALECTS))
def test_optional_fields_accept_null(dialect: str, endpoint: Any) -> None:
    fields = DIALECTS[dialect].fields.get(endpoint)
    if fields is None:
        assert (dialect, endpoint) in (("multimodel", "chat"), ("anthropic", "completions"))
        return
    optional = {name: field for name, field in fields.items() if not field.required}

    checks.check_body(optional, dict.fromkeys(optional))


def test_other_spelling_names_the_field() -> None:
    fields = {"max_output_tokens": checks.integer()}
    with pytest.raises(
        InvalidField, match=r"^max_output_tokens: use this exact name instead of \"maxO"
    ):
        checks.check_body(fields, {"maxOutputTokens": 5}, {"maxoutputtokens": "max_output_tokens"})


def test_required_fields_come_first() -> None:
    for dialect in DIALECTS.values():
        for fields in dialect.fields.values():
            order = [field.required for field in fields.values()]
            assert order == sorted(order, reverse=True)


@pytest.mark.parametrize("body", [{}, {"name": None}])
def test_missing_field_is_named(body: dict[str, Any]) -> None:
    checks.check_body({"name": replace(checks.string(), default="x")}, body)
    with pytest.raises(InvalidField, match="name"):
        checks.check_body({"name": checks.make_required(checks.string())}, body)


TABLES = [
    pytest.param(fields, id=f"{dialect}-{endpoint}")
    for dialect, tables in CHECKED_FIELDS.items()
    for endpoint, fields in tables.items()
]


@for_each("fields", TABLES)
def test_misspelled_field_names_the_known_one(fields: dict[str, checks.FieldType]) -> None:
    """One character is missing, added or changed, or two are swapped."""
    for known_name in [name for name in fields if len(name) >= MIN_MISSPELLED_LENGTH]:
        for index in range(len(known_name)):
            start, remainder = known_name[:index], known_name[index:]
            edits = {start + remainder[1:], f"{start}x{remainder}", f"{start}x{remainder[1:]}"}
            edits.add(start + remainder[1::-1] + remainder[2:])
            for name in edits - fields.keys():
                [warning] = checks.list_misspelling_warnings(fields, {"model": "m", name: 1})
                assert warning.startswith(f"{name} unknown, did you mean "), warning


@for_each("fields", TABLES)
def test_server_fields_are_not_misspellings(fields: dict[str, checks.FieldType]) -> None:
    servers = ["top_k", "min_p", "top_a", "typical_p", "models", "tool", "user_id", "safe_prompt"]
    servers += ["chat_template_kwargs", "guided_json", "stop_token_ids", "use_beam_search"]

    assert checks.list_misspelling_warnings(fields, dict.fromkeys(servers, 1) | {"": 1}) == ()
