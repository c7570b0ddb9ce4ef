from __future__ import annotations

from typing import Any

import pytest

from proxy.guards.kinds.json_schema import MAX_PATH, JsonSchema
from proxy.types.guard import Finding
from tests.for_each import for_each
from tests.guards.growth import growth

ORDER: dict[str, Any] = {
    "type": "object",
    "properties": {"order": {"$ref": "#/$defs/number"}, "note": {"pattern": "^(a+)+$"}},
    "additionalProperties": False,
    "$defs": {"number": {"type": "integer", "minimum": 1}},
}


@for_each(
    ("text", "kind"),
    [
        ('{"order": 17}', None),
        (' {"note":"aa"}\n', None),
        ("", "invalid_json"),
        ("order 17", "invalid_json"),
        ('{"order": 17', "invalid_json"),
        ('{"order": NaN}', "invalid_json"),
        ('```json\n{"order": 17}\n```', "invalid_json"),
        ('{"order": 17} {}', "invalid_json"),
        ('{"order":2,"order":3}', "invalid_json"),
        ("[" * 100_000, "invalid_json"),
        ('"\ud800"', "invalid_json"),
        ('{"order": "17"}', "invalid_schema"),
        ('{"order": 0}', "invalid_schema"),
        ('{"orders": 1}', "invalid_schema"),
        ("[]", "invalid_schema"),
    ],
)
def test_mismatch_is_a_finding_of_the_whole_text(text: str, kind: str | None) -> None:
    expected = [Finding(0, len(text), kind)] if kind else []

    assert list(JsonSchema(ORDER).find(text)) == expected


def test_without_a_schema_any_json_passes() -> None:
    assert list(JsonSchema().find("[1, null]")) == []
    assert [finding.kind for finding in JsonSchema().find("{]")] == ["invalid_json"]


def test_message_names_the_schema_and_quotes_no_text() -> None:
    secret = "driver is a thief"

    kind, where = JsonSchema(ORDER).find_problem_and_schema_path('{"order": "' + secret + '"}')
    _, path = JsonSchema(ORDER).find_problem_and_schema_path('{"' + secret + '": 1}')

    assert kind == "invalid_schema"
    assert where.endswith("type")
    assert secret not in where + path
    assert path == "additionalProperties"


def test_path_in_message_is_bounded() -> None:
    deep: dict[str, Any] = {"type": "integer"}
    text = "null"
    for _ in range(40):
        deep, text = {"properties": {"parcels": deep}}, '{"parcels":' + text + "}"

    _, where = JsonSchema(deep).find_problem_and_schema_path(text)

    assert len(where) == MAX_PATH


@for_each(
    "schema",
    [
        {"$ref": "http://schemas.example/order"}, {"$ref": "file:///etc/hostname"},
        {"$ref": "order.json"}, {"$schema": "https://schemas.example/own", "type": "object"},
        {"type": "nope"}, {"pattern": "("}, {"pattern": "(?=a)"},
    ],
)  # fmt: skip
def test_schema_with_external_references_is_refused(schema: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="must be a valid JSON schema without external references"):
        JsonSchema(schema)


def test_hostile_text_takes_linear_time() -> None:
    text = '{"note": "%s!"}'
    assert growth(JsonSchema(ORDER).find, lambda size: text % ("a" * size), maximum=24) < 24
