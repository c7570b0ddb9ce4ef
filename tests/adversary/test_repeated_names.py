"""JSON from outside with a name twice in one object is refused: two readers may differ on it."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from proxy.dialects.vendors.portkey import CONFIG, _object
from proxy.dialects.wire.json_size import read_distinct
from proxy.dialects.wire.request_json import read_json
from proxy.dialects.wire.upstream_json import Documents
from proxy.errors import BadRequest, UpstreamInvalid
from proxy.guards.kinds.json_schema import JsonSchema
from proxy.guards.services import wire
from proxy.policy.review.diff import read_call
from proxy.runtime.offload import LARGE_BYTES
from tests.dialects.wire.test_json_size import JSON
from tests.for_each import for_each

SHAPES = {
    "compact": b'{"findings":["x"],"findings":[]}',
    "spaced": b'{"findings": ["x"], "findings": []}',
    "equal values": b'{"findings":[],"findings":[]}',
    "escaped name": b'{"findings": ["x"], "f\\u0069ndings": []}',
    "in an object": b'{"answer": {"findings": ["x"], "findings": []}}',
    "in a list": b'{"answers": [{}, {"findings": ["x"], "findings": []}]}',
    "beside other spellings": b'{"n": 1e2, "t": "\\u00e9\\/", "findings": 1.0, "findings": 1}',
    "within the dropped value": b'{"a": {"b": 1, "b": 2}, "a": 1}',
}


def check_schema(raw: bytes) -> None:
    kind, _ = JsonSchema().problem(raw.decode())
    if kind is not None:
        raise ValueError(kind)


def check_recorded(raw: bytes) -> None:
    call = b'{"event": "call", "models": ["m"], "time": "2026-06-01T00:00:00Z", '
    if read_call(call + b'"request_id": "r", "key": "k", ' + raw[1:]) is None:
        raise ValueError("unknown")


READERS: dict[str, Callable[[bytes], Any]] = {
    "request": read_json,
    "response": Documents().read,
    "large response": lambda raw: Documents().read(
        b'{"pad":"' + b"x" * LARGE_BYTES + b'",' + raw[1:]
    ),
    "guard service": partial(wire.read, TypeAdapter(dict[str, Any])),
    "judged text": check_schema,
    "header": lambda raw: _object(CONFIG, {CONFIG: raw.decode()}),
    "recorded call": check_recorded,
}
REFUSALS = (BadRequest, UpstreamInvalid, wire.BadAnswer, ValueError)


@for_each(("shape", "reader"), [(shape, reader) for shape in SHAPES for reader in READERS])
def test_repeated_name_is_refused(shape: str, reader: str) -> None:
    with pytest.raises(REFUSALS):
        READERS[reader](SHAPES[shape])


@for_each(("shape", "reader"), [(shape, reader) for shape in SHAPES for reader in READERS])
def test_equal_names_in_different_objects_are_accepted(shape: str, reader: str) -> None:
    """The same documents are accepted once their second name is another one."""
    raw = SHAPES[shape].replace(b"f\\u0069ndings", b"findings")
    head, _, tail = raw.rpartition(b'"findings"')
    distinct = head + b'"others"' + tail if head else b'{"a": {"b": 1}, "b": {"a": 1}}'

    READERS[reader](distinct)


@given(
    whole=st.dictionaries(st.text(max_size=3), JSON, min_size=1),
    dropped=JSON,
    separators=st.sampled_from([(",", ":"), (", ", ": ")]),
    is_ascii=st.booleans(),
)
def test_any_repeated_name_is_found(
    whole: dict[str, Any], dropped: Any, separators: tuple[str, str], is_ascii: bool
) -> None:
    raw = json.dumps(whole, separators=separators, ensure_ascii=is_ascii).encode()
    first_data = json.dumps({next(iter(whole)): dropped}).encode()

    assert read_distinct(raw) == whole
    with pytest.raises(ValueError, match="an object has the same name twice"):
        read_distinct(first_data[:-1] + b"," + raw[1:])
