"""Where calls may go: providers, and the models they have; and the secrets that they take."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import field
from datetime import date
from hashlib import sha256

from proxy.fields.denied import NOT_THE_CLIENTS
from proxy.fields.field_table import LIMITED
from proxy.fields.rules import FieldRules, Verdict, field_rules
from proxy.money.usage import Price, price_on
from proxy.runtime.frozen import frozen, memo
from proxy.types.providers import OPENAI, Provider
from proxy.types.way import Endpoint, TargetEndpoint, TargetRoute

NO_PRICE = "no known price"
CREDENTIAL_WORDS = ("auth", "api-?key", "token", "secret", "password", "cookie")
"""Patterns of which one is in the name of each header that carries a credential."""


class Secret:
    """A credential. Shows as stars wherever it is printed; ``reveal`` is for the wire alone."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def reveal(self) -> str:
        return self._value

    @property
    def digest(self) -> bytes:
        """Its SHA-256, by which it is known again."""
        return sha256(self._value.encode("utf-8", "surrogateescape")).digest()

    def __repr__(self) -> str:
        return "Secret(***)"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._value == self._value

    def __hash__(self) -> int:
        return hash(self._value)


@frozen
class Timeouts:
    """How long an upstream may take, in seconds, phase by phase and in all.

    ``first_byte`` and ``idle`` are for streams: models think before they say the first word, and
    between two. A whole answer comes when it is ready, so ``total`` alone bounds it.
    """

    connect: float = 5.0
    first_byte: float = 600.0
    idle: float = 600.0
    total: float = 600.0

    def within(self, seconds: float, *, streamed: bool) -> Timeouts:
        """Return those of one request, which may take no longer than so many seconds."""
        total = min(self.total, seconds)
        if streamed:
            return Timeouts(
                connect=self.connect, first_byte=self.first_byte, idle=self.idle, total=total
            )
        return Timeouts(connect=self.connect, first_byte=total, idle=total, total=total)


@frozen
class Breaker:
    """A target is left alone for ``rest`` seconds after so many ``failures`` in a row."""

    failures: int = 5
    rest: float = 10.0


@frozen
class Upstream:
    """A provider endpoint. ``accepts`` are request fields it takes beyond its dialect's own;
    ``most`` has the largest number that it takes for some of them, or the most entries. Of all
    others those that it ``drops`` are left out of a request, and those that it ``refuses`` refuse
    it: ``rules`` has these, the accepted ones and those of ``LIMITED``.
    With ``open_ranges`` it judges by itself how large a value
    may be, and only types are checked. An upstream that ``is_gateway`` gets
    declared and accepted fields only. Without ``asks_usage`` no stream of it is asked to tell its
    usage. A ``base_url`` may have a place for ``{model}``; ``query`` is added to each URL, and
    ``key_header`` carries the key in place of the dialect's own.

    One of its answers has ``max_answer_values`` at the most, and ``max_answer_bytes``, or what
    suits its endpoint where that is None. ``traits`` say how it differs from OpenAI where it speaks
    OpenAI's dialect. Without a ``breaker`` its targets are tried however often
    they have failed; without ``max_concurrency`` it gets as many requests at once as there are
    calls. ``ways`` are those that requests have gone, by the client's dialect and endpoint and the
    only endpoint of the target.
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
    most: tuple[tuple[str, float], ...] = ()
    asks_usage: bool = True
    traits: Provider = OPENAI
    is_gateway: bool = False
    drops: frozenset[str] = frozenset()
    refuses: frozenset[str] = NOT_THE_CLIENTS
    open_ranges: bool = False
    max_answer_bytes: int | None = None
    max_answer_values: int = 100_000
    propagate_trace: bool = False
    max_concurrency: int | None = None
    breaker: Breaker | None = field(default_factory=Breaker)
    rules: FieldRules = field(init=False, repr=False, compare=False)
    ways: dict[tuple[str, Endpoint, Endpoint | None], TargetRoute] = memo(dict)

    def __post_init__(self) -> None:
        """Prepare the rules for request fields, once per revision."""
        names: Mapping[Verdict, Collection[str]] = {
            "drop": self.drops,
            "accept": self.accepts - {"model"},
            "refuse": self.refuses,
            "limit": LIMITED,
        }
        anywhere = NOT_THE_CLIENTS | LIMITED
        object.__setattr__(self, "rules", field_rules(names, anywhere))


@frozen
class Target:
    """An upstream and the model a deployment uses there.

    ``endpoint`` is set when the target speaks only one of legacy completions, chat and Responses;
    the others are then translated. ``prices`` are dated; that of the call's day counts.
    ``names`` are those by which a client may ask for it: its model, and that with the upstream or
    its provider before it.
    """

    upstream: Upstream
    model: str
    endpoint: TargetEndpoint | None = None
    prices: tuple[Price, ...] = ()
    always_priced: bool = field(init=False, repr=False, compare=False)
    names: frozenset[str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Note, once a revision, its names, and that no day and no endpoint leaves it without a
        whole price."""
        only = self.prices[0] if len(self.prices) == 1 else None
        always = only is not None and only.since is None
        whole = only is not None and only.input is not None and only.output is not None
        object.__setattr__(self, "always_priced", always and whole)
        prefixes = filter(None, (self.upstream.name, self.upstream.provider))
        names = frozenset({self.model, *(f"{prefix}/{self.model}" for prefix in prefixes)})
        object.__setattr__(self, "names", names)

    @property
    def is_free(self) -> bool:
        """True if each of its prices is 0."""
        return bool(self.prices) and all(price.is_free for price in self.prices)

    @property
    def id(self) -> str:
        """Its name for people, and in what is told of a call."""
        return f"{self.upstream.name}/{self.model}"

    def missing_price(self, on: date | None = None) -> str | None:
        """Return what its price lacks, in words; None where it is whole.

        Without a day any price that it has may count. Embeddings are what a model's name calls so.
        """
        prices = self.prices
        if on is not None:
            price = price_on(prices, on)
            if price is None:
                return f"no price in force on {on}"
            prices = (price,)
        embeds = "embed" in self.model.lower()
        return (
            min((missing_price(price, embeds) or "" for price in prices), default=NO_PRICE) or None
        )


@frozen
class ListedModel:
    """An entry of a list of models. ``is_main`` is True for deployments and for one name of each
    model; a list of all names has the others too."""

    id: str
    owner: str
    created: date
    is_main: bool = False


@frozen
class StateRef:
    """Target that keeps the state of a call. ``target`` is a target's title; for a conversation it
    is an upstream's name, because all targets of that upstream share conversations.

    ``id`` is the provider's id, empty if only the place is pinned. ``client_id`` is the client's
    id, sent in the field ``param`` (None for the id of a response).
    """

    client_id: str
    deployment: str
    target: str
    id: str = field(repr=False)
    param: str | None = None
    is_conversation: bool = False

    def matches(self, target: Target) -> bool:
        """True if a target of the deployment has the state."""
        return self.target == (target.upstream.name if self.is_conversation else target.id)

    def is_beside(self, other: StateRef) -> bool:
        """True if a target has this state and that of another pin."""
        if self.deployment != other.deployment:
            return False
        if self.is_conversation == other.is_conversation:
            return self.target == other.target
        wide, narrow = (self, other) if self.is_conversation else (other, self)
        return narrow.target.startswith(f"{wide.target}/")


def titles(targets: Iterable[Target]) -> str:
    return ", ".join([target.id for target in targets])


def missing_price(price: Price, embeds: bool) -> str | None:
    """Return what is missing of all that a call surely uses: the prompt, and the answer, unless the
    model only ``embeds``. None for a price that is whole."""
    if price.input is None:
        return "no price for input"
    return None if embeds or price.output is not None else "no price for output"
