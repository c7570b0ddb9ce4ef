"""Section ``upstreams``."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    StringConstraints,
    WithJsonSchema,
    field_validator,
)

from proxy.config import scalars
from proxy.dialects import DIALECTS
from proxy.errors.words import quote

FRAMING_HEADERS = frozenset(
    {"accept-encoding", "connection", "content-encoding", "content-length", "content-type"}
    | {"expect", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade"}
)
"""Headers that the HTTP client sets."""
HEADER_VALUE_PATTERN = rf"(?:(?!\$\{{)[ -~]|{scalars.VARIABLE_PATTERN})*"
_FRAMING = "|".join(map(scalars.make_case_insensitive_pattern, sorted(FRAMING_HEADERS)))
HEADERS_SCHEMA = {
    "type": "object",
    "patternProperties": {
        rf"^(?!(?:{_FRAMING})$)(?=.*(?:{scalars.CREDENTIAL_PATTERN}))[A-Za-z0-9-]+$": {
            "type": "string",
            "pattern": rf"^(?=.*{scalars.VARIABLE_PATTERN}|file:.){HEADER_VALUE_PATTERN}$",
        },
        rf"^(?!(?:{_FRAMING})$)(?!.*(?:{scalars.CREDENTIAL_PATTERN}))[A-Za-z0-9-]+$": {
            "type": "string",
            "pattern": f"^{HEADER_VALUE_PATTERN}$",
        },
    },
}
REQUIRED_FIELDS = frozenset({"input", "messages", "model", "prompt", "stream"})


def _require_optional_field_name(name: str) -> str:
    if name.lower() in REQUIRED_FIELDS:
        raise ValueError(f"{quote(name)} is part of every request: remove it here")
    return name.lower()


_REQUIRED = "|".join(map(scalars.make_case_insensitive_pattern, sorted(REQUIRED_FIELDS)))
FieldName = Annotated[
    str,
    StringConstraints(min_length=1, max_length=200),
    AfterValidator(_require_optional_field_name),
    WithJsonSchema(
        {"type": "string", "minLength": 1, "maxLength": 200, "pattern": f"^(?!(?:{_REQUIRED})$)"}
    ),
]


def _check_accepted_field(value: Any) -> Any:
    """Return a field name, or a field with its maximum. Raise ``ValueError`` for anything else."""
    if isinstance(value, dict) and len(value) == 1:
        [(name, maximum)] = value.items()
        is_valid = isinstance(name, str) and type(maximum) in (int, float) and maximum >= 0
    else:
        is_valid = isinstance(value, str)
    if not is_valid:
        raise ValueError(
            "must be a field name such as top_k, or one field with its maximum such as {stop: 16}"
        )
    return value


AcceptedField = Annotated[
    Any,
    BeforeValidator(_check_accepted_field),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string"},
                {
                    "type": "object",
                    "additionalProperties": {"type": "number", "minimum": 0},
                    "minProperties": 1,
                    "maxProperties": 1,
                },
            ]
        }
    ),
]
OPENAI_COMPATIBLE, AZURE = "openai_compatible", "azure"
OPENAI_VARIANTS = (OPENAI_COMPATIBLE, AZURE)
"""Servers with their own value ranges, and Azure with its own paths and credential."""
QueryName = Annotated[
    str,
    *scalars.make_pattern_annotations(
        rf"(?!(?:.*(?:{scalars.CREDENTIAL_PATTERN}|[kK][eE][yY])))[A-Za-z0-9_.-]{{1,64}}",
        "must be a parameter name that does not refer to a key or secret; use headers for secrets",
        "api-version",
    ),
]
QueryValue = Annotated[
    str,
    *scalars.make_pattern_annotations(
        r"[A-Za-z0-9_.,:~-]{1,200}", "must consist of letters, digits and . _ , : ~ -", "2024-10-21"
    ),
]


class TimeoutsConfig(scalars.Section):
    """Timeouts of an upstream."""

    connect: scalars.Duration = 5.0
    """Time to connect. Default 5s."""
    first_byte: scalars.Duration = 600.0
    """Time from the request to the first byte of a stream. Default 10m."""
    idle: scalars.Duration = 600.0
    """Time between two bytes of a stream, including comments. Default 10m."""
    total: scalars.Duration = 600.0
    """Total time of a request. Default 10m."""


class BreakerConfig(scalars.Switchable):
    """Circuit breaker of a target."""

    failures: Annotated[int, Field(ge=1, le=10_000)] = 5
    """Consecutive failures that open the circuit. Default 5."""
    rest: scalars.Duration = 10.0
    """Time until one call may try the target again. Default 10s."""


class UpstreamConfig(scalars.Section):
    """A provider or server that calls can go to."""

    dialect: Annotated[str, scalars.OneOfWords((*DIALECTS, *OPENAI_VARIANTS))]
    """API dialect. `openai_compatible` is OpenAI's without its value ranges, `azure` OpenAI's at
    Azure's paths."""
    base_url: scalars.Url
    """Base URL. Without a path, the default prefix of the dialect is added."""
    api_key: scalars.KeyRef | None = None
    """Credential as ${VARIABLE} or file:/path; or azure:SCOPE, google:SCOPE or aws:REGION for a
    token of the machine's identity."""
    headers: Annotated[dict[str, str], WithJsonSchema(HEADERS_SCHEMA)] = Field(default_factory=dict)
    """Headers of every request."""
    query: dict[QueryName, QueryValue] = Field(default_factory=dict)
    """Query parameters of every request, such as `api-version`. No secrets."""
    timeouts: TimeoutsConfig = Field(default_factory=TimeoutsConfig)
    """Timeouts of requests."""
    provider: scalars.Name | None = None
    """Provider name, used for the price table and telemetry."""
    accepts: list[AcceptedField] = Field(default_factory=list)
    """Additional request fields that it supports, or `NAME: MAX` for the largest number or the
    maximum number of entries of a field."""
    gateway: bool | None = None
    """Whether it is a gateway such as LiteLLM or OpenRouter. A gateway gets only the request fields
    of its dialect, without `metadata`, and those in `accepts`. By default this is detected from
    `provider` and the host name."""
    include_usage: Literal["on", "off"] = "on"
    """Whether to request usage in streams. `off` for servers that reject the option."""
    drop: Annotated[list[FieldName], Field(max_length=200)] = Field(default_factory=list)
    """Request fields to remove, with a warning to the client."""
    refuse: Annotated[list[FieldName], Field(max_length=200)] = Field(default_factory=list)
    """Request fields to reject, in addition to those that choose a model, an address or a key.
    A field that `drop` or `accepts` names is not rejected."""
    max_answer_bytes: scalars.Size | None = None
    """Maximum size of a response that is not streamed. Default 64MiB, embeddings 256MiB."""
    max_answer_values: Annotated[int, Field(ge=1_000, le=10_000_000)] = 100_000
    """Maximum number of JSON values in a response or stream event. Log probabilities may have ten
    times as many; numbers of embeddings do not count."""
    propagate_trace: bool = False
    """Whether to send the traceparent header."""
    max_concurrency: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    """Maximum number of concurrent requests. Others go to the next target or get 503."""
    breaker: BreakerConfig = Field(default_factory=BreakerConfig)
    """Circuit breaker of its targets, or `off`."""

    @property
    def api_dialect(self) -> str:
        """API dialect: ``openai`` for Azure and for OpenAI-compatible servers."""
        return "openai" if self.dialect in OPENAI_VARIANTS else self.dialect

    @property
    def accepted_fields(self) -> dict[str, float | None]:
        """Additional request fields, with their maximum if there is one."""
        fields: dict[str, float | None] = {}
        for field in self.accepts:
            fields.update({field: None} if isinstance(field, str) else field)
        return fields

    @field_validator("headers")
    @classmethod
    def _check_headers(cls, value: dict[str, str]) -> dict[str, str]:
        problems = [
            p for header in value.items() if (p := _find_header_problem(*header)) is not None
        ]
        if len({name.lower() for name in value}) < len(value):
            problems.append("must not contain the same header twice (names are case-insensitive)")
        if problems:
            raise ValueError("; ".join(problems))
        return value


def _find_header_problem(name: str, content: str) -> str | None:
    """Return the problem of a header that is invalid, frames the request, or exposes a secret."""
    if not re.fullmatch(r"[A-Za-z0-9-]+", name) or not (
        content.isprintable() and content.isascii()
    ):
        return f"header {quote(name)} must have an ASCII name and a printable ASCII value"
    if name.lower() in FRAMING_HEADERS:
        return f"header {quote(name)} is set by Headrace and cannot be configured"
    if "${" in re.sub(scalars.VARIABLE_PATTERN, "", content):
        return f"header {quote(name)} contains ${{ without a valid variable name"
    if re.search(scalars.CREDENTIAL_PATTERN, name) and not re.search(
        rf"{scalars.VARIABLE_PATTERN}|^file:.", content
    ):
        return f"header {quote(name)} must use ${{VARIABLE}} or file:/path, not the secret itself"
    return None
