"""The nouns that travel through the house. All are frozen: change is ``dataclasses.replace``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from proxy.usage import Price

Json = dict[str, Any]
Endpoint = Literal["completions", "chat", "embeddings", "models"]


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
class Parent:
    """Where the caller stands in its own trace (W3C ``traceparent``), ids as lower-case hex."""

    trace_id: str
    span_id: str


@dataclass(frozen=True, slots=True)
class Door:
    """What is known of a call before a byte of its body is read.

    ``nonce`` is drawn by us for each call, ``request_id`` may be the client's.
    ``tags`` are the caller's own, as pairs; a bare label has no value. ``user`` is the end user
    that a header names. ``timeout_s`` is the time that the client allows. ``echo`` are response
    headers that the dialect promises whatever happens. ``via`` are the marks of the proxies of
    this kind that the call has come through.
    """

    dialect: str
    endpoint: Endpoint
    route: str
    request_id: str
    nonce: str = ""
    credential: Secret | None = None
    deployment: str | None = None
    tags: tuple[tuple[str, str | None], ...] = ()
    user: str | None = None
    refresh: bool = False
    timeout_s: float | None = None
    parent: Parent | None = None
    via: tuple[str, ...] = ()
    echo: tuple[tuple[str, str], ...] = ()
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Call:
    """What the client asks, in OpenAI's form whatever dialect it came in.

    ``body`` is never changed in place: it is what policy saw and what is forwarded. ``models``
    are the names asked for, several only in the multi-model dialect. ``wants_usage`` says that
    the client expects a usage chunk at the end of its stream.
    """

    door: Door
    body: Json
    models: tuple[str, ...] = ()
    deployment: str | None = None
    stream: bool = False
    wants_usage: bool = False
    timeout_s: float | None = None
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Timeouts:
    """How long an upstream may take, in seconds, phase by phase and in all."""

    connect: float = 5.0
    first_byte: float = 60.0
    idle: float = 30.0
    total: float = 600.0


@dataclass(frozen=True, slots=True)
class Upstream:
    """A provider endpoint. ``accepts`` are request fields it takes beyond its dialect's own."""

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


@dataclass(frozen=True, slots=True)
class Leg:
    """One model of a call: the name the client asked for, and the targets to try in order."""

    model: str
    targets: tuple[Target, ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """What policy decided for one call. ``listing`` is set when policy itself is the answer."""

    revision: str
    key: str
    deployment: str | None
    tags: Mapping[str, str]
    legs: tuple[Leg, ...]
    listing: tuple[str, ...] | None = None
    dropped_tags: int = 0
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Head:
    """What an answer is, before its first chunk: a stream of events or one whole document.

    ``headers`` are those of the upstream that its dialect allows a client to see.
    """

    streamed: bool
    headers: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Chunk:
    """A piece of an answer in OpenAI's form; an answer that is not streamed is one chunk per leg.

    ``raw`` is the very JSON that the upstream sent for ``data``: it is sent on as it came while
    nothing has changed ``data``. ``data`` is None in the bare end of a stream.
    """

    data: Json | None
    raw: bytes | None = None
    leg: int = 0
    last: bool = False
