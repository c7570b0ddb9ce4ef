"""The section ``deployments``: targets, and how a call finds its way among them."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    Field,
    ValidationInfo,
    model_validator,
)

from proxy.config.scalars import (
    CREDENTIAL,
    Duration,
    HeaderName,
    Model,
    Name,
    PositiveUsd,
    Section,
    Size,
    TagKey,
    any_case,
    text,
)
from proxy.config.shapes import (
    JsonSchema,
    Requirement,
    ShapeCondition,
    equals,
    filled,
    has,
    needs,
    one,
    some,
)
from proxy.dialects import PATTERNS, ROUTES
from proxy.policy.schema.cache import CacheConfig
from proxy.policy.schema.limits import LimitConfig
from proxy.policy.schema.prices import PriceConfig
from proxy.types.way import ABOUT_STATE, TargetEndpoint
from proxy.words import MAX_MODELS

if TYPE_CHECKING:
    from proxy.types.passthrough import PassedPath


def _dated(value: Any) -> Any:
    """One price, or several that are dated."""
    if isinstance(value, list):
        return value
    if not isinstance(value, dict):
        raise ValueError("must be USD per million tokens, such as {input: 0.15, output: 0.6}")  # noqa: TRY004  # pydantic's error
    return [value]


class TargetConfig(Section):
    """An upstream and a model there."""

    upstream: Name
    """The upstream's name."""
    model: Model
    """The model's name there."""
    weight: Annotated[int, Field(ge=0, le=1_000_000)] | None = None
    """Its share of the calls that several targets can serve."""
    endpoint: TargetEndpoint | None = None
    """The only kind of call that it serves; others are translated."""
    price: Annotated[list[PriceConfig], BeforeValidator(_dated)] = Field(default_factory=list)
    """Its own price, or dated prices; they win over the table."""


def _weighed(
    judge: Callable[[list[bool]], bool], content: JsonSchema, least: int = 0
) -> ShapeCondition:
    """True if ``judge`` says so of which targets have a weight of ``least`` or more. ``content``
    says the same of the list in JSON Schema."""

    def test(part: BaseModel) -> bool:
        targets = cast("DeploymentConfig", part).targets or []
        return judge([each.weight is not None and each.weight >= least for each in targets])

    return ShapeCondition(test, lambda _: {"properties": {"targets": content}})


_WEIGHT: JsonSchema = {"required": ["weight"], "properties": {"weight": {"type": "integer"}}}
_ABOVE_0: JsonSchema = {"required": ["weight"], "properties": {"weight": {"minimum": 1}}}
ALL_WEIGHED = _weighed(all, {"items": _WEIGHT})
NONE_WEIGHED = _weighed(lambda found: not any(found), {"items": {"not": _WEIGHT}})
WEIGHTS = (
    Requirement(some(ALL_WEIGHED, NONE_WEIGHED), "must give all targets a weight, or none"),
    Requirement(
        some(NONE_WEIGHED, _weighed(any, {"contains": _ABOVE_0}, least=1)),
        "must give at least one target a weight above 0",
    ),
)


Cause = Literal["connect", "timeout", "invalid", 408, 409, 425, 429, 500, 502, 503, 504, 529]
CAUSES: tuple[Cause, ...] = ("connect", 408, 409, 425, 429, 500, 502, 503, 504, 529)


class RetryConfig(Section):
    """Another try of the same target, when it fails before it answers."""

    times: Annotated[int, Field(ge=1, le=10)] = 2
    """How many more tries each target gets; 2."""
    on: Annotated[list[Cause], Field(min_length=1)] = Field(default_factory=lambda: list(CAUSES))
    """After which failures: a status, `connect` (no answer came), `timeout` or `invalid`."""
    wait: Duration = 0.25
    """The longest first wait; it doubles with each try, and how much of it is waited is drawn."""
    max_wait: Duration = 5.0
    """The longest wait; a target that asks for a longer one is left for the next; 5s."""


class HedgeConfig(Section):
    """A second request to the next target when the first is slow; the slower one is cancelled."""

    after: Duration
    """How long the first may take to begin its answer before the second is asked."""


STICKY = "must be key, user or {header: name}"


class StickyConfig(Section):
    """Whose calls stay with one target: one key's, one user's, or those with one header's value."""

    by: Literal["key", "user"] | None = None
    """`sticky: key` and `sticky: user` for short."""
    header: HeaderName | None = None
    """The request header whose value keeps calls together."""

    SHORT_FORMS = ({"enum": ["key", "user"]},)
    REQUIREMENTS = (Requirement(one(has("by"), has("header")), STICKY),)

    @model_validator(mode="before")
    @classmethod
    def _short_form(cls, value: Any) -> Any:
        if isinstance(value, str) and value not in ("key", "user"):
            raise ValueError(STICKY)
        return {"by": value} if isinstance(value, str) else value


MIB = 1024 * 1024
_WORD = r"(?!\.{1,2}(?:/|$))[A-Za-z0-9._~-]{1,64}"
_NAME = r"\{[a-z][a-z_]{0,31}\}"
_ROUTE = rf"(?:/{_WORD})(?:/(?:{_WORD}|{_NAME})){{0,15}}"
Route = Annotated[
    str,
    *text(
        _ROUTE,
        "must be a path of plain words, the first not in braces, such as /v1/files/{id}",
        "/v1/rerank",
    ),
]
Method = Literal["GET", "POST", "PUT", "PATCH", "DELETE"]
QueryName = Annotated[
    str,
    *text(
        rf"(?!(?:.*(?:{CREDENTIAL}|{any_case('key')})))[A-Za-z0-9_.\[\]-]{{1,64}}",
        "must be a plain word, and no secret's name",
        "limit",
    ),
]
OWN_PATHS = ("/health",)
"""What the data port answers beside the routes of dialects."""
USUAL_QUERIES = ("after", "before", "include[]", "limit", "order", "purpose")


def _is_served(method: str, path: PassedPath) -> bool:
    """Return True if the proxy serves the method on a path of this form.

    Paths of stored state are served whatever the method: their ids are sealed.
    """
    routes = [
        route
        for (verb, route), (_, endpoint) in ROUTES.items()
        if verb == method or endpoint in ABOUT_STATE
    ]
    return any(path.fits(route) for route in (*OWN_PATHS, *routes)) or any(
        PATTERNS[route].fullmatch(path.sample) for route in routes if route in PATTERNS
    )


def _names_once(route: str) -> str:
    if len(set(re.findall(_NAME, route))) < len(re.findall(_NAME, route)):
        raise ValueError("must say each name in braces once")
    return route


def _not_served(methods: list[Method], info: ValidationInfo) -> list[Method]:
    from proxy.types.passthrough import PassedPath  # noqa: PLC0415  # for who lists some

    route = info.data.get("path")  # none if it is wrong itself
    path = None if route is None else PassedPath(route)
    for method in methods:
        if path is not None and _is_served(method, path):
            raise ValueError(f"{method} is served by the proxy itself on this path")
    return methods


class PassedPathConfig(Section):
    """A path that calls may take to the upstream of the deployment as they are."""

    path: Annotated[Route, AfterValidator(_names_once)]
    """The path as clients ask for it; `{id}` stands for one part that a client names."""
    methods: Annotated[list[Method], Field(min_length=1), AfterValidator(_not_served)] = Field(
        default=["POST"], validate_default=True
    )
    """The methods that may be asked with; POST when it is not said."""
    to: Route | None = None
    """The path at the upstream's host, with the same names in braces; else the path that clients
    ask for, whose `/v1` is what the upstream's `base_url` ends with."""
    query: Annotated[list[QueryName], Field(max_length=64)] = Field(
        default_factory=lambda: list(USUAL_QUERIES)
    )
    """What may be said in the query; the rest is left out, with a warning to the client."""
    max_bytes: Size = 512 * MIB
    """The largest body that is passed on without being read; 512MiB. JSON is read, and bounded as
    that of any call."""
    idempotent: bool = False
    """Whether a POST or a PATCH may be sent again after a failure, as it changes nothing."""
    most_usd: PositiveUsd | None = None
    """The most that one call may cost: limits of money claim it before the call is sent, and it
    stays charged where the answer does not say what was used."""

    SHORT_FORMS = ({"type": "string", "pattern": f"^(?:{_ROUTE})$"},)

    @model_validator(mode="before")
    @classmethod
    def _short_form(cls, value: Any) -> Any:
        return {"path": value} if isinstance(value, str) else value


class DeploymentConfig(Section):
    """The saved name that an application calls."""

    REQUIREMENTS = (
        *WEIGHTS,
        Requirement(
            needs(has("sticky"), ALL_WEIGHED), "must give its targets weights to be sticky"
        ),
        Requirement(
            needs(has("balance"), NONE_WEIGHED),
            "must give its targets weights or balance them, not both",
        ),
        Requirement(
            needs(equals("only_passthrough", True), filled("passthrough")),
            "must list paths under passthrough to take calls of those alone",
        ),
    )

    description: str = ""
    """For people."""
    also_known_as: Annotated[list[Model], Field(max_length=100)] = Field(default_factory=list)
    """Other names by which calls may say it."""
    tags: dict[TagKey, str] = Field(default_factory=dict)
    """Tags of its calls."""
    targets: Annotated[list[TargetConfig], Field(min_length=1)]
    """Where its calls go: the first that serves the model asked for, or one by weight."""
    sticky: StickyConfig | None = None
    """Whose calls stay with one target when targets have weights: key, user or a header."""
    balance: Literal["least_loaded"] | None = None
    """`least_loaded`: the target with the fewest requests under way, of those without weights."""
    fallback: list[TargetConfig] = Field(default_factory=list)
    """Where a call goes next, in order, when an upstream fails before it answers."""
    retry: RetryConfig | None = None
    """Whether a target is tried again before the next one is."""
    hedge: HedgeConfig | None = None
    """Whether a second target is asked while the first is still silent."""
    limits: list[LimitConfig] = Field(default_factory=list)
    """Limits of its calls, beside those of its policy."""
    cache: CacheConfig | None = None
    """How the answers to its calls are kept; it goes before that of its policy."""
    max_models: Annotated[int, Field(ge=1, le=MAX_MODELS)] = 32
    """How many models a call for a list of them may name, each of which is asked; 32."""
    unpriced: Literal["warn", "refuse"] = "warn"
    """Whether a call is served, and counted, when no price of a target is known, or refused."""
    passthrough: Annotated[list[PassedPathConfig], Field(max_length=100)] = Field(
        default_factory=list
    )
    """Other paths that its calls may take to the upstream as they are; none that is not here."""
    only_passthrough: bool | None = None
    """Whether it takes no calls but those of the paths under `passthrough`, and is in no list of
    models; it takes chats and the like, too, where that is not said."""
    default: bool = False
    """Whether it takes calls that name no deployment, where several of a key could take them."""
    policy: Name | None = None
    """The policy whose rules it follows; the one named `default` where none is said."""
