"""The section ``upstreams``."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, Field, StringConstraints, WithJsonSchema, field_validator

from proxy.config.scalars import (
    CREDENTIAL,
    VARIABLE,
    Duration,
    ListedWord,
    Name,
    SecretRef,
    Section,
    Size,
    Switched,
    Url,
    any_case,
)
from proxy.dialects import DIALECTS

FRAMING = frozenset(
    {"accept-encoding", "connection", "content-encoding", "content-length", "content-type"}
    | {"expect", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade"}
)


NAMES_NO_VARIABLE = rf"(?:(?!\$\{{)[ -~]|{VARIABLE})*"
_FRAMING = "|".join(map(any_case, sorted(FRAMING)))
HEADERS = {
    "type": "object",
    "patternProperties": {
        rf"^(?!(?:{_FRAMING})$)(?=.*(?:{CREDENTIAL}))[A-Za-z0-9-]+$": {
            "type": "string",
            "pattern": rf"^(?=.*{VARIABLE}|file:.){NAMES_NO_VARIABLE}$",
        },
        rf"^(?!(?:{_FRAMING})$)(?!.*(?:{CREDENTIAL}))[A-Za-z0-9-]+$": {
            "type": "string",
            "pattern": f"^{NAMES_NO_VARIABLE}$",
        },
    },
}
NEEDED = frozenset({"input", "messages", "model", "prompt", "stream"})


def _small(name: str) -> str:
    if name.lower() in NEEDED:
        raise ValueError(f"{name!r} is what a request is made of")
    return name.lower()


_NEEDED = "|".join(map(any_case, sorted(NEEDED)))
FieldName = Annotated[
    str,
    StringConstraints(min_length=1, max_length=200),
    AfterValidator(_small),
    WithJsonSchema(
        {"type": "string", "minLength": 1, "maxLength": 200, "pattern": f"^(?!(?:{_NEEDED})$)"}
    ),
]


class TimeoutsConfig(Section):
    """How long an upstream may take in each phase."""

    connect: Duration = 5.0
    """To connect; 5s when it is not said."""
    first_byte: Duration = 600.0
    """From sending the request to the first byte of a stream; 10m. Whole answers have `total`."""
    idle: Duration = 600.0
    """Between two bytes of a stream, comments too; 10m."""
    total: Duration = 600.0
    """In all; 10m."""


class BreakerConfig(Switched):
    """When a target that keeps failing is left alone."""

    failures: Annotated[int, Field(ge=1, le=10_000)] = 5
    """How many failures in a row open it; 5."""
    rest: Duration = 10.0
    """How long it is left alone before one call may try it again; 10s."""


class UpstreamConfig(Section):
    """A provider endpoint."""

    dialect: Annotated[str, ListedWord(tuple(DIALECTS))]
    """The wire format that it speaks."""
    base_url: Url
    """Where it is; without a path, the dialect's own prefix is added."""
    api_key: SecretRef | None = None
    """Its credential, as ${VARIABLE} or file:/path."""
    headers: Annotated[dict[str, str], WithJsonSchema(HEADERS)] = Field(default_factory=dict)
    """Headers that are sent with every request."""
    timeouts: TimeoutsConfig = Field(default_factory=TimeoutsConfig)
    """How long it may take in each phase."""
    provider: Name | None = None
    """Whose prices count, and its name in telemetry."""
    accepts: list[str] = Field(default_factory=list)
    """Request fields that it takes beyond its dialect's own."""
    drop: Annotated[list[FieldName], Field(max_length=200)] = Field(default_factory=list)
    """Request fields that are left out on the way to it, with a warning to the client."""
    refuse: Annotated[list[FieldName], Field(max_length=200)] = Field(default_factory=list)
    """Request fields that a client may not say, beside those that choose a model, an address or a
    key; `drop` or `accepts` takes one of these off."""
    max_answer_bytes: Size | None = None
    """The largest answer that is not streamed; 64MiB, of embeddings 256MiB."""
    max_answer_values: Annotated[int, Field(ge=1_000, le=10_000_000)] = 100_000
    """How many values an answer, or an event of a stream, may hold; ten times as many where the
    others are of log-probabilities, and numbers of embeddings beside."""
    propagate_trace: bool = False
    """Whether it gets a traceparent."""
    max_concurrency: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    """How many requests it may have at once; the next goes elsewhere, or is refused at once."""
    breaker: BreakerConfig = Field(default_factory=BreakerConfig)
    """When a target there that keeps failing is left alone; `off` for never."""

    @field_validator("headers")
    @classmethod
    def _plain_headers(cls, value: dict[str, str]) -> dict[str, str]:
        found = [_header_problem(name, content) for name, content in value.items()]
        if len({name.lower() for name in value}) < len(value):
            found.append("must name each header once, whatever its case")
        problems = [problem for problem in found if problem is not None]
        if problems:
            raise ValueError("; ".join(problems))
        return value


def _header_problem(name: str, content: str) -> str | None:
    """Return what is wrong with a header that is none, frames the request, or tells a secret."""
    if not re.fullmatch(r"[A-Za-z0-9-]+", name) or not (
        content.isprintable() and content.isascii()
    ):
        return f"{name!r} is not a header of plain text"
    if name.lower() in FRAMING:
        return f"{name!r} is not the policy's to set"
    if "${" in re.sub(VARIABLE, "", content):
        return f"{name!r} has a ${{ that names no variable"
    if re.search(CREDENTIAL, name) and not re.search(rf"{VARIABLE}|^file:.", content):
        return f"{name!r} must use ${{VARIABLE}} or file:/path, never the secret itself"
    return None
