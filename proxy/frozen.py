"""Values: what is made once and then never changes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def frozen(cls: type[T]) -> type[T]:
    """Return the class as a dataclass whose fields nobody may set but its ``__init__``.

    The type checker sees to that. A dataclass that refuses it at run time as well sets each field
    by a call, and a call through the proxy makes some hundred values.
    """
    return dataclass(slots=True, unsafe_hash=True)(cls)
