"""The policy files as types: these models are the schema, and every key an operator may write.

A section is a mapping from names to what they mean. Models are frozen and refuse unknown keys.
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
    StringConstraints,
    field_validator,
    model_validator,
)

from proxy.policy import patterns, units

NAME = r"[a-z0-9][a-z0-9._-]{0,63}"
VARIABLE = r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}"
FRAMING = frozenset(
    {"accept-encoding", "connection", "content-encoding", "content-length", "content-type"}
    | {"expect", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade"}
)
_CREDENTIAL = re.compile(r"auth|api-?key|token|secret|password|cookie", re.IGNORECASE)
DialectName = Literal["openai", "portkey", "fireworks", "scale", "multimodel", "enkrypt"]
Name = Annotated[str, StringConstraints(pattern=f"^{NAME}$")]
Model = Annotated[str, StringConstraints(min_length=1, max_length=256)]
TagKey = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]{0,63}$")]
Duration = Annotated[float, BeforeValidator(units.duration)]
Size = Annotated[int, BeforeValidator(units.size)]
Usd = Annotated[Decimal, BeforeValidator(units.money), Field(ge=0)]


class Section(BaseModel):
    """What all parts of a policy have in common."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


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
Digest = Annotated[str, AfterValidator(_digest)]
SecretRef = Annotated[str, AfterValidator(_secret)]


class Timeouts(Section):
    """How long an upstream may take in each phase."""

    connect: Duration = 5.0
    first_byte: Duration = 60.0
    idle: Duration = 30.0
    total: Duration = 600.0


class Upstream(Section):
    """A provider endpoint."""

    dialect: DialectName
    base_url: str
    api_key: SecretRef | None = None
    headers: dict[str, str] = Field(default_factory=dict)
    timeouts: Timeouts = Field(default_factory=Timeouts)
    provider: Name | None = None
    accepts: list[str] = Field(default_factory=list)
    max_answer_bytes: Size = 64 * 1024 * 1024
    propagate_trace: bool = False

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
    pattern: str | None = None
    flag: bool = False
    caller: bool = False

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


class Key(Section):
    """A virtual key, known by the SHA-256 of its text."""

    sha256: Digest
    deployments: Annotated[list[Name], Field(min_length=1)]
    description: str = ""
    tags: dict[TagKey, str] = Field(default_factory=dict)
    may: list[Literal["refresh"]] = Field(default_factory=list)


class Tier(Section):
    """Other prices for prompts above a number of tokens."""

    above: Annotated[int, Field(gt=0)]
    input: Usd | None = None
    cached_input: Usd | None = None
    cache_write: Usd | None = None
    output: Usd | None = None


class Price(Section):
    """USD per million tokens, from a day on."""

    since: Annotated[date | None, BeforeValidator(units.day)] = Field(None, alias="from")
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
    model: Model
    endpoint: Literal["completions", "chat"] | None = None
    price: Annotated[list[Price], BeforeValidator(_several)] = Field(default_factory=list)


class Deployment(Section):
    """The saved name that an application calls."""

    description: str = ""
    tags: dict[TagKey, str] = Field(default_factory=dict)
    targets: Annotated[list[Target], Field(min_length=1)]


class Policies(Section):
    """All sections of a folder, merged. Prices are checked one by one when they are used."""

    upstreams: dict[Name, Upstream] = Field(default_factory=dict)
    tags: dict[TagKey, Tag] = Field(default_factory=dict)
    caller_tags: CallerTags = Field(default_factory=CallerTags)
    keys: dict[Name, Key] = Field(default_factory=dict)
    deployments: dict[Name, Deployment] = Field(default_factory=dict)
    prices: dict[str, dict[str, Any]] = Field(default_factory=dict)
