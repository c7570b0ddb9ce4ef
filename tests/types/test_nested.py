"""Names with dots and brackets lead into fields, and an item is found in and out of its list."""

from __future__ import annotations

from proxy.types.nested import NestedNames, nested_names
from proxy.types.spelling import squeezed

NAMES = nested_names(["seed", "tools[].server_url", "tools[].mcp.headers", "a.b", "a.b.c"])


def walked(*steps: str) -> NestedNames | None:
    names: NestedNames | None = NAMES
    for step in steps:
        names = names.within.get(squeezed(step)) if names is not None else None
    return names


def test_a_name_is_found_by_its_steps_in_any_spelling() -> None:
    for steps in (("tools", "server_url"), ("Tools", "serverUrl"), ("tools", "SERVER-URL")):
        found = walked(*steps)
        assert found is not None
        assert found.listed == "tools[].server_url"


def test_a_name_on_the_way_is_not_listed_itself() -> None:
    on_the_way = walked("tools", "mcp")

    assert on_the_way is not None
    assert on_the_way.listed is None
    assert walked("tools", "function") is None


def test_a_listed_name_may_have_others_within_it() -> None:
    outer, inner = walked("a", "b"), walked("a", "b", "c")

    assert (outer and outer.listed, inner and inner.listed) == ("a.b", "a.b.c")


def test_a_name_of_one_step_is_no_nested_one() -> None:
    assert walked("seed") is None
    assert NAMES.within.keys() == {"a", "tools"}
