"""What is kept where others may write: shown again only as it was put, under the key it was put."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from proxy.cache.store import CacheBackend
from tests.for_each import for_each

KEY, OTHER_KEY, SECRET = b"k" * 32, b"o" * 32, b"s" * 32


class Open:
    """A store that anybody may write to."""

    def __init__(self) -> None:
        self.values: dict[bytes, bytes] = {}

    async def get(self, key: bytes) -> bytes | None:
        return self.values.get(key)

    def put(self, key: bytes, value: bytes, ttl: float) -> None:
        self.values[key] = value

    async def __aenter__(self) -> Open:
        return self

    async def __aexit__(self, *ended: object) -> None:
        return None


@for_each("index", [0, 1, 20, 33, -1])
async def test_changed_value_is_a_miss_and_reported(index: int) -> None:
    store, events = Open(), list[str]()
    backend = CacheBackend(store, SECRET, lambda: events.append("changed"))
    backend.put(KEY, b"an answer", 60)
    assert (await backend.get(KEY), events) == (b"an answer", [])

    value = bytearray(store.values[KEY])
    value[index] ^= 1
    store.values[KEY] = bytes(value)

    assert (await backend.get(KEY), events) == (None, ["changed"])


async def test_tag_depends_on_secret_and_key() -> None:
    store, events = Open(), list[str]()
    backend = CacheBackend(store, SECRET, lambda: events.append("changed"))
    CacheBackend(store, b"x" * 32, lambda: None).put(KEY, b"forged", 60)
    backend.put(OTHER_KEY, b"another answer", 60)

    assert await backend.get(KEY) is None
    store.values[KEY] = store.values[OTHER_KEY]
    assert await backend.get(KEY) is None
    store.values[KEY] = b""
    assert await backend.get(KEY) is None
    assert events == ["changed"] * 3


async def test_what_ends_with_its_process_has_no_tag() -> None:
    store = Open()
    backend = CacheBackend(store, SECRET)
    backend.put(KEY, b"an answer", 60)

    assert store.values == {KEY: b"an answer"}
    assert (await backend.get(KEY), await backend.get(OTHER_KEY)) == (b"an answer", None)


@pytest.mark.parametrize("changed", [None, lambda: None], ids=["own", "where-others-write"])
def test_memory_store_is_own(changed: Callable[[], None] | None) -> None:
    assert CacheBackend(Open(), SECRET, changed).is_own == (changed is None)
