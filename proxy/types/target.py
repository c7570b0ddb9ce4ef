"""Where calls may go: providers, and the models they have; and the secrets that they take."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from proxy.usage import Price


class Secret:
    """A credential. Shows as stars wherever it is printed; ``reveal`` is for the wire alone."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def reveal(self) -> str:
        return self._value

    def __repr__(self) -> str:
        return "Secret(***)"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._value == self._value

    def __hash__(self) -> int:
        return hash(self._value)


@dataclass(frozen=True, slots=True)
class Timeouts:
    """How long an upstream may take, in seconds, phase by phase and in all."""

    connect: float = 5.0
    first_byte: float = 60.0
    idle: float = 30.0
    total: float = 600.0


@dataclass(frozen=True, slots=True)
class Breaker:
    """A target is left alone for ``rest`` seconds after so many ``failures`` in a row."""

    failures: int = 5
    rest: float = 10.0


@dataclass(frozen=True, slots=True)
class Upstream:
    """A provider endpoint. ``accepts`` are request fields it takes beyond its dialect's own.

    Without a ``breaker`` its targets are tried however often they have failed; without
    ``max_concurrency`` it gets as many requests at once as there are calls.
    """

    name: str
    dialect: str
    base_url: str
    api_key: Secret | None = None
    headers: tuple[tuple[str, Secret], ...] = ()
    timeouts: Timeouts = field(default_factory=Timeouts)
    provider: str | None = None
    accepts: frozenset[str] = frozenset()
    max_answer_bytes: int = 64 * 1024 * 1024
    propagate_trace: bool = False
    max_concurrency: int | None = None
    breaker: Breaker | None = field(default_factory=Breaker)


@dataclass(frozen=True, slots=True)
class Target:
    """An upstream and the model a deployment uses there.

    ``endpoint`` is set when the target speaks only one of legacy completions and chat; the other
    is then translated. ``prices`` are dated; the one that counts is that of the call's day.
    """

    upstream: Upstream
    model: str
    endpoint: Literal["completions", "chat"] | None = None
    prices: tuple[Price, ...] = ()
