"""Section ``deployments``: targets, routing, the cache, and passthrough paths."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated, Literal, cast

from pydantic import (
    AfterValidator,
    BaseModel,
    Field,
    StringConstraints,
    ValidationInfo,
)

from proxy.config.scalars import (
    CREDENTIAL_PATTERN,
    Duration,
    HeaderName,
    ItemOrList,
    Model,
    Name,
    OneOfWords,
    PositiveUsd,
    RefersTo,
    Section,
    Size,
    Switchable,
    TagKey,
    make_case_insensitive_pattern,
    make_pattern_annotations,
    require,
)
from proxy.config.shapes import (
    JsonSchema,
    Requirement,
    ShapeCondition,
    any_of,
    equals,
    has_size,
    if_then,
    is_not_null,
    one_of,
)
from proxy.dialects import PATH_PATTERNS, ROUTES
from proxy.errors.words import MAX_MODELS
from proxy.policy.schema.limits import LimitConfig
from proxy.policy.schema.prices import PriceConfig
from proxy.types import CACHE_STORES
from proxy.types.endpoints import ABOUT_STATE, TargetEndpoint
from proxy.types.passthrough import PassthroughPath


class TargetConfig(Section):
    """An upstream and one of its models."""

    upstream: Name
    """Name of the upstream."""
    model: Model
    """Name of the model at the upstream."""
    weight: Annotated[int, Field(ge=0, le=1_000_000)] | None = None
    """Relative share of the calls that several targets can serve."""
    endpoint: TargetEndpoint | None = None
    """The only API that the model supports; other calls are translated."""
    price: Annotated[list[PriceConfig], ItemOrList()] = Field(default_factory=list)
    """Price of this target, or a list of dated prices. Overrides the price table."""


def _build_target_weights_condition(
    combine: Callable[[list[bool]], bool], targets_schema: JsonSchema, min_weight: int = 0
) -> ShapeCondition:
    """Return a condition on the weights of targets, with the JSON Schema that expresses it.

    ``combine`` gets True for each target whose weight is at least ``min_weight``.
    """

    def test(part: BaseModel) -> bool:
        targets = cast("DeploymentConfig", part).targets or []
        return combine([t.weight is not None and t.weight >= min_weight for t in targets])

    return ShapeCondition(test, lambda _: {"properties": {"targets": targets_schema}})


_HAS_WEIGHT: JsonSchema = {"required": ["weight"], "properties": {"weight": {"type": "integer"}}}
_HAS_SHARE: JsonSchema = {"required": ["weight"], "properties": {"weight": {"minimum": 1}}}
ALL_WEIGHTED = _build_target_weights_condition(all, {"items": _HAS_WEIGHT})
NONE_WEIGHTED = _build_target_weights_condition(
    lambda results: not any(results), {"items": {"not": _HAS_WEIGHT}}
)
WEIGHT_REQUIREMENTS = (
    Requirement(any_of(ALL_WEIGHTED, NONE_WEIGHTED), "must set weight on all targets, or on none"),
    Requirement(
        any_of(
            NONE_WEIGHTED,
            _build_target_weights_condition(any, {"contains": _HAS_SHARE}, min_weight=1),
        ),
        "must set a weight above 0 on at least one target",
    ),
)
RetryCause = Literal["connect", "timeout", "invalid", 408, 409, 425, 429, 500, 502, 503, 504, 529]
RETRY_CAUSES: list[RetryCause] = ["connect", 408, 409, 425, 429, 500, 502, 503, 504, 529]


class RetryConfig(Section):
    """Retries of the same target if it fails before the response starts."""

    times: Annotated[int, Field(ge=1, le=10)] = 2
    """Maximum number of retries per target. Default 2."""
    on: Annotated[list[RetryCause], Field(min_length=1)] = Field(RETRY_CAUSES)
    """Failures to retry: a status, `connect` (no response), `timeout` or `invalid`."""
    wait: Duration = 0.25
    """Maximum wait before the first retry. It doubles with each retry, with full jitter."""
    max_wait: Duration = 5.0
    """Maximum wait. If a target asks for a longer wait, the next target is tried. Default 5s."""


class HedgeConfig(Section):
    """A second request to the next target if the first is slow. The slower one is canceled."""

    after: Duration
    """Time without a response after which the second request is sent."""


class SemanticConfig(Section):
    """Cache hits for prompts that are similar, by the cosine of their embeddings."""

    embeddings: Annotated[Name, RefersTo("deployment")]
    """Deployment that computes the embeddings."""
    mode: Literal["shadow", "serve"] = "shadow"
    """`shadow` only counts matches; `serve` responds with them."""
    threshold: Annotated[float, Field(ge=0.5, le=1)] = 0.95
    """Minimum cosine similarity of a match. Default 0.95."""
    deadline: Duration = 1.0
    """Maximum time for an embedding. Default 1s."""
    max_temperature: Annotated[float, Field(ge=0, le=2)] = 1.0
    """Calls with a higher temperature are not compared. A call without one counts as 1."""


class CacheConfig(Switchable):
    """Cache of responses. Repeated requests are served from it."""

    ttl: Duration = 3600.0
    """Lifetime of a response. Default 1h."""
    max_bytes: Size = 1024 * 1024
    """Maximum size of a cached response. Default 1MiB."""
    store: Annotated[str, OneOfWords(CACHE_STORES)] = "memory"
    """Store: in this process, in a file on this machine, or shared in Redis."""
    namespace: Annotated[str, StringConstraints(max_length=64, pattern=r"^[a-z0-9._-]*$")] = ""
    """Requests in different namespaces never share responses."""
    by_user: bool = False
    """Whether the user, metadata and similar fields are part of the cache key."""
    tool_calls: bool = False
    """Whether responses with tool calls are cached."""
    semantic: SemanticConfig | None = None
    """Responses to similar prompts."""


class StickyConfig(Section):
    """Keeps calls of one key, one user, or one header value at the same target."""

    by: Literal["key", "user"] | None = None
    """`key` or `user`. Short forms: `sticky: key` and `sticky: user`."""
    header: HeaderName | None = None
    """Request header. Calls with the same value go to the same target."""

    SHORT_FORMS = (("key", "by"), ("user", "by"))
    FORM_MESSAGE = "must be key, user or {header: name}"
    REQUIREMENTS = (Requirement(one_of(is_not_null("by"), is_not_null("header")), FORM_MESSAGE),)


MIB = 1024 * 1024
_SEGMENT = r"(?!\.{1,2}(?:/|$))[A-Za-z0-9._~-]{1,64}"
_PARAMETER = r"\{[a-z][a-z_]{0,31}\}"
_ROUTE_PATTERN = rf"(?:/{_SEGMENT})(?:/(?:{_SEGMENT}|{_PARAMETER})){{0,15}}"
Route = Annotated[
    str,
    *make_pattern_annotations(
        _ROUTE_PATTERN,
        "must be a path such as /v1/files/{id}, and its first part must not be in braces",
        "/v1/rerank",
    ),
]
Method = Literal["GET", "POST", "PUT", "PATCH", "DELETE"]
QueryName = Annotated[
    str,
    *make_pattern_annotations(
        rf"(?!(?:.*(?:{CREDENTIAL_PATTERN}|{make_case_insensitive_pattern('key')})))[A-Za-z0-9_.\[\]-]{{1,64}}",
        "must be a parameter name that does not refer to a key or secret",
        "limit",
    ),
]
BodyField = Annotated[
    str,
    *make_pattern_annotations(
        r"[A-Za-z_][A-Za-z0-9_-]{0,99}", "must be the name of a field of a body", "prompt"
    ),
]
UNROUTED_PATHS = ("/health",)
"""Paths of the data port that belong to no dialect."""
DEFAULT_QUERY_NAMES = ["after", "before", "include[]", "limit", "order", "purpose"]


def _is_proxy_route(method: str, path: PassthroughPath) -> bool:
    """Return True if the proxy serves the method on a path of this form.

    It serves paths of stored state for all methods, because their ids are sealed.
    """
    routes = [
        route
        for (verb, route), (_, endpoint) in ROUTES.items()
        if verb == method or endpoint in ABOUT_STATE
    ]
    return any(path.match_path(route) for route in (*UNROUTED_PATHS, *routes)) or any(
        PATH_PATTERNS[route].fullmatch(path.sample_path)
        for route in routes
        if route in PATH_PATTERNS
    )


def _has_unique_parameters(route: str) -> bool:
    names = re.findall(_PARAMETER, route)
    return len({*names}) == len(names)


def _reject_methods_that_headrace_serves(
    methods: list[Method], info: ValidationInfo
) -> list[Method]:
    route = info.data.get("path")  # None if ``path`` is invalid
    path = None if route is None else PassthroughPath(route)
    for method in methods:
        if path is not None and _is_proxy_route(method, path):
            message = f"must not contain {method}, because Headrace itself serves it on this path"
            raise ValueError(message)
    return methods


class PassthroughPathConfig(Section):
    """A path that is forwarded to the upstream without translation."""

    path: Annotated[
        Route,
        require(_has_unique_parameters, "must use each path parameter, such as {id}, only once"),
    ]
    """Path in requests of clients. `{id}` matches one segment."""
    methods: Annotated[
        list[Method], Field(min_length=1), AfterValidator(_reject_methods_that_headrace_serves)
    ] = Field(default=["POST"], validate_default=True)
    """Allowed methods. Default POST."""
    to: Route | None = None
    """Path at the upstream's host, with the same names in braces. By default the path of the
    client, in which the path of `base_url` replaces `/v1`."""
    query: Annotated[list[QueryName], Field(max_length=64)] = Field(DEFAULT_QUERY_NAMES)
    """Allowed query parameters. Others are removed, with a warning to the client."""
    fields: Annotated[list[BodyField], Field(max_length=200)] | None = None
    """Allowed fields of JSON and form bodies besides `model`. Others are removed from JSON with a
    warning, and reject a form. By default all are allowed, for a gateway only those in its
    `accepts`."""
    max_bytes: Size = 512 * MIB
    """Maximum size of a body that is forwarded unread. Default 512MiB. JSON bodies are read, and
    have the same maximum as other calls."""
    idempotent: bool = False
    """Whether a POST or PATCH may be retried after a failure, because it changes nothing."""
    most_usd: PositiveUsd | None = None
    """Maximum cost of one call in USD. Limits in USD reserve it before the call, and charge it if
    the response does not report usage."""

    SHORT_FORMS = ((str, "path"),)


class DeploymentConfig(Section):
    """A name that applications call, with its targets."""

    REQUIREMENTS = (
        *WEIGHT_REQUIREMENTS,
        Requirement(
            if_then(is_not_null("sticky"), ALL_WEIGHTED), "sticky requires a weight on every target"
        ),
        Requirement(
            if_then(is_not_null("balance"), NONE_WEIGHTED),
            "must use either balance or weights, not both",
        ),
        Requirement(
            if_then(equals("only_passthrough", True), has_size("passthrough")),
            "only_passthrough requires at least one path under passthrough",
        ),
    )

    description: str = ""
    """Description for readers."""
    also_known_as: Annotated[list[Model], Field(max_length=100)] = Field(default_factory=list)
    """Other names of this deployment in calls."""
    tags: dict[TagKey, str] = Field(default_factory=dict)
    """Tags that all calls of this deployment get."""
    targets: Annotated[list[TargetConfig], Field(min_length=1)]
    """Targets of its calls. The first one for the requested model is used, or one by weight."""
    sticky: StickyConfig | None = None
    """Keeps calls of one key, user or header value at the same target. Requires weights."""
    balance: Literal["least_loaded"] | None = None
    """`least_loaded` uses the target with the fewest active requests. Excludes weights."""
    fallback: list[TargetConfig] = Field(default_factory=list)
    """Targets to try next, in order, if an upstream fails before the response starts."""
    retry: RetryConfig | None = None
    """Retries of a target before the next target is tried."""
    hedge: HedgeConfig | None = None
    """Second request to the next target while the first has not responded."""
    limits: list[LimitConfig] = Field(default_factory=list)
    """Limits of its calls, in addition to limits of its policy."""
    cache: CacheConfig | None = None
    """Cache of responses. Overrides the cache of its policy."""
    max_models: Annotated[int, Field(ge=1, le=MAX_MODELS)] = 32
    """Maximum number of models in one multi-model call. Default 32."""
    unpriced: Literal["warn", "refuse"] = "warn"
    """Calls whose target has no known price: `warn` serves and counts them."""
    passthrough: Annotated[list[PassthroughPathConfig], Field(max_length=100)] = Field(
        default_factory=list
    )
    """Other paths that are forwarded to the upstream. Unlisted paths are rejected."""
    only_passthrough: bool | None = None
    """Whether it serves only the paths under `passthrough`. It is then in no list of models.
    Default false."""
    default: bool = False
    """Whether it serves calls without a deployment if several deployments of the key could."""
    policy: Name | None = None
    """Policy of its calls. Default: the policy named `default`, if there is one."""
