"""Values are counted in bytes as they are once these are read."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from proxy.dialects.wire.json_size import count_values, values_of

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text('",[{}]:\\ab\n', max_size=6),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text('",\\[{a'), inner),
)


def exactly(value: object) -> int:
    if isinstance(value, dict):
        return 1 + sum(exactly(item) for item in value.values())
    return 1 + sum(exactly(item) for item in value) if isinstance(value, list) else 1


@given(JSON, st.integers(1, 9))
def test_values_are_counted_as_they_are_read(value: object, piece: int) -> None:
    raw = json.dumps(value).encode()
    exact = exactly(json.loads(raw))

    assert values_of(json.loads(raw)) == exact
    for size in (piece, 64 * 1024):
        assert count_values(raw, exact, size) == exact
        if exact > 1:
            assert count_values(raw, exact - 1, size) > exact - 1


def test_no_more_is_counted_than_is_asked() -> None:
    assert 10 < count_values(b"[" + b"1," * 1_000_000, 10) < 100_000


def test_a_value_that_is_read_may_be_deep() -> None:
    deep: list[object] = []
    for _ in range(100_000):
        deep = [deep]

    assert values_of(deep) == 100_001
