"""Values: what is made once and then never changes, but for what is kept with it in a ``memo``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, TypeVar, dataclass_transform

T = TypeVar("T")


def memo(empty: Callable[[], T], *, init: Literal[False] = False) -> T:
    """Return a field for what is worked out of a value when it is first asked for, such as the body
    that a call becomes for a target: it is filled later, in place, maybe by two threads at once.

    Nobody can tell whether something is there already but by the time that it takes: so it is no
    part of what the value is, and a copy of the value begins without it.
    """
    return field(init=init, repr=False, compare=False, default_factory=empty)


@dataclass_transform(frozen_default=True, field_specifiers=(field, memo))
def frozen(cls: type[T]) -> type[T]:
    """Return the class as a dataclass whose fields nobody may set but its ``__init__``.

    The type checker sees to that. A dataclass that refuses it at run time as well sets each field
    by a call, and a call through the proxy makes some hundred values.
    """
    return dataclass(slots=True, unsafe_hash=True)(cls)
