"""Values: what is made once and then never changes, but for what is kept with it in a ``memo``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from operator import attrgetter
from reprlib import recursive_repr
from typing import Any, Literal, TypeVar, cast, dataclass_transform

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
    by a call, and a call through the proxy makes some hundred values. How values are compared,
    keyed and shown is the same for all: a dataclass would have Python compile it for each class of
    ours, which is a fifteenth of a start.
    """
    made = dataclass(slots=True, eq=False, repr=False)(cls)
    names = [each.name for each in fields(cast(Any, made)) if each.compare]
    every = attrgetter(*names) if len(names) > 1 else _few(names)
    for name, method in (*_comparing(every), ("__repr__", _shown)):
        if made.__dict__.get(name) is None:
            setattr(made, name, method)
    return made


def _comparing(
    every: Callable[[object], object],
) -> tuple[tuple[str, Callable[..., object]], ...]:
    """Return how values are compared and keyed by ``every`` one of their fields that counts."""

    def equal(self: object, other: object) -> object:
        if other.__class__ is not self.__class__:
            return NotImplemented
        return every(self) == every(other)

    def hashed(self: object) -> int:
        return hash(every(self))

    return ("__eq__", equal), ("__hash__", hashed)


def _few(names: list[str]) -> Callable[[object], tuple[object, ...]]:
    return lambda value: tuple([getattr(value, name) for name in names])


@recursive_repr()
def _shown(value: Any) -> str:
    """Return a value as it is written in code."""
    shown = [f"{each.name}={getattr(value, each.name)!r}" for each in fields(value) if each.repr]
    return f"{type(value).__qualname__}({', '.join(shown)})"
