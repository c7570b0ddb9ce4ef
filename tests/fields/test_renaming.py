"""Chat fields with another name or path in other APIs."""

from __future__ import annotations

import pytest

from proxy.errors import InvalidField
from proxy.fields.field_table import PATHS, ROWS, from_api, has_other, to_api

VALUES = {"user": "u", "reasoning_effort": "low", "stop": ["a"], "verbosity": "low"}


def test_paths_survive_a_round_trip() -> None:
    assert all(PATHS.keys() >= row.elsewhere.keys() for row in ROWS)
    for api, paths in PATHS.items():
        body = {name: VALUES.get(name, {"a": 1}) for name, *_ in paths}

        moved = to_api({**body, "model": "m"}, api, {})

        assert moved.keys() == {"model", *(field for _, field, _ in paths)}
        assert from_api(moved, api, {}) == (body, set())


def test_members_are_merged_into_their_group() -> None:
    body = {"verbosity": "low", "text": {"format": {"type": "text"}}}

    assert to_api(body, "responses", {}) == {
        "text": {"format": {"type": "text"}, "verbosity": "low"}
    }


def test_group_of_wrong_type_is_named() -> None:
    with pytest.raises(InvalidField, match=r"^text: "):
        to_api({"verbosity": "low", "text": "x"}, "responses", {})


def test_null_and_unmapped_values_are_omitted() -> None:
    nothing = {"stop": lambda stop: None}

    assert to_api({"stop": ["a"], "user": None}, "messages", nothing) == {}
    assert from_api({"stop_sequences": ["a"], "metadata": None}, "messages", nothing) == ({}, set())


def test_unmapped_members_are_named() -> None:
    body = {"metadata": {"user_id": "u", "team": "x"}, "output_config": {"effort": None}}

    assert from_api(body, "messages", {}) == ({"user": "u"}, {"metadata"})
    assert has_other({"a": [], "b": 1}, {"b"}) is False
