"""Documents with a value of another type in each of their places."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from proxy.errors import ProxyError
from tests.doubles import Json

ODD: tuple[Any, ...] = (
    None, True, 0, -1, 1.5, 2**63, "", "words", [], [1], ["a"], [[]], [None], {}, {"a": 1}, [{}],
    {"type": "text"}, {"type": 5}, [{"type": "text", "text": 5}], {"x": [{"y": "z"}]},
)  # fmt: skip
SURROGATES: tuple[Any, ...] = ("\ud83d", {"\ude00": "\ud83d"})
"""Halves of a surrogate pair, which no client could use."""


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path of every member and item at any depth."""
    members: Any = value.items() if isinstance(value, dict) else ()
    for index, inner in enumerate(value) if isinstance(value, list) else members:
        yield (*path, index)
        yield from places(inner, (*path, index))


def with_odd(document: Json, *extra: Any) -> Iterator[Json]:
    """Yield a document with each odd value in each of its places."""
    for path in places(document):
        for odd in (*ODD, *extra):
            result: Any = copy.deepcopy(document)
            target = result
            for step in path[:-1]:
                target = target[step]
            target[path[-1]] = odd
            yield result


def internal_errors(
    documents: Iterable[Json],
    handle: Callable[[Json], object],
    expected: type[ProxyError] = ProxyError,
) -> list[tuple[Json, str]]:
    """Return the documents that raise another error than the expected one."""
    errors = []
    for document in documents:
        try:
            handle(document)
        except expected:
            continue
        except Exception as error:  # noqa: BLE001  # any error of the product
            errors.append((document, repr(error)))
    return errors
