"""The section ``policies``: rules, when they hold, and what they do to a call."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    StringConstraints,
    WithJsonSchema,
    model_validator,
)

from proxy.config.scalars import (
    NAME,
    HeaderName,
    Model,
    Name,
    Section,
    TagKey,
    Zone,
    listed,
    one_or_several,
)
from proxy.config.shapes import Requirement, filled, has, names, needs, one, several, some
from proxy.policy.schema.cache import CacheConfig
from proxy.policy.schema.capture import CaptureConfig
from proxy.policy.schema.deployments import WEIGHTS, TargetConfig
from proxy.policy.schema.limits import LimitConfig
from proxy.policy.schema.plugged import AnyGuard

Day = Literal["mon", "tue", "wed", "thu", "fri", "sat", "sun"]
MINUTE = r"([01][0-9]|2[0-3]):[0-5][0-9]"
BETWEEN = rf"(?!(.{{5}})-\1){MINUTE}-({MINUTE}|24:00)"
MODES = Literal["enforce", "shadow"]


def _between(value: str) -> str:
    if not re.fullmatch(BETWEEN, value):
        raise ValueError("must be two different times such as 09:00-17:30")
    return value


class Match(Section):
    """How one value is compared: all that is said must hold."""

    equals: str | None = None
    """It is this very value."""
    in_: Annotated[list[str], Field(min_length=1)] | None = Field(None, alias="in")
    """It is one of these."""
    glob: Annotated[str, StringConstraints(min_length=1, max_length=256)] | None = None
    """It matches a pattern in which * stands for any text and ? for one character."""

    SHORT_FORMS = (
        {"type": ["string", "boolean"]},
        {"type": "array", "items": {"type": "string"}, "minItems": 1},
    )
    REQUIREMENTS = (
        Requirement(some(has("equals"), has("in"), has("glob")), "must say equals, in or glob"),
    )

    @model_validator(mode="before")
    @classmethod
    def _short_forms(cls, value: Any) -> Any:
        if isinstance(value, bool):
            return {"equals": str(value).lower()}
        if isinstance(value, str):
            return {"equals": value}
        return {"in": value} if isinstance(value, list) else value


class Hours(Section):
    """A time of day, on some days of the week."""

    REQUIREMENTS = (Requirement(some(has("between"), has("days")), "must say between or days"),)

    between: (
        Annotated[
            str,
            AfterValidator(_between),
            WithJsonSchema(
                {"type": "string", "pattern": f"^{BETWEEN}$", "examples": ["09:00-17:30"]}
            ),
        ]
        | None
    ) = None
    """From the first minute on, up to the second; past midnight where the second is earlier."""
    days: Annotated[list[Day], Field(min_length=1)] | None = None
    """The days on which it begins; every day where none is said."""
    zone: Zone = "UTC"
    """The time zone, as the IANA database names it."""


CONDITIONS = (
    *("key", "dialect", "endpoint", "model", "stream", "tag", "header", "time"),
    *("all", "any", "not"),
)


class When(Section):
    """What must be true of a call: all that is said here."""

    REQUIREMENTS = (
        Requirement(
            some(*map(names, CONDITIONS)),
            "must say a condition; leave `when` out to mean every call",
        ),
    )

    key: Match | None = None
    """The name of its key."""
    dialect: Match | None = None
    """The wire format that the client speaks."""
    endpoint: Match | None = None
    """completions, chat, responses, embeddings, count_tokens, passthrough, or stored: what is asked
    of a response that its provider keeps."""
    model: Match | None = None
    """A name of the model that it may reach."""
    stream: bool | None = None
    """Whether its answer is to be streamed."""
    tag: dict[TagKey, Match] = Field(default_factory=dict)
    """Its tags, by their keys."""
    header: dict[HeaderName, Match] = Field(default_factory=dict)
    """Its request headers, by their names."""
    time: Hours | None = None
    """The time at which it came."""
    all: list[When] = Field(default_factory=list)
    """Conditions that must all hold."""
    any: list[When] = Field(default_factory=list)
    """Conditions of which at least one must hold."""
    not_: When | None = Field(None, alias="not")
    """A condition that must not hold."""


Tokens = Annotated[int, Field(ge=1)]
Few = Annotated[int, Field(ge=1, le=128)]
Temperature = Annotated[float, Field(ge=0, le=2)]
Share = Annotated[float, Field(ge=0, le=1)]
Penalty = Annotated[float, Field(ge=-2, le=2)]


class Cap(Section):
    """The most that a request's parameters may say."""

    max_tokens: Tokens | None = None
    """Of max_tokens and all other names of it; a request that says none gets max_tokens."""
    max_completion_tokens: Tokens | None = None
    """The same; a request that says none gets max_completion_tokens."""
    n: Few | None = None
    """Of n: how many choices."""
    best_of: Few | None = None
    """Of best_of."""
    temperature: Temperature | None = None
    """Of temperature, where a request says one."""
    top_p: Share | None = None
    """Of top_p, where a request says one."""


class Set(Section):
    """Parameters that every request gets, whatever it says itself."""

    max_tokens: Tokens | None = None
    """Takes the place of all other names of it too."""
    max_completion_tokens: Tokens | None = None
    """Takes the place of all other names of it too."""
    n: Few | None = None
    """How many choices."""
    best_of: Few | None = None
    """Of how many choices the best is given."""
    temperature: Temperature | None = None
    """How freely it chooses."""
    top_p: Share | None = None
    """The share of likely tokens it chooses from."""
    frequency_penalty: Penalty | None = None
    """Against saying the same again and again."""
    presence_penalty: Penalty | None = None
    """Against saying the same twice."""
    seed: int | None = None
    """The start of its draws, for answers that repeat."""
    reasoning_effort: Literal["none", "minimal", "low", "medium", "high", "xhigh"] | None = None
    """How much it thinks."""
    parallel_tool_calls: bool | None = None
    """Whether it may call several tools at once."""
    store: bool | None = None
    """Whether the provider keeps the answer."""


class RefusalConfig(Section):
    """A no to the call, in the client's own dialect."""

    message: Annotated[str, StringConstraints(min_length=1, max_length=500)]
    """What the client is told."""
    status: Annotated[int, Field(ge=400, le=499)] = 403
    """The HTTP status; 403."""

    SHORT_FORMS = ({"type": "string", "minLength": 1, "maxLength": 500},)

    @model_validator(mode="before")
    @classmethod
    def _short_form(cls, value: Any) -> Any:
        return {"message": value} if isinstance(value, str) else value


class Without(Section):
    """What does not hold for the calls of a rule."""

    REQUIREMENTS = (Requirement(some(has("limits"), has("guards")), "must say limits or guards"),)

    limits: Annotated[list[Name], Field(min_length=1)] | None = None
    """Limits that do not count for them."""
    guards: Annotated[list[Name], Field(min_length=1)] | None = None
    """Guards that do not look at them."""


EFFECTS = (
    "targets",
    "fallback",
    "model",
    "set",
    "cap",
    "limits",
    "without",
    "cache",
    "input",
    "output",
    "refuse",
)


class RuleConfig(Section):
    """One sentence of a policy: when it holds, and what it does then."""

    REQUIREMENTS = (
        Requirement(some(*map(has, EFFECTS)), f"must do something: {', '.join(EFFECTS)}"),
        Requirement(
            needs(has("refuse"), one(*map(has, EFFECTS))),
            "must not do anything else when it refuses",
        ),
        *WEIGHTS,
    )

    name: Name
    """Its name within the policy, for tests, logs and metrics."""
    description: str = ""
    """For people."""
    when: When | None = None
    """The calls for which it holds; all of them where it is left out."""
    mode: MODES = "enforce"
    """`shadow` counts what it would do, and does nothing."""
    targets: Annotated[list[TargetConfig], Field(min_length=1)] | None = None
    """Where the call goes instead; the deployment's fallback is replaced as well."""
    fallback: list[TargetConfig] | None = None
    """Where it goes next when an upstream fails; an empty list means nowhere."""
    model: Model | None = None
    """The name that counts as the model asked for."""
    set: Set | None = None
    """Parameters that the request gets."""
    cap: Cap | None = None
    """Parameters that the request may not exceed."""
    limits: Annotated[list[LimitConfig], Field(min_length=1)] | None = None
    """Limits that count for its calls beside the others."""
    without: Without | None = None
    """What does not hold for its calls."""
    cache: CacheConfig | None = None
    """How the answers to its calls are kept; `off` for not at all."""
    input: Annotated[list[AnyGuard], Field(min_length=1)] | None = None
    """Guards that look at its questions, after the others."""
    output: Annotated[list[AnyGuard], Field(min_length=1)] | None = None
    """Guards that look at its answers, after the others."""
    refuse: RefusalConfig | None = None
    """Refuse the call with a message."""


class PolicyConfig(Section):
    """Rules under a name; deployments follow them, other policies extend them."""

    REQUIREMENTS = (
        Requirement(
            needs(several("rules"), has("match")),
            "must say match: first or match: all when it has several rules",
        ),
        Requirement(
            some(
                *map(filled, ("rules", "extends", "limits", "input", "output")),
                *map(has, ("cache", "capture")),
            ),
            "must have rules, guards, limits, a cache or a capture, or extend a policy",
        ),
    )

    description: str = ""
    """For people."""
    extends: Annotated[
        list[Name],
        BeforeValidator(listed),
        WithJsonSchema(one_or_several({"type": "string", "pattern": f"^{NAME}$"})),
    ] = Field(default_factory=list)
    """Policies whose rules come after these."""
    mode: MODES = "enforce"
    """`shadow` puts all its rules in shadow."""
    match: Literal["first", "all"] | None = None
    """Whether only the first rule that holds counts, or all that hold."""
    rules: list[RuleConfig] = Field(default_factory=list)
    """Its rules, from the first to the last."""
    limits: list[LimitConfig] = Field(default_factory=list)
    """Limits of all calls that follow it."""
    cache: CacheConfig | None = None
    """How the answers to all calls that follow it are kept."""
    input: list[AnyGuard] = Field(default_factory=list)
    """Guards that look at every question, in order."""
    output: list[AnyGuard] = Field(default_factory=list)
    """Guards that look at every answer, in order."""
    opaque: Literal["refuse", "allow"] = "refuse"
    """What becomes of content that no guard can read: tokens, pictures, sounds."""
    capture: CaptureConfig | None = None
    """Which texts are shown in traces, redacted; none where it is not said."""

    def unmet(self) -> Iterator[str]:
        yield from super().unmet()
        names = [rule.name for rule in self.rules]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            yield f"has several rules named {', '.join(twice)}"
