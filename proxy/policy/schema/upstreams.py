"""The section ``upstreams``."""

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

from proxy.config.scalars import (
    CREDENTIAL,
    VARIABLE,
    Duration,
    KeyRef,
    ListedWord,
    Name,
    Section,
    Size,
    Switched,
    Url,
    any_case,
    text,
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


def _accepted(value: Any) -> Any:
    """Return a field's name, or what has the most that is taken of it. Raise ``ValueError``."""
    if isinstance(value, dict) and len(value) == 1:
        [(name, most)] = value.items()
        good = isinstance(name, str) and type(most) in (int, float) and most >= 0
    else:
        good = isinstance(value, str)
    if not good:
        raise ValueError("must be a field, such as top_k, or the most of one, such as stop: 16")
    return value


AcceptedField = Annotated[
    Any,
    BeforeValidator(_accepted),
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
COMPATIBLE, AZURE = "openai_compatible", "azure"
OPENAIS_FORM = (COMPATIBLE, AZURE)
"""What stands for OpenAI's dialect as others speak it: those who judge by themselves what is too
much, and Azure, whose paths and credential are its own."""


QueryName = Annotated[
    str,
    *text(
        rf"(?!(?:.*(?:{CREDENTIAL}|[kK][eE][yY])))[A-Za-z0-9_.-]{{1,64}}",
        "must be a plain word, and no secret's name: those go into headers",
        "api-version",
    ),
]
QueryValue = Annotated[
    str,
    *text(r"[A-Za-z0-9_.,:~-]{1,200}", "must be letters, digits and ._,:~-", "2024-10-21"),
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

    dialect: Annotated[str, ListedWord((*DIALECTS, *OPENAIS_FORM))]
    """The wire format that it speaks; `openai_compatible` is OpenAI's, with ranges of its own, and
    `azure` is OpenAI's at Azure's paths."""
    base_url: Url
    """Where it is; without a path, the dialect's own prefix is added."""
    api_key: KeyRef | None = None
    """Its credential, as ${VARIABLE} or file:/path; or azure:SCOPE, google:SCOPE or aws:REGION for
    a token of the machine's own identity."""
    headers: Annotated[dict[str, str], WithJsonSchema(HEADERS)] = Field(default_factory=dict)
    """Headers that are sent with every request."""
    query: dict[QueryName, QueryValue] = Field(default_factory=dict)
    """What is said in the query of every request, such as an `api-version`; no secret."""
    timeouts: TimeoutsConfig = Field(default_factory=TimeoutsConfig)
    """How long it may take in each phase."""
    provider: Name | None = None
    """Whose prices count, and its name in telemetry."""
    accepts: list[AcceptedField] = Field(default_factory=list)
    """Request fields that it takes beyond its dialect's own, or `NAME: MOST`: the largest number
    that it takes there, or the most entries."""
    include_usage: Literal["on", "off"] = "on"
    """Whether a stream is asked to tell its usage; `off` for a server that refuses to be asked."""
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

    @property
    def spoken(self) -> str:
        """The name of the dialect that it speaks."""
        return "openai" if self.dialect in OPENAIS_FORM else self.dialect

    @property
    def accepted(self) -> dict[str, float | None]:
        """Request fields that it takes, with the most that it takes of each, where that is said."""
        found: dict[str, float | None] = {}
        for each in self.accepts:
            found.update({each: None} if isinstance(each, str) else each)
        return found

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
