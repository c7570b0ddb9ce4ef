"""Values: what is made once and then never changes, but for what is kept with it in a ``memo``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, Field, dataclass, field, fields
from functools import lru_cache
from operator import attrgetter
from reprlib import recursive_repr
from types import CodeType, FunctionType
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
    keyed and shown is the same for all, and how they are made for those of as many plain fields: a
    dataclass would have Python compile it for each class of ours, which is a tenth of a start.
    """
    is_plain = _is_plain(cls)
    made = dataclass(slots=True, eq=False, repr=False, init=not is_plain)(cls)
    if is_plain:
        _let_init(made)
    names = [each.name for each in fields(cast(Any, made)) if each.compare]
    every = attrgetter(*names) if len(names) > 1 else _few(names)
    for name, method in (*_comparing(every), ("__repr__", _shown)):
        if made.__dict__.get(name) is None:
            setattr(made, name, method)
    return made


def _is_plain(cls: type) -> bool:
    """True if ``__init__`` does no more than set each field to what it is given."""
    if hasattr(cls, "__post_init__") or hasattr(cls, "__dataclass_fields__"):
        return False
    return "__init__" not in vars(cls) and Field not in map(type, vars(cls).values())


def _let_init(cls: type) -> None:
    """Set the ``__init__`` of a class of plain fields. Raise ``TypeError`` for one that may be left
    out before another that may not."""
    names: tuple[str, ...] = ()
    defaults: tuple[Any, ...] = ()
    for each in fields(cast(Any, cls)):
        names += (each.name,)
        if each.default is not MISSING:
            defaults += (each.default,)
        elif defaults:
            raise TypeError(f"{cls.__qualname__}.{each.name} has no default, and follows one")
    code = _setting(len(names)).replace(
        co_name="__init__",
        co_names=names,
        co_varnames=("self", *names),
        co_qualname=f"{cls.__qualname__}.__init__",
    )
    init = FunctionType(code, globals(), "__init__", defaults)
    init.__module__ = cls.__module__
    cast(Any, cls).__init__ = init


@lru_cache
def _setting(count: int) -> CodeType:
    """Return the code that sets so many fields, each to what it is given, under other names."""
    names = [f"field{number}" for number in range(count)]
    body = "\n".join([f" self.{name} = {name}" for name in names] or [" pass"])
    made: dict[str, FunctionType] = {}
    exec(f"def init({', '.join(('self', *names))}):\n{body}", {}, made)  # noqa: S102  # our own
    return made["init"].__code__


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
