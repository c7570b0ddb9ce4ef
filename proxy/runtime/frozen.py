"""Immutable values: dataclasses whose fields the type checker lets nobody set."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, TypeVar, dataclass_transform

T = TypeVar("T")


def memo(empty: Callable[[], T], *, init: Literal[False] = False) -> T:
    """Return a field for results that are computed from a value on demand, such as the body that a
    call becomes for a target. It is filled in place, perhaps by two threads at once.

    It takes no part in comparisons, and a copy of the value begins without it.
    """
    return field(init=init, repr=False, compare=False, default_factory=empty)


@dataclass_transform(frozen_default=True, field_specifiers=(field, memo))
def frozen(cls: type[T]) -> type[T]:
    """Return the class as a dataclass whose fields only `__init__` sets.

    Only the type checker enforces that: `dataclass(frozen=True)` makes each assignment in
    `__init__` a function call, and a call through the proxy creates about a hundred values.
    """
    return dataclass(slots=True, unsafe_hash="__hash__" not in vars(cls))(cls)
