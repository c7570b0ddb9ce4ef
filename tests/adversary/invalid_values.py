"""Documents in which one member, at any depth, has a value of another type."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from proxy.errors import ProxyError
from tests.doubles import Json

Path = tuple[Any, ...]
ODD_VALUES: tuple[Any, ...] = (
    None, True, 0, -1, 1.5, 2**63, "", "words", [], [1], ["a"], [[]], [None], {}, {"a": 1}, [{}],
    {"type": "text"}, {"type": 5}, [{"type": "text", "text": 5}], {"x": [{"y": "z"}]},
    {"type": ["x"], "id": {}}, "c_signed_QUFB",
)  # fmt: skip
SURROGATES: tuple[Any, ...] = ("\ud83d", {"\ude00": "\ud83d"})
"""Halves of a surrogate pair, which no client could use."""


def list_paths(value: Any, path: Path = ()) -> Iterator[Path]:
    """Yield the path of every member and item at any depth."""
    members: Any = value.items() if isinstance(value, dict) else ()
    for step, inner in enumerate(value) if isinstance(value, list) else members:
        yield (*path, step)
        yield from list_paths(inner, (*path, step))


def replace_at(document: Json, path: Path, value: Any) -> Json:
    """Return a copy of a document with another value at a path."""
    result: Any = copy.deepcopy(document)
    target = result
    for step in path[:-1]:
        target = target[step]
    target[path[-1]] = value
    return dict(result)


def iter_odd_documents(document: Json, odd_values: Sequence[Any] = ODD_VALUES) -> Iterator[Json]:
    """Yield a document with each odd value at each of its paths."""
    for path in list_paths(document):
        for odd in odd_values:
            yield replace_at(document, path, odd)


def find_internal_errors(
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
