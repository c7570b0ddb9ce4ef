"""Values that all packages share. All are frozen: use ``dataclasses.replace`` to change one.

Fields made by ``empty_cache_field`` cache derived values. They take no part in comparison.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import field
from datetime import UTC, datetime
from itertools import chain
from typing import TYPE_CHECKING, Any, Literal

from proxy.errors import RejectedByRule
from proxy.errors.words import BoundedText
from proxy.runtime.frozen import empty_cache_field, frozen
from proxy.types.endpoints import ABOUT_STATE as ABOUT_STATE
from proxy.types.endpoints import UNBILLED_ENDPOINTS as UNBILLED_ENDPOINTS
from proxy.types.endpoints import ChangedFields, NumericFields
from proxy.types.endpoints import Endpoint as Endpoint
from proxy.types.endpoints import TargetRoute as TargetRoute
from proxy.types.guard import NO_GUARDS, GuardPlan
from proxy.types.limit import ClaimTemplate, Limit
from proxy.types.target import Breaker as Breaker
from proxy.types.target import ListedModel
from proxy.types.target import Secret as Secret
from proxy.types.target import StateRef as StateRef
from proxy.types.target import Target as Target
from proxy.types.target import Timeouts as Timeouts
from proxy.types.target import Upstream as Upstream

if TYPE_CHECKING:
    from proxy.types.passthrough import PassthroughPath, PassthroughRequest, Upload


@frozen
class SemanticCacheRule:
    """Serves the cached response to a similar prompt.

    - ``embeddings``: deployment that computes vectors. A call of it has ``deadline`` seconds.
    - ``mode``: in shadow mode matches are only counted.
    - ``threshold``: minimum cosine similarity of a match.
    - ``max_temperature``: calls with a higher temperature are not compared.
    """

    embeddings: str
    mode: Literal["shadow", "serve"] = "shadow"
    threshold: float = 0.95
    deadline: float = 1.0
    max_temperature: float = 1.0

    def __str__(self) -> str:
        use = "served" if self.mode == "serve" else "counted only"
        return f"similar prompts (from {self.threshold:g}, {self.embeddings}) are {use}"


CACHE_STORES = ("memory", "sqlite", "redis")


@frozen
class CacheRule:
    """Cache settings of a call.

    - ``ttl``: seconds.
    - ``namespace``, and with ``by_user`` the end user, are part of the cache key.
    - ``max_bytes``: maximum size of one response as JSON.
    - ``tool_calls``: responses with tool calls are stored too.
    - ``store``: one of ``CACHE_STORES``.
    """

    ttl: float
    namespace: str = ""
    max_bytes: int = 1024 * 1024
    by_user: bool = False
    tool_calls: bool = False
    store: str = "memory"
    semantic: SemanticCacheRule | None = None


Json = dict[str, Any]
EPOCH = datetime.fromtimestamp(0, UTC)


@frozen
class TraceContext:
    """W3C trace context of the client. Ids are lower-case hex.

    - ``is_sampled``: the client's sampling decision.
    - ``sample_id``: replaces the trace id in our own sampling decision if this proxy is the client.
    """

    trace_id: str
    span_id: str
    sample_id: str | None = None
    is_sampled: bool = False


@frozen
class RequestHead:
    """A request before its body is read.

    - ``call_id``: unique. ``request_id`` may be the client's.
    - ``digest``: SHA-256 of the client's key.
    - ``deployment``, ``alternatives``: deployments that the client named. Its key must be allowed
      to use each of them.
    - ``tags``: pairs that the client sent. A tag without a value has None.
    - ``properties``: pairs that the client sent. They appear only in logs and spans.
    - ``user``: the end user.
    - ``via``: ids of the Headrace instances that forwarded the call.
    - ``echo``: response headers that the dialect sends with every response, also with errors.
    - ``headers``: names are lower-case, credentials are left out.
    - ``received_at``: in UTC.
    - ``internal_key``: set for calls of guards and of the cache.
    - ``session``: the client's id for a group of calls.
    - ``parameters``: parameters of the path and the query.
    - ``passthrough``: set for passthrough paths.
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
    properties: tuple[tuple[BoundedText, BoundedText], ...] = ()
    parameters: tuple[tuple[str, str], ...] = ()
    alternatives: tuple[str, ...] = ()
    passthrough: PassthroughRequest | None = None
    method: str = "POST"

    def get_url_parameter(self, name: str) -> str | None:
        """Return a parameter of the path or the query, or None."""
        return next((value for key, value in self.parameters if key == name), None)


@frozen
class Call:
    """A request in the format of its API family, without extensions of the client's dialect.

    - ``body``: never modified. Policies decide on the body that is forwarded.
    - ``requested_models``: several names only in the multi-model dialect.
    - ``wants_usage``: the client expects a usage chunk at the end of a stream.
    - ``field_aliases``: aliases that the client used for fields.
    - ``size``: size of the body in bytes.
    - ``field_quarters``: estimates of a large body by field, in quarters of a token.
    - ``scheduling_key``: identifies the client in the fair queue.
    - ``state_ref``: restricts the call to the target that stores the referenced state.
    - ``item_ids``: pairs of a client's id and a provider's id. ``body`` has placeholders for them.
    - ``signatures``: thought signatures of tool calls in ``body``, by call id.
    - ``upload``: the unparsed body of a passthrough request.
    - ``background``: the response is retrieved later.
    - ``translations``: cache of the request in the format of each target.
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
    translations: list[tuple[Target, ParameterOverrides, TranslatedRequest]] = empty_cache_field(
        list
    )

    @property
    def creates_state(self) -> bool:
        """True if a repeated request would store a response or a conversation item twice."""
        state_ref, endpoint = self.state_ref, self.head.endpoint
        talks = state_ref.is_conversation if state_ref else endpoint == "conversations"
        return self.background or (talks and self.head.method == "POST")


@frozen
class ParameterOverrides:
    """Request parameters that rules ``set``, and their upper bounds (``cap``).

    ``changed`` caches the resulting parameters by target route.
    """

    set: Mapping[str, Any] = field(default_factory=dict)
    cap: Mapping[str, float] = field(default_factory=dict)
    changed: dict[TargetRoute, dict[NumericFields, ChangedFields | None]] = empty_cache_field(dict)

    def __bool__(self) -> bool:
        return bool(self.set or self.cap)


NO_OVERRIDES = ParameterOverrides()


@frozen
class TranslatedRequest:
    """A request body in the format of an upstream.

    - ``dropped_fields``: have no counterpart in that format.
    - ``default_fields``: added because the upstream requires them.
    - ``accepts_zero_bound``: the upstream returns nothing for a token bound of 0. Others treat 0 as
      unlimited.
    - ``max_output_tokens``: bounds all choices together.
    """

    body: Json
    dropped_fields: tuple[str, ...]
    supported_fields: Collection[str]
    accepts_zero_bound: bool
    max_output_tokens: int
    default_fields: tuple[str, ...] = ()


@frozen
class ModelCall:
    """One requested model of a call, and its targets in the order in which they are tried.

    - ``pool_size``: the first targets up to this number are equal. The least loaded one is first.
    - ``overrides``: apply to all targets, except those whose id is in ``target_overrides``.
    - ``rules``, ``shadow_rules``: the rules that matched, as ``policy/rule``.
    - ``rule_by_effect``: the rule behind each effect, such as ``cap max_tokens``.
    """

    model: str
    targets: tuple[Target, ...]
    pool_size: int = 1
    overrides: ParameterOverrides = NO_OVERRIDES
    rules: tuple[str, ...] = ()
    shadow_rules: tuple[str, ...] = ()
    rule_by_effect: Mapping[str, str] = field(default_factory=dict)
    target_overrides: Mapping[str, ParameterOverrides] = field(default_factory=dict)

    def get_overrides(self, target: Target) -> ParameterOverrides:
        if not self.target_overrides:
            return self.overrides
        return self.target_overrides.get(target.id, self.overrides)


@frozen
class Retry:
    """Retries of the same target after the statuses or causes in ``on``.

    The wait before retry n (from 1) is random, at most ``wait * 2 ** (n - 1)`` and ``max_wait``
    seconds, and at least what the upstream requests.
    """

    times: int
    on: frozenset[int | str]
    wait: float
    max_wait: float


@frozen
class RuleRefusal:
    """Refusal of a call by a rule."""

    rule: str
    message: str
    status: int


@frozen
class ScopedLimit:
    """A limit with one counter for each value of the dimensions in ``per``.

    ``needs_prices`` is True for a limit of cost that refuses targets without a known price.
    """

    limit: Limit
    per: tuple[str, ...] = ()
    needs_prices: bool = False

    @property
    def name(self) -> str:
        return self.limit.name


@frozen
class Plan:
    """The policy's decision on one call.

    - ``model_list``: the response to a request for the list of models.
    - ``hedge_after``: seconds until a second target is tried in parallel.
    - ``refusal``: set if a rule refuses the call.
    - ``cache``: None if the call does not use the cache.
    - ``may_refresh``: the client may skip the cache lookup.
    - ``rule_by_effect``: the rule behind each effect on the whole call.
    - ``passthrough``: the matched passthrough path.
    - ``rules``, ``shadow_rules``: the rules of all model calls.
    - ``cache_key_prefixes``, ``claim_templates``: caches of what calls with this plan share.
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
    rule_by_effect: Mapping[str, str] = field(default_factory=dict)
    passthrough: PassthroughPath | None = None
    rules: tuple[str, ...] = field(init=False, repr=False, compare=False)
    shadow_rules: tuple[str, ...] = field(init=False, repr=False, compare=False)
    cache_key_prefixes: dict[tuple[str, str], bytes] = empty_cache_field(dict)
    claim_templates: list[ClaimTemplate] = empty_cache_field(list)

    def __post_init__(self) -> None:
        for name in ("rules", "shadow_rules"):
            rules = chain.from_iterable(getattr(call, name) for call in self.model_calls)
            object.__setattr__(self, name, tuple(dict.fromkeys(rules)))

    def raise_if_refused(self) -> None:
        """Raise ``RejectedByRule`` if a rule refuses the call."""
        if self.refusal is not None:
            raise RejectedByRule(self.refusal.message, self.refusal.status)


@frozen
class PassthroughHead:
    """Head of a passthrough response.

    ``length`` is the size of the body in bytes, None if unknown. With ``parses_json`` the proxy
    parses the body.
    """

    status: int
    media_type: str
    length: int | None
    parses_json: bool


@frozen
class ResponseHead:
    """Head of a response: an event stream or a whole document.

    ``headers`` are the upstream headers that the dialect forwards. ``is_flagged`` is True if a
    guard of the upstream flagged the call. ``passthrough`` is set for passthrough responses; their
    frames may have bytes without a document.
    """

    streamed: bool
    headers: tuple[tuple[str, str], ...] = ()
    is_flagged: bool = False
    passthrough: PassthroughHead | None = None
