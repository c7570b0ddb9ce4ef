"""The section ``policies``: rules, when they hold, and what they do to a call."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    GetJsonSchemaHandler,
    StringConstraints,
    WithJsonSchema,
    model_validator,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from proxy.policy.schema.cache import Cache
from proxy.policy.schema.capture import Capture
from proxy.policy.schema.deployments import Target, are_weighed
from proxy.policy.schema.guards_asking import AnyGuard
from proxy.policy.schema.limits import Limit
from proxy.policy.schema.scalars import HeaderName, Model, Name, Section, TagKey, listed

Day = Literal["mon", "tue", "wed", "thu", "fri", "sat", "sun"]
MINUTE = r"([01][0-9]|2[0-3]):[0-5][0-9]"
BETWEEN = rf"{MINUTE}-({MINUTE}|24:00)"
MODES = Literal["enforce", "shadow"]


def _between(value: str) -> str:
    if not re.fullmatch(BETWEEN, value) or len(set(value.split("-"))) < 2:
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

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """Tell editors of the short forms too."""
        words = {"type": "array", "items": {"type": "string"}, "minItems": 1}
        return {"anyOf": [{"type": ["string", "boolean"]}, words, handler(core)]}

    @model_validator(mode="before")
    @classmethod
    def _short_forms(cls, value: Any) -> Any:
        if isinstance(value, bool):
            return {"equals": str(value).lower()}
        if isinstance(value, str):
            return {"equals": value}
        return {"in": value} if isinstance(value, list) else value

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if not self.model_dump(exclude_none=True):
            raise ValueError("must say equals, in or glob")
        return self


class Hours(Section):
    """A time of day, on some days of the week."""

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
    zone: str = "UTC"
    """The time zone, as the IANA database names it."""

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if self.between is None and self.days is None:
            raise ValueError("must say between or days")
        return self


class When(Section):
    """What must be true of a call: all that is said here."""

    key: Match | None = None
    """The name of its key."""
    dialect: Match | None = None
    """The wire format that the client speaks."""
    endpoint: Match | None = None
    """completions, chat or embeddings."""
    model: Match | None = None
    """The model that it asks for."""
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

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if not self.model_fields_set:
            raise ValueError("must say a condition; leave `when` out to mean every call")
        return self


Tokens = Annotated[int, Field(ge=1)]
Few = Annotated[int, Field(ge=1, le=128)]
Temperature = Annotated[float, Field(ge=0, le=2)]
Share = Annotated[float, Field(ge=0, le=1)]
Penalty = Annotated[float, Field(ge=-2, le=2)]


class Cap(Section):
    """The most that a request's parameters may say."""

    max_tokens: Tokens | None = None
    """Of max_tokens and max_completion_tokens; a request that says neither gets max_tokens."""
    max_completion_tokens: Tokens | None = None
    """The same; a request that says neither gets max_completion_tokens."""
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
    """Takes the place of max_completion_tokens too."""
    max_completion_tokens: Tokens | None = None
    """Takes the place of max_tokens too."""
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


class Refusal(Section):
    """A no to the call, in the client's own dialect."""

    message: Annotated[str, StringConstraints(min_length=1, max_length=500)]
    """What the client is told."""
    status: Annotated[int, Field(ge=400, le=499)] = 403
    """The HTTP status; 403."""

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """Tell editors of the short form too."""
        return {"anyOf": [{"type": "string"}, handler(core)]}

    @model_validator(mode="before")
    @classmethod
    def _short_form(cls, value: Any) -> Any:
        return {"message": value} if isinstance(value, str) else value


class Without(Section):
    """What does not hold for the calls of a rule."""

    limits: Annotated[list[Name], Field(min_length=1)] | None = None
    """Limits that do not count for them."""
    guards: Annotated[list[Name], Field(min_length=1)] | None = None
    """Guards that do not look at them."""

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if self.limits is None and self.guards is None:
            raise ValueError("must say limits or guards")
        return self


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


class Rule(Section):
    """One sentence of a policy: when it holds, and what it does then."""

    name: Name
    """Its name within the policy, for tests, logs and metrics."""
    description: str = ""
    """For people."""
    when: When | None = None
    """The calls for which it holds; all of them where it is left out."""
    mode: MODES = "enforce"
    """`shadow` counts what it would do, and does nothing."""
    targets: Annotated[list[Target], Field(min_length=1)] | None = None
    """Where the call goes instead; the deployment's fallback is replaced as well."""
    fallback: list[Target] | None = None
    """Where it goes next when an upstream fails; an empty list means nowhere."""
    model: Model | None = None
    """The name that counts as the model asked for."""
    set: Set | None = None
    """Parameters that the request gets."""
    cap: Cap | None = None
    """Parameters that the request may not exceed."""
    limits: Annotated[list[Limit], Field(min_length=1)] | None = None
    """Limits that count for its calls beside the others."""
    without: Without | None = None
    """What does not hold for its calls."""
    cache: Cache | None = None
    """How the answers to its calls are kept; `off` for not at all."""
    input: Annotated[list[AnyGuard], Field(min_length=1)] | None = None
    """Guards that look at its questions, after the others."""
    output: Annotated[list[AnyGuard], Field(min_length=1)] | None = None
    """Guards that look at its answers, after the others."""
    refuse: Refusal | None = None
    """Refuse the call with a message."""

    @model_validator(mode="after")
    def _does_something(self) -> Self:
        does = [name for name in EFFECTS if getattr(self, name) is not None]
        if not does:
            raise ValueError(f"must do something: {', '.join(EFFECTS)}")
        if self.refuse is not None and len(does) > 1:
            raise ValueError("must not do anything else when it refuses")
        if self.targets is not None:
            are_weighed(self.targets)
        return self


class Policy(Section):
    """Rules under a name; deployments follow them, other policies extend them."""

    description: str = ""
    """For people."""
    extends: Annotated[
        list[Name],
        BeforeValidator(listed),
        WithJsonSchema(
            {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}
        ),
    ] = Field(default_factory=list)
    """Policies whose rules come after these."""
    mode: MODES = "enforce"
    """`shadow` puts all its rules in shadow."""
    match: Literal["first", "all"] | None = None
    """Whether only the first rule that holds counts, or all that hold."""
    rules: list[Rule] = Field(default_factory=list)
    """Its rules, from the first to the last."""
    limits: list[Limit] = Field(default_factory=list)
    """Limits of all calls that follow it."""
    cache: Cache | None = None
    """How the answers to all calls that follow it are kept."""
    input: list[AnyGuard] = Field(default_factory=list)
    """Guards that look at every question, in order."""
    output: list[AnyGuard] = Field(default_factory=list)
    """Guards that look at every answer, in order."""
    opaque: Literal["refuse", "allow"] = "refuse"
    """What becomes of content that no guard can read: tokens, pictures, sounds."""
    capture: Capture | None = None
    """Which texts are shown in traces, redacted; none where it is not said."""

    @model_validator(mode="after")
    def _order_is_said(self) -> Self:
        if self.match is None and len(self.rules) > 1:
            raise ValueError("must say match: first or match: all when it has several rules")
        names = [rule.name for rule in self.rules]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"has several rules named {', '.join(twice)}")
        said = (self.rules, self.extends, self.limits, self.cache, self.input, self.output)
        if not any(said) and self.capture is None:
            raise ValueError(
                "must have rules, guards, limits, a cache or a capture, or extend a policy"
            )
        return self
