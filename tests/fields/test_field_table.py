"""Table of request fields, and the fields of each API."""

from __future__ import annotations

import pytest

from proxy.fields.checks import string
from proxy.fields.field_table import APIS, FIELDS, OF_SERVERS, ROWS, _row, fields_of


def test_field_has_one_row() -> None:
    assert len(FIELDS) == len(ROWS) + len(OF_SERVERS)


def test_type_for_unknown_api_raises() -> None:
    with pytest.raises(ValueError, match="chta"):
        _row("user", {"chat chta": string()})


def test_required_fields_are_first() -> None:
    for api in APIS:
        required = [field.required for field in fields_of(api).values()]
        assert required
        assert required == sorted(required, reverse=True)


def test_later_api_replaces_and_removes_fields() -> None:
    fields = fields_of("completions", "fireworks")

    assert "suffix" not in fields
    assert "min_p" in fields
    assert fields["logprobs"].check(True) is None
    assert fields_of("completions")["logprobs"].check(True) is not None
    assert fields["echo"] is fields_of("completions")["echo"]
