"""Immutable values: dataclasses whose immutability the type checker enforces."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, TypeVar, dataclass_transform

T = TypeVar("T")


def empty_cache_field(factory: Callable[[], T], *, init: Literal[False] = False) -> T:
    """Return a field that caches results computed from a value, such as a translated body.

    ``factory`` returns the empty cache, which is filled in place, possibly by two threads at once.
    The field takes no part in comparison, and a copy of the value starts with an empty cache.
    """
    return field(init=init, repr=False, compare=False, default_factory=factory)


@dataclass_transform(frozen_default=True, field_specifiers=(field, empty_cache_field))
def frozen(cls: type[T]) -> type[T]:
    """Return the class as a dataclass whose fields only ``__init__`` sets.

    Only the type checker enforces that: ``dataclass(frozen=True)`` makes each assignment in
    ``__init__`` a function call, and a call through the proxy creates about a hundred values.
    """
    return dataclass(slots=True, unsafe_hash="__hash__" not in vars(cls))(cls)
