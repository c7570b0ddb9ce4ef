"""The policy files as types: these models are the schema, and every key an operator may write.

A section is a mapping from names to what they mean. Models are frozen and refuse unknown keys. What
is said of a key below it is what an editor shows: see ``editor``.
"""

from __future__ import annotations

import re
from datetime import date
from decimal import Decimal
from typing import Annotated, Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    StringConstraints,
    WithJsonSchema,
    field_validator,
    model_validator,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from proxy.policy import patterns, units

NAME = r"[a-z0-9][a-z0-9._-]{0,63}"
VARIABLE = r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}"
FRAMING = frozenset(
    {"accept-encoding", "connection", "content-encoding", "content-length", "content-type"}
    | {"expect", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade"}
)
_CREDENTIAL = re.compile(r"auth|api-?key|token|secret|password|cookie", re.IGNORECASE)


def _pattern(pattern: str, example: str) -> dict[str, Any]:
    return {"type": "string", "pattern": f"^(?:{pattern})$", "examples": [example]}


DialectName = Literal["openai", "portkey", "fireworks", "scale", "multimodel", "enkrypt"]
Name = Annotated[str, StringConstraints(pattern=f"^{NAME}$")]
Model = Annotated[str, StringConstraints(min_length=1, max_length=256)]
TagKey = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]{0,63}$")]
Duration = Annotated[
    float, BeforeValidator(units.duration), WithJsonSchema(_pattern(units.DURATION, "5s"))
]
Size = Annotated[int, BeforeValidator(units.size), WithJsonSchema(_pattern(units.SIZE, "64MiB"))]
Usd = Annotated[
    Decimal,
    BeforeValidator(units.money),
    Field(ge=0),
    WithJsonSchema({"type": ["number", "string"], "minimum": 0}),
]
Day = Annotated[
    date | None,
    BeforeValidator(units.day),
    WithJsonSchema({"type": "string", "format": "date"}),
]


class Section(BaseModel):
    """What all parts of a policy have in common."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, use_attribute_docstrings=True
    )


def _secret(value: str) -> str:
    if not re.fullmatch(rf"{VARIABLE}|file:.+", value):
        raise ValueError("must be ${VARIABLE} or file:/path, never the secret itself")
    return value


def _digest(value: str) -> str:
    if not re.fullmatch(r"[0-9a-f]{64}", value):
        raise ValueError("must be a SHA-256 in hex: `headrace key NAME` gives one")
    return value


def _tag_value(value: str) -> str:
    if not patterns.is_plain(value):
        raise ValueError(f"must be 1 to {patterns.MAX_VALUE} visible characters, in NFC")
    return value


TagValue = Annotated[str, AfterValidator(_tag_value)]
Digest = Annotated[
    str, AfterValidator(_digest), WithJsonSchema({"type": "string", "pattern": "^[0-9a-f]{64}$"})
]
SecretRef = Annotated[
    str,
    AfterValidator(_secret),
    WithJsonSchema(_pattern(rf"{VARIABLE}|file:.+", "${OPENAI_API_KEY}")),
]


class Timeouts(Section):
    """How long an upstream may take in each phase."""

    connect: Duration = 5.0
    """To connect; 5s when it is not said."""
    first_byte: Duration = 60.0
    """From sending the request to the first byte of an answer; 60s."""
    idle: Duration = 30.0
    """Between two bytes of an answer; 30s."""
    total: Duration = 600.0
    """In all; 10m."""


class Upstream(Section):
    """A provider endpoint."""

    dialect: DialectName
    """The wire format that it speaks."""
    base_url: str
    """Where it is; without a path, the dialect's own prefix is added."""
    api_key: SecretRef | None = None
    """Its credential, as ${VARIABLE} or file:/path."""
    headers: dict[str, str] = Field(default_factory=dict)
    """Headers that are sent with every request."""
    timeouts: Timeouts = Field(default_factory=Timeouts)
    """How long it may take in each phase."""
    provider: Name | None = None
    """Whose prices count, and its name in telemetry."""
    accepts: list[str] = Field(default_factory=list)
    """Request fields that it takes beyond its dialect's own."""
    max_answer_bytes: Size = 64 * 1024 * 1024
    """The largest answer that is not streamed; 64MiB."""
    propagate_trace: bool = False
    """Whether it gets a traceparent."""

    @field_validator("base_url")
    @classmethod
    def _plain_url(cls, value: str) -> str:
        parts = urlsplit(value)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.port == 0:
            raise ValueError("must be an http or https URL")
        if not value.isascii() or not value.isprintable() or " " in value:
            raise ValueError("must be plain ASCII without spaces")
        if "@" in parts.netloc or "?" in value or "#" in value:
            raise ValueError("must not hold credentials, a query or a fragment")
        return value

    @field_validator("headers")
    @classmethod
    def _plain_headers(cls, value: dict[str, str]) -> dict[str, str]:
        for name, content in value.items():
            _header(name, content)
        if len({name.lower() for name in value}) < len(value):
            raise ValueError("must name each header once, whatever its case")
        return value


def _header(name: str, content: str) -> None:
    """Raise ``ValueError`` for a header that is none, frames the request, or tells a secret."""
    if not re.fullmatch(r"[A-Za-z0-9-]+", name) or not (
        content.isprintable() and content.isascii()
    ):
        raise ValueError(f"{name!r} is not a header of plain text")
    if name.lower() in FRAMING:
        raise ValueError(f"{name!r} is not the policy's to set")
    if "${" in re.sub(VARIABLE, "", content):
        raise ValueError(f"{name!r} has a ${{ that names no variable")
    if _CREDENTIAL.search(name) and not re.search(rf"{VARIABLE}|^file:.", content):
        raise ValueError(f"{name!r} must use ${{VARIABLE}} or file:/path, never the secret itself")


class Tag(Section):
    """The values a tag may have: a closed list, a pattern, or just set (``flag``)."""

    values: Annotated[list[TagValue], Field(min_length=1)] | None = None
    """The closed list of its values."""
    pattern: str | None = None
    """What its whole value must match."""
    flag: bool = False
    """It is set or not, and has no other value."""
    caller: bool = False
    """Whether callers may set it by header."""

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """Tell editors of the short forms too."""
        words = {"type": "array", "items": {"type": "string"}, "minItems": 1}
        return {"anyOf": [words, {"const": "flag"}, handler(core)]}

    @model_validator(mode="before")
    @classmethod
    def _short_forms(cls, value: Any) -> Any:
        if isinstance(value, list):
            return {"values": value}
        return {"flag": True} if value == "flag" else value

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        if [self.values is not None, self.pattern is not None, self.flag].count(True) != 1:
            raise ValueError("must be a list of values, a pattern, or flag")
        return self

    @field_validator("pattern")
    @classmethod
    def _compiles(cls, value: str | None) -> str | None:
        if value is not None:
            patterns.compiled(value)
        return value


class CallerTags(Section):
    """What becomes of a caller's tag that the policy does not allow."""

    otherwise: Literal["drop", "refuse"] = "drop"
    """Drop it, count it and name it in a header; or refuse the call."""


class Key(Section):
    """A virtual key, known by the SHA-256 of its text."""

    sha256: Digest
    """The SHA-256 of the key's text: `headrace key NAME` draws one."""
    deployments: Annotated[list[Name], Field(min_length=1)]
    """The deployments that it may call."""
    description: str = ""
    """For people."""
    tags: dict[TagKey, str] = Field(default_factory=dict)
    """Tags of its calls; they win over the deployment's."""
    may: list[Literal["refresh"]] = Field(default_factory=list)
    """What else it may do: `refresh` re-reads the policies by header."""


class Tier(Section):
    """Other prices for prompts above a number of tokens."""

    above: Annotated[int, Field(gt=0)]
    input: Usd | None = None
    cached_input: Usd | None = None
    cache_write: Usd | None = None
    output: Usd | None = None


class Price(Section):
    """USD per million tokens, from a day on."""

    since: Day = Field(None, alias="from")
    """The day from which it counts."""
    input: Usd | None = None
    output: Usd | None = None
    cached_input: Usd | None = None
    cache_write: Usd | None = None
    reasoning: Usd | None = None
    audio_input: Usd | None = None
    audio_output: Usd | None = None
    tiers: list[Tier] = Field(default_factory=list)

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        """An empty price would make every call unpriced: leaving it out says that plainly."""
        if not self.model_dump(exclude={"since", "tiers"}, exclude_none=True):
            raise ValueError("must say a price, such as input: 0.15")
        return self


def _several(value: Any) -> Any:
    """One price, or several that are dated."""
    return [value] if isinstance(value, dict) else value


class Target(Section):
    """An upstream and a model there."""

    upstream: Name
    """The upstream's name."""
    model: Model
    """The model's name there."""
    weight: Annotated[int, Field(ge=0, le=1_000_000)] | None = None
    """Its share of the calls that several targets can serve."""
    endpoint: Literal["completions", "chat"] | None = None
    """The only kind of call that it serves; the other is translated."""
    price: Annotated[list[Price], BeforeValidator(_several)] = Field(default_factory=list)
    """Its own price, or dated prices; they win over the table."""


class Deployment(Section):
    """The saved name that an application calls."""

    @model_validator(mode="after")
    def _all_weighed_or_none(self) -> Self:
        weights = [target.weight for target in self.targets]
        if None in weights and weights.count(None) < len(weights):
            raise ValueError("must give all targets a weight, or none")
        if None not in weights and not sum(weight or 0 for weight in weights):
            raise ValueError("must give at least one target a weight above 0")
        if self.sticky is not None and None in weights:
            raise ValueError("must give its targets weights to be sticky")
        return self

    description: str = ""
    """For people."""
    tags: dict[TagKey, str] = Field(default_factory=dict)
    """Tags of its calls."""
    targets: Annotated[list[Target], Field(min_length=1)]
    """Where its calls go: the first that serves the model asked for, or one by weight."""
    sticky: Literal["key", "user"] | None = None
    """Whose calls stay with one target when targets have weights."""
    fallback: list[Target] = Field(default_factory=list)
    """Where a call goes next, in order, when an upstream fails before it answers."""


class Policies(Section):
    """All sections of a folder, merged. Prices are checked one by one when they are used."""

    upstreams: dict[Name, Upstream] = Field(default_factory=dict)
    """Where calls may go."""
    tags: dict[TagKey, Tag] = Field(default_factory=dict)
    """How usage is attributed: every tag and its values."""
    caller_tags: CallerTags = Field(default_factory=CallerTags)
    """What becomes of a caller's tag that is not allowed."""
    keys: dict[Name, Key] = Field(default_factory=dict)
    """Who may call what."""
    deployments: dict[Name, Deployment] = Field(default_factory=dict)
    """The names that applications call."""
    prices: dict[str, dict[str, Any]] = Field(default_factory=dict)
    """What tokens cost, by provider and model; `name*` stands for all that begin so."""
