"""A client says of a request what the policy neither drops nor refuses; the body stays as it is."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.dialects.requests.field_filter import permitted
from proxy.errors import InvalidField
from proxy.fields.denied import NOT_THE_CLIENTS
from proxy.fields.field_table import FIELDS, LIMITED
from proxy.types import Json, Upstream
from tests.for_each import for_each
from tests.guards.growth import lines

TOOL = {"type": "mcp", "server_url": "https://mcp.example/", "headers": {"x": "y"}}


def upstream(**fields: Any) -> Upstream:
    lists: dict[str, Any] = {name: frozenset(names) for name, names in fields.items()}
    return Upstream("openai", "openai", "https://example.com", **lists)


def lists_of(drop: set[str]) -> dict[str, Any]:
    return {"drops": drop, "refuses": NOT_THE_CLIENTS - drop}


def test_what_nobody_lists_is_all_there_and_the_very_same() -> None:
    body = {"messages": [{"content": "Hi"}], "tools": [{"function": {"name": "f"}}], "odd": [1]}

    allowed, dropped = permitted(body, upstream())

    assert (allowed, dropped) == (body, [])
    assert allowed is not body
    assert all(allowed[name] is body[name] for name in body)


def test_what_is_dropped_within_a_field_leaves_the_clients_body_as_it_was() -> None:
    body = {"tools": [{"type": "a"}, dict(TOOL)]}
    lists = lists_of({"tools[].server_url", "tools[].headers"})

    allowed, dropped = permitted(body, upstream(**lists))

    assert allowed == {"tools": [{"type": "a"}, {"type": "mcp"}]}
    assert sorted(dropped) == ["tools[].headers", "tools[].server_url"]
    assert body == {"tools": [{"type": "a"}, TOOL]}


def test_what_is_dropped_at_the_top_is_dropped_within_a_group_of_options() -> None:
    body = {"seed": 1, "extra_body": {"seed": 2, "tools": [{"seed": 3}]}}

    allowed, dropped = permitted(body, upstream(**lists_of({"seed"})))

    assert (allowed, dropped) == ({"extra_body": {"tools": [{"seed": 3}]}}, ["seed"])


def test_an_id_in_the_place_of_what_has_one_is_dropped_and_accepted_by_its_name() -> None:
    body = {"tools": [{"container": "cntr_1"}, {"container": {"type": "auto"}}], "container": "c"}
    names = {"tools[].container.id", "container.id"}

    allowed, dropped = permitted(body, upstream(**lists_of(names)))
    accepted, _ = permitted(body, upstream(accepts=names, refuses=NOT_THE_CLIENTS - names))

    assert allowed == {"tools": [{}, {"container": {"type": "auto"}}]}
    assert sorted(dropped) == sorted(names)
    assert accepted == body


def test_an_outer_name_stands_for_all_that_is_within_it() -> None:
    body = {"tools": [{"retrieval": {"anything": 1}}]}
    with pytest.raises(InvalidField):
        permitted(body, upstream())

    accepting = upstream(accepts={"tools[].retrieval"})
    assert permitted(body, accepting) == (body, [])


@pytest.mark.parametrize("body", [{"apiKey": "a"}, {"extra_body": {"apiKey": "a"}}], ids=str)
def test_another_spelling_is_told_beside_the_name_that_it_stands_for(body: Json) -> None:
    with pytest.raises(InvalidField, match=r"api_key: .*, also not as .apiKey., unless"):
        permitted(body, upstream())


@pytest.mark.parametrize("name", sorted(LIMITED))
def test_a_dearer_word_is_refused_and_an_accepted_field_has_any(name: str) -> None:
    with pytest.raises(InvalidField, match="price"):
        permitted({name: "dearer"}, upstream())

    for body in ({name: "dearer"}, {"options": {name: "dearer"}}):
        assert permitted(body, upstream(accepts={name})) == (body, [])
    for usual in sorted(FIELDS[name].allowed):
        assert permitted({name: usual}, upstream()) == ({name: usual}, [])


@for_each("item", [{}, {"server_label": "a"}, {"mcp": {}}, "tool", [{"a": "b"}]])
def test_many_tools_are_looked_through_at_once(item: Any) -> None:
    body = {"tools": [item] * 10_000}

    assert lines(lambda: permitted(body, upstream())) < 20 * 10_000
