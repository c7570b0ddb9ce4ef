"""Section ``policies``: rules, their conditions and effects."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, StringConstraints, WithJsonSchema

from proxy.config import scalars
from proxy.config.shapes import (
    Requirement,
    any_of,
    has_size,
    if_then,
    is_not_null,
    is_present,
    one_of,
)
from proxy.policy.schema.deployments import WEIGHT_REQUIREMENTS, CacheConfig, TargetConfig
from proxy.policy.schema.guards import AnyGuard
from proxy.policy.schema.limits import LimitConfig, Percentage

Day = Literal["mon", "tue", "wed", "thu", "fri", "sat", "sun"]
_TIME_PATTERN = r"([01][0-9]|2[0-3]):[0-5][0-9]"
_TIME_SPAN_PATTERN = rf"(?!(.{{5}})-\1){_TIME_PATTERN}-({_TIME_PATTERN}|24:00)"
EnforcementMode = Literal["enforce", "shadow"]
TimeSpan = Annotated[
    str,
    *scalars.make_pattern_annotations(
        _TIME_SPAN_PATTERN,
        "must be a start and a different end, such as 09:00-17:30",
        "09:00-17:30",
    ),
]


BoolText = Annotated[
    str,
    BeforeValidator(lambda value: str(value).lower() if isinstance(value, bool) else value),
    WithJsonSchema({"type": ["string", "boolean"]}),
]


class MatchConfig(scalars.Section):
    """Comparison of one value. All given conditions must match."""

    equals: BoolText | None = None
    """The exact value."""
    in_: Annotated[list[str], Field(min_length=1)] | None = Field(None, alias="in")
    """Possible values."""
    glob: Annotated[str, StringConstraints(min_length=1, max_length=256)] | None = None
    """Pattern. * matches any text, ? matches one character."""

    SHORT_FORMS = ((bool, "equals"), (str, "equals"), (list, "in"))
    REQUIREMENTS = (
        Requirement(
            any_of(*map(is_not_null, ("equals", "in", "glob"))), "must have equals, in or glob"
        ),
    )

    @property
    def values(self) -> list[str]:
        """Values that match exactly."""
        return [*([] if self.equals is None else [self.equals]), *(self.in_ or [])]


class HoursConfig(scalars.Section):
    """A time of day on certain days of the week."""

    REQUIREMENTS = (
        Requirement(
            any_of(is_not_null("between"), is_not_null("days")), "must have between or days"
        ),
    )

    between: TimeSpan | None = None
    """Start (included) and end (excluded). An earlier end is on the next day."""
    days: Annotated[list[Day], Field(min_length=1)] | None = None
    """Days on which the time span starts. Default: every day."""
    zone: scalars.Zone = "UTC"
    """IANA time zone."""


CONDITION_KEYS = (
    *("key", "dialect", "endpoint", "model", "stream", "tag", "header", "time"),
    *("all", "any", "not"),
)


class WhenConfig(scalars.Section):
    """Conditions of a call. All of them must match."""

    REQUIREMENTS = (
        Requirement(
            any_of(*map(is_present, CONDITION_KEYS)),
            "must have at least one condition; remove `when` to match every call",
        ),
    )

    key: MatchConfig | None = None
    """Name of the virtual key."""
    dialect: MatchConfig | None = None
    """API dialect of the client."""
    endpoint: MatchConfig | None = None
    """completions, chat, responses, embeddings, count_tokens, passthrough, or stored (calls about a
    response that the provider stores)."""
    model: MatchConfig | None = None
    """Name of a model that the call may reach."""
    stream: bool | None = None
    """Whether the response is streamed."""
    tag: dict[scalars.TagKey, MatchConfig] = Field(default_factory=dict)
    """Tags of the call, by name."""
    header: dict[scalars.HeaderName, MatchConfig] = Field(default_factory=dict)
    """Request headers, by name."""
    time: HoursConfig | None = None
    """Time of arrival."""
    all: list[WhenConfig] = Field(default_factory=list)
    """Conditions that must all match."""
    any: list[WhenConfig] = Field(default_factory=list)
    """Conditions of which at least one must match."""
    not_: WhenConfig | None = Field(None, alias="not")
    """Condition that must not match."""


TokenCount = Annotated[int, Field(ge=1)]
ChoiceCount = Annotated[int, Field(ge=1, le=128)]
Temperature = Annotated[float, Field(ge=0, le=2)]
Probability = Annotated[float, Field(ge=0, le=1)]
Penalty = Annotated[float, Field(ge=-2, le=2)]


class ParametersConfig(scalars.Section):
    """Request parameters that a rule may cap or set."""

    max_tokens: TokenCount | None = None
    """Maximum number of output tokens, by any name of this parameter."""
    max_completion_tokens: TokenCount | None = None
    """As max_tokens, under the name of newer models."""
    n: ChoiceCount | None = None
    """Number of choices."""
    best_of: ChoiceCount | None = None
    """Number of candidates from which the best is returned."""
    temperature: Temperature | None = None
    """Sampling temperature."""
    top_p: Probability | None = None
    """Probability mass for nucleus sampling."""


class CapConfig(ParametersConfig):
    """Upper bounds of request parameters."""


class SetConfig(ParametersConfig):
    """Request parameters that are always set to these values, in place of all their names."""

    frequency_penalty: Penalty | None = None
    """Penalty for tokens by how often they occur."""
    presence_penalty: Penalty | None = None
    """Penalty for tokens that already occur."""
    seed: int | None = None
    """Seed for repeatable sampling."""
    reasoning_effort: Literal["none", "minimal", "low", "medium", "high", "xhigh"] | None = None
    """Reasoning effort of the model."""
    parallel_tool_calls: bool | None = None
    """Whether the model may call several tools in parallel."""
    store: bool | None = None
    """Whether the provider stores the response."""


class RefusalConfig(scalars.Section):
    """Rejection of a call, written in the dialect of the client."""

    message: Annotated[str, StringConstraints(min_length=1, max_length=500)]
    """Error message for the client."""
    status: Annotated[int, Field(ge=400, le=499)] = 403
    """HTTP status. Default 403."""

    SHORT_FORMS = ((str, "message"),)


class WithoutConfig(scalars.Section):
    """Limits and guards that do not apply to the calls of a rule."""

    REQUIREMENTS = (
        Requirement(
            any_of(is_not_null("limits"), is_not_null("guards")),
            "must name limits or guards to leave out",
        ),
    )

    limits: Annotated[list[scalars.Name], Field(min_length=1)] | None = None
    """Names of limits that do not count these calls."""
    guards: Annotated[list[scalars.Name], Field(min_length=1)] | None = None
    """Names of guards that do not inspect these calls."""


EFFECT_KEYS = (
    *("targets", "fallback", "model", "set", "cap", "limits", "without", "cache"),
    *("input", "output", "refuse"),
)


class RuleConfig(scalars.Section):
    """A rule: its condition and its effects."""

    REQUIREMENTS = (
        Requirement(
            any_of(*map(is_not_null, EFFECT_KEYS)),
            f"must have at least one effect: {', '.join(EFFECT_KEYS)}",
        ),
        Requirement(
            if_then(is_not_null("refuse"), one_of(*map(is_not_null, EFFECT_KEYS))),
            "must not combine refuse with other effects",
        ),
        *WEIGHT_REQUIREMENTS,
    )

    name: scalars.Name
    """Name within the policy, used in tests, logs and metrics."""
    description: str = ""
    """Description for readers."""
    when: WhenConfig | None = None
    """Condition of the rule. Default: all calls."""
    mode: EnforcementMode = "enforce"
    """`shadow` records what the rule would do, without effect."""
    targets: Annotated[list[TargetConfig], Field(min_length=1)] | None = None
    """Targets that replace the deployment's targets and fallback."""
    fallback: list[TargetConfig] | None = None
    """Targets to try if an upstream fails. An empty list means none."""
    model: scalars.Model | None = None
    """Model name that replaces the requested one."""
    set: SetConfig | None = None
    """Parameters that are set in the request."""
    cap: CapConfig | None = None
    """Upper bounds of parameters of the request. A request without a maximum of output tokens gets
    this one; no other parameter is added."""
    limits: Annotated[list[LimitConfig], Field(min_length=1)] | None = None
    """Additional limits for its calls."""
    without: WithoutConfig | None = None
    """Limits and guards that do not apply to its calls."""
    cache: CacheConfig | None = None
    """Cache of responses to its calls, or `off`."""
    input: Annotated[list[AnyGuard], Field(min_length=1)] | None = None
    """Guards of its requests, run after the others."""
    output: Annotated[list[AnyGuard], Field(min_length=1)] | None = None
    """Guards of its responses, run after the others."""
    refuse: RefusalConfig | None = None
    """Reject the call with a message."""


class CaptureConfig(scalars.Section):
    """Prompt and response text in spans. Without it, spans contain no text."""

    share: Percentage
    """Percentage of traced calls with text, such as 5%."""
    fields: Annotated[list[Literal["input", "output"]], Field(min_length=1)] = Field(
        ["input", "output"]
    )
    """Sides to include: input (the prompt), output (the response)."""
    max_chars: Annotated[int, Field(ge=1, le=100_000)] = 4000
    """Maximum characters per side. Longer text is truncated."""


class PolicyConfig(scalars.Section):
    """A named set of rules, limits and guards for deployments. Policies can extend others."""

    REQUIREMENTS = (
        Requirement(
            if_then(has_size("rules", 2), is_not_null("match")),
            "requires match: first or match: all, because it has several rules",
        ),
        Requirement(
            any_of(
                *map(has_size, ("rules", "extends", "limits", "input", "output")),
                *map(is_not_null, ("cache", "capture")),
            ),
            "is empty. Add rules, limits, input, output, cache, capture or extends.",
        ),
    )

    description: str = ""
    """Description for readers."""
    extends: Annotated[list[scalars.Name], scalars.ItemOrList()] = Field(default_factory=list)
    """Policies whose rules follow these rules."""
    mode: EnforcementMode = "enforce"
    """`shadow` puts all its rules, limits and guards into shadow mode."""
    match: Literal["first", "all"] | None = None
    """Whether the first matching rule applies, or all matching rules."""
    rules: list[RuleConfig] = Field(default_factory=list)
    """Rules, in order of precedence."""
    limits: list[LimitConfig] = Field(default_factory=list)
    """Limits of all calls of this policy."""
    cache: CacheConfig | None = None
    """Cache of responses."""
    input: list[AnyGuard] = Field(default_factory=list)
    """Guards of every request, in order."""
    output: list[AnyGuard] = Field(default_factory=list)
    """Guards of every response, in order."""
    opaque: Literal["refuse", "allow"] = "refuse"
    """Calls with content that guards cannot inspect: images, audio, files, token ids."""
    capture: CaptureConfig | None = None
    """Prompt and response text in traces, redacted. Default: none."""

    def iter_unmet_messages(self) -> Iterator[str]:
        yield from super().iter_unmet_messages()
        names = [rule.name for rule in self.rules]
        repeated = sorted({name for name in names if names.count(name) > 1})
        if repeated:
            yield f"has several rules with the same name: {', '.join(repeated)}"
