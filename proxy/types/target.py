"""Upstreams, their targets and secrets."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import field
from datetime import date
from hashlib import sha256

from proxy.fields.field_table import RESTRICTED_FIELDS
from proxy.fields.rules import POLICY_FIELDS, FieldRules, Verdict, compile_field_rules
from proxy.money.usage import Price
from proxy.runtime.frozen import empty_cache_field, frozen
from proxy.types.endpoints import Endpoint, TargetEndpoint, TargetRoute
from proxy.types.providers import OPENAI, Provider

NO_PRICE = "no known price"
CREDENTIAL_WORDS = ("auth", "api-?key", "token", "secret", "password", "cookie")
"""Patterns for names of headers that carry credentials."""


class Secret:
    """A credential whose ``repr`` is masked. Only code that sends it calls ``reveal``."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def reveal(self) -> str:
        return self._value

    @property
    def digest(self) -> bytes:
        return sha256(self._value.encode("utf-8", "surrogateescape")).digest()

    def __repr__(self) -> str:
        return "Secret(***)"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._value == self._value

    def __hash__(self) -> int:
        return hash(self._value)


@frozen
class Timeouts:
    """Timeouts of an upstream, in seconds.

    ``first_byte`` and ``idle`` apply to streams: before the first event and between events. Only
    ``total`` bounds a whole response.
    """

    connect: float = 5.0
    first_byte: float = 600.0
    idle: float = 600.0
    total: float = 600.0

    def make_request_timeouts(self, seconds: float, *, streamed: bool) -> Timeouts:
        """Return timeouts within ``seconds``. Unless ``streamed``, only the total bounds a body."""
        total = min(self.total, seconds)
        first_byte, idle = (self.first_byte, self.idle) if streamed else (total, total)
        return Timeouts(self.connect, first_byte, idle, total=total)


@frozen
class Breaker:
    """Circuit breaker that opens for ``open_s`` seconds after ``failures`` failures in a row."""

    failures: int = 5
    open_s: float = 10.0


@frozen
class Upstream:
    """A provider endpoint.

    - ``accepts`` are request fields beyond those of its dialect.
    - ``max_values`` are maxima of numbers, or of lengths of arrays, by field.
    - ``drops`` and ``refuses`` are fields that are removed from a request or cause an error.
    - ``skips_range_checks``: the proxy checks the types of values, not their ranges.
    - ``is_gateway`` forwards declared and accepted fields only.
    - ``requests_usage`` requests a usage chunk in streams.
    - ``base_url`` may contain ``{model}``. ``query`` is appended to each URL. ``key_header``
      replaces the credential header of the dialect.
    - ``max_answer_bytes`` (None: by endpoint) and ``max_answer_values`` bound a response.
    - ``traits`` are its differences from OpenAI's API.
    - ``breaker`` and ``max_concurrency`` are None for no circuit breaker and no concurrency limit.
    - ``routes`` caches routes by the client's dialect and endpoint and the target's endpoint.
    """

    name: str
    dialect: str
    base_url: str
    api_key: Secret | None = None
    headers: tuple[tuple[str, Secret], ...] = ()
    query: str = ""
    key_header: str | None = None
    timeouts: Timeouts = field(default_factory=Timeouts)
    provider: str | None = None
    accepts: frozenset[str] = frozenset()
    max_values: tuple[tuple[str, float], ...] = ()
    requests_usage: bool = True
    traits: Provider = OPENAI
    is_gateway: bool = False
    drops: frozenset[str] = frozenset()
    refuses: frozenset[str] = POLICY_FIELDS
    skips_range_checks: bool = False
    max_answer_bytes: int | None = None
    max_answer_values: int = 100_000
    propagate_trace: bool = False
    max_concurrency: int | None = None
    breaker: Breaker | None = field(default_factory=Breaker)
    rules: FieldRules = field(init=False, repr=False, compare=False)
    routes: dict[tuple[str, Endpoint, Endpoint | None], TargetRoute] = empty_cache_field(dict)

    def __post_init__(self) -> None:
        names: Mapping[Verdict, Collection[str]] = {
            "drop": self.drops,
            "accept": self.accepts - {"model"},
            "refuse": self.refuses,
            "limit": RESTRICTED_FIELDS,
        }
        anywhere = POLICY_FIELDS | RESTRICTED_FIELDS
        object.__setattr__(self, "rules", compile_field_rules(names, anywhere))


@frozen
class Target:
    """A model of an upstream.

    ``endpoint`` is set if the target supports only one of completions, chat and Responses; requests
    to the others are translated. ``prices`` are dated. ``names`` are the model names that select
    it: the model, with or without a prefix of the upstream or the provider.
    """

    upstream: Upstream
    model: str
    endpoint: TargetEndpoint | None = None
    prices: tuple[Price, ...] = ()
    always_priced: bool = field(init=False, repr=False, compare=False)
    names: frozenset[str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        only = self.prices[0] if len(self.prices) == 1 else None
        always = only is not None and only.since is None
        is_complete = only is not None and only.input is not None and only.output is not None
        object.__setattr__(self, "always_priced", always and is_complete)
        prefixes = filter(None, (self.upstream.name, self.upstream.provider))
        names = frozenset({self.model, *(f"{prefix}/{self.model}" for prefix in prefixes)})
        object.__setattr__(self, "names", names)

    @property
    def costs_nothing(self) -> bool:
        """True if all prices are 0."""
        return bool(self.prices) and all(price.is_free for price in self.prices)

    @property
    def id(self) -> str:
        """Name in texts, logs and metrics."""
        return f"{self.upstream.name}/{self.model}"

    def describe_missing_price(self) -> str | None:
        """Return a text that names the missing price, None if a price of any date is complete.

        Models with "embed" in their name need no price for output.
        """
        is_embedding = "embed" in self.model.lower()
        missing = (describe_missing_price(price, is_embedding) or "" for price in self.prices)
        return min(missing, default=NO_PRICE) or None


@frozen
class ListedModel:
    """An entry of the list of models.

    ``is_main`` is True for deployments and for one name of each model; the full list has all names.
    """

    id: str
    owner: str
    created: date
    is_main: bool = False


@frozen
class StateRef:
    """Reference to state that a provider stores for a call.

    - ``target``: id of the target. For a conversation the name of the upstream, because all its
      targets share conversations.
    - ``id``: the provider's id, empty if only the target is known.
    - ``client_id``, ``param``: the id that the client sent, and its field (None: the id of a
      response).
    """

    client_id: str
    deployment: str
    target: str
    id: str = field(repr=False)
    param: str | None = None
    is_conversation: bool = False

    def matches(self, target: Target) -> bool:
        """Return True if ``target``, of the same deployment, has the state."""
        return self.target == (target.upstream.name if self.is_conversation else target.id)

    def can_share_target(self, other_ref: StateRef) -> bool:
        """Return True if one target can have both states."""
        if self.deployment != other_ref.deployment:
            return False
        if self.is_conversation == other_ref.is_conversation:
            return self.target == other_ref.target
        wide, narrow = (self, other_ref) if self.is_conversation else (other_ref, self)
        return narrow.target.startswith(f"{wide.target}/")


def join_target_ids(targets: Iterable[Target]) -> str:
    return ", ".join([target.id for target in targets])


def describe_missing_price(price: Price, is_embedding: bool) -> str | None:
    """Return a text that names the missing price: of input, or of a chat's output."""
    if price.input is None:
        return "no price for input"
    return None if is_embedding or price.output is not None else "no price for output"
