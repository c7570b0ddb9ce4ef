"""The nouns that travel through the house. All are frozen: change is ``dataclasses.replace``; what
is kept with one in a ``memo`` is no part of it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import field
from datetime import UTC, datetime
from itertools import chain
from typing import TYPE_CHECKING, Any

from proxy.errors import RejectedByRule
from proxy.errors.words import Word
from proxy.runtime.frozen import frozen, memo
from proxy.types.cache_rule import CACHE_STORES as CACHE_STORES
from proxy.types.cache_rule import CacheRule as CacheRule
from proxy.types.cache_rule import SemanticCacheRule as SemanticCacheRule
from proxy.types.guard import NO_GUARDS, GuardPlan
from proxy.types.limit import ClaimTemplate, Limit
from proxy.types.target import Breaker as Breaker
from proxy.types.target import ListedModel
from proxy.types.target import Secret as Secret
from proxy.types.target import StateRef as StateRef
from proxy.types.target import Target as Target
from proxy.types.target import Timeouts as Timeouts
from proxy.types.target import Upstream as Upstream
from proxy.types.way import ABOUT_STATE as ABOUT_STATE
from proxy.types.way import UNBILLED as UNBILLED
from proxy.types.way import AskedNumbers, ChangedFields
from proxy.types.way import Endpoint as Endpoint
from proxy.types.way import TargetRoute as TargetRoute

if TYPE_CHECKING:
    from proxy.types.passthrough import PassedPath, PassedRequest, Upload

Json = dict[str, Any]
EPOCH = datetime.fromtimestamp(0, UTC)


@frozen
class TraceContext:
    """Where the caller stands in its own trace (W3C ``traceparent``), ids as lower-case hex.

    ``is_sampled`` is the caller's own decision. ``sample_id`` is the number by which the caller's
    calls are sampled, where that is the proxy itself.
    """

    trace_id: str
    span_id: str
    sample_id: str | None = None
    is_sampled: bool = False


@frozen
class RequestHead:
    """What is known of a call before a byte of its body is read.

    ``call_id`` is drawn by us for each call, ``request_id`` may be the client's. ``tags`` are the
    caller's own, as pairs; a bare label has no value. ``user`` is the end user that a header names.
    ``timeout_s`` is the time that the client allows. ``echo`` are response headers that the dialect
    promises whatever happens. ``via`` are the marks of the proxies of this kind that the call has
    come through. ``digest`` is the SHA-256 of the key's text, which is kept nowhere. ``headers``
    are those of the request that carry no credential, by lower-case name, for the conditions of
    rules; ``received_at`` is the moment it came, in UTC. ``internal_key`` is the key of a call that
    the proxy makes itself. ``session`` is what the call is one of; ``properties`` describe it in
    its log line and on its span, and decide nothing. ``parameters`` are what its path and its query
    name, as far as the route knows them; ``route`` has the names alone. ``alternatives`` are
    deployments that were not drawn, as ``deployment`` was: the key must be allowed to use them,
    too. ``passthrough`` is what a request for a path that is passed on says beside. ``method`` is
    that of HTTP, where a ``HEAD`` of ours is a ``GET``.
    """

    dialect: str
    endpoint: Endpoint
    route: str
    request_id: str
    call_id: str = ""
    digest: bytes | None = field(default=None, repr=False)
    deployment: str | None = None
    tags: tuple[tuple[str, str | None], ...] = ()
    user: str | None = None
    bypass_cache: bool = False
    timeout_s: float | None = None
    parent: TraceContext | None = None
    via: tuple[str, ...] = ()
    echo: tuple[tuple[str, str], ...] = ()
    warnings: tuple[str, ...] = ()
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    received_at: datetime = EPOCH
    internal_key: str | None = None
    session: str | None = None
    properties: tuple[tuple[Word, Word], ...] = ()
    parameters: tuple[tuple[str, str], ...] = ()
    alternatives: tuple[str, ...] = ()
    passthrough: PassedRequest | None = None
    method: str = "POST"

    def parameter(self, name: str) -> str | None:
        """Return what the path or the query says under a name; None where they do not."""
        return next((value for known, value in self.parameters if known == name), None)


@frozen
class Call:
    """What the client asks, in OpenAI's form whatever dialect it came in.

    ``body`` is never changed in place: it is what policy saw and what is forwarded.
    ``requested_models`` are the names asked for, several only in the multi-model dialect.
    ``wants_usage`` says that the client expects a usage chunk at the end of its stream.
    ``field_aliases`` are those by which it wrote fields that have several. ``size`` is that of the
    body as it came, in bytes; of a large one ``field_quarters`` are the estimates of its fields,
    see ``proxy.money.estimate``. ``scheduling_key`` names its turns: those of its key, or of a
    guard and the key for which it asks. ``state_ref`` is where the state is kept that it leans on:
    no other target may be asked. ``item_ids`` are those of items in ``body``, where names by their
    places here stand for them: as the client knows them, each with the provider's own.
    ``signatures`` are those of tool calls in ``body``, by their ids. ``upload`` is a body that
    nobody here reads, of a path that is passed on; ``body`` has nothing then. ``background`` says
    that the answer is made later, and asked for by its id. ``translations`` are a memo of what it
    became for a target: its limits count by that, and then it is sent.
    """

    head: RequestHead
    body: Json
    requested_models: tuple[str, ...] = ()
    deployment: str | None = None
    stream: bool = False
    wants_usage: bool = False
    timeout_s: float | None = None
    warnings: tuple[str, ...] = ()
    field_aliases: frozenset[str] = frozenset()
    size: int = 0
    field_quarters: Mapping[str, int] = field(default_factory=dict)
    scheduling_key: str = ""
    state_ref: StateRef | None = None
    item_ids: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    signatures: Mapping[str, str] = field(default_factory=dict, repr=False)
    upload: Upload | None = None
    background: bool = False
    translations: list[tuple[Target, ParameterOverrides, TranslatedRequest]] = memo(list)

    @property
    def creates_state(self) -> bool:
        """True if it stores a response or a part of a conversation, which must happen once."""
        talks = (
            self.state_ref.is_conversation
            if self.state_ref
            else self.head.endpoint == "conversations"
        )
        return self.background or (talks and self.head.method == "POST")


@frozen
class ParameterOverrides:
    """Changes of a request's parameters by rules: values to set, and upper bounds.

    ``changed`` caches the parameters that result, by way.
    """

    set: Mapping[str, Any] = field(default_factory=dict)
    cap: Mapping[str, float] = field(default_factory=dict)
    changed: dict[TargetRoute, dict[AskedNumbers, ChangedFields | None]] = memo(dict)

    def __bool__(self) -> bool:
        return bool(self.set or self.cap)


UNCHANGED = ParameterOverrides()


@frozen
class TranslatedRequest:
    """A body as an upstream can take it, and the names of the fields it had to leave behind.

    ``default_fields`` are the fields, each with its value, that it wants and nobody has said.
    ``supported_fields`` are the fields that the upstream is known to take. With
    ``accepts_zero_bound`` it is known to answer nothing where a bound is 0; some others answer
    without end. ``max_output_tokens`` are the tokens that all answers to it may have. ``changed``
    are the fields that rules have set, where the body in OpenAI's form differs in nothing else;
    None where that takes a closer look.
    """

    body: Json
    dropped_fields: tuple[str, ...]
    supported_fields: Collection[str]
    accepts_zero_bound: bool
    max_output_tokens: int
    changed: Mapping[str, Any] | None = None
    default_fields: tuple[str, ...] = ()


@frozen
class ModelCall:
    """One model of a call: the name the client asked for, and the targets to try in order.

    The first ``pool_size`` targets are as good as each other; the one with the least to do goes
    first. ``overrides`` are made of a request for any target but those that have
    ``target_overrides``, by title. ``rules`` are those that apply, as ``policy/rule``;
    ``shadow_rules`` are those in shadow that hold. ``rule_by_effect`` names the rule behind each of
    their effects, such as ``cap max_tokens``.
    """

    model: str
    targets: tuple[Target, ...]
    pool_size: int = 1
    overrides: ParameterOverrides = UNCHANGED
    rules: tuple[str, ...] = ()
    shadow_rules: tuple[str, ...] = ()
    rule_by_effect: Mapping[str, str] = field(default_factory=dict)
    target_overrides: Mapping[str, ParameterOverrides] = field(default_factory=dict)

    def overrides_for(self, target: Target) -> ParameterOverrides:
        """Return what rules make of a request for one target."""
        return (
            self.target_overrides.get(target.id, self.overrides)
            if self.target_overrides
            else self.overrides
        )


@frozen
class Retry:
    """More tries of the same target: how many, after which statuses or causes, and the waits.

    Waits are in seconds: the longest first one, which doubles each time, and the longest at all.
    """

    times: int
    on: frozenset[int | str]
    wait: float
    max_wait: float


@frozen
class RuleRefusal:
    """What a rule says against a call."""

    rule: str
    message: str
    status: int


@frozen
class ScopedLimit:
    """A limit, and whose: each value of what it is ``per`` has a counter of its own.

    One of money that ``needs_prices`` covers no target whose price is not known.
    """

    limit: Limit
    per: tuple[str, ...] = ()
    needs_prices: bool = False


@frozen
class Plan:
    """What policy decided for one call. ``model_list`` is set when policy itself is the answer.

    ``hedge_after`` is in seconds. ``refusal`` is set when a rule refuses the call. Without
    ``cache`` the answer is neither kept nor looked for; ``may_refresh`` says whether the client may
    have asked anew what is kept. ``rule_by_effect`` names the rule behind each effect on the whole
    call. ``question_frames`` are what of a question's key is the same for all calls that share the
    plan, by dialect and endpoint, and ``claim_templates`` what of their claims: each is made with
    the first of them. ``rules`` are those that apply to any model, and ``shadow_rules`` those in
    shadow that hold for any, once each. ``passthrough`` is the path of a call that is passed on.
    """

    revision: str
    key: str
    deployment: str | None
    tags: Mapping[str, str]
    model_calls: tuple[ModelCall, ...]
    model_list: tuple[ListedModel, ...] | None = None
    dropped_tags: int = 0
    warnings: tuple[str, ...] = ()
    retry: Retry | None = None
    hedge_after: float | None = None
    refusal: RuleRefusal | None = None
    limits: tuple[ScopedLimit, ...] = ()
    cache: CacheRule | None = None
    may_refresh: bool = False
    guards: GuardPlan = NO_GUARDS
    by: Mapping[str, str] = field(default_factory=dict)
    passed: PassedPath | None = None
    rules: tuple[str, ...] = field(init=False, repr=False, compare=False)
    shadow_rules: tuple[str, ...] = field(init=False, repr=False, compare=False)
    question_frames: dict[tuple[str, str], bytes] = memo(dict)
    claim_templates: list[ClaimTemplate] = memo(list)

    def __post_init__(self) -> None:
        """Note once what each of its calls tells."""
        object.__setattr__(self, "rules", _once(each.rules for each in self.model_calls))
        shadow_rules = _once(each.shadow_rules for each in self.model_calls)
        object.__setattr__(self, "shadow_rules", shadow_rules)

    def raise_if_refused(self) -> None:
        """Raise ``RejectedByRule`` where a rule refuses the call."""
        if self.refusal is not None:
            raise RejectedByRule(self.refusal.message, self.refusal.status)


def _once(names: Iterable[tuple[str, ...]]) -> tuple[str, ...]:
    """Return all names, each once, in their order."""
    return tuple(dict.fromkeys(chain.from_iterable(names)))


@frozen
class PassedHead:
    """The head of an answer that is passed on. ``length`` is that of its body in bytes, None where
    its upstream does not say it; ``read`` is true of JSON, which is one whole document."""

    status: int
    media_type: str
    length: int | None
    read: bool


@frozen
class ResponseHead:
    """What an answer is, before its first frame: a stream of events or one whole document.

    ``headers`` are those of the upstream that its dialect allows a client to see; ``is_flagged``
    says that a guard of the upstream found fault with it, and let it pass. One that is
    ``passthrough`` on has a head of its own; of what nobody reads the frames have bytes, and no
    document.
    """

    streamed: bool
    headers: tuple[tuple[str, str], ...] = ()
    is_flagged: bool = False
    passed: PassedHead | None = None
