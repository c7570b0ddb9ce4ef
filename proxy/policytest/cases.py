"""Files of policy tests: a call, the responses of upstreams, and the expected result."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    ValidationError,
    WithJsonSchema,
    model_validator,
)

from proxy.config.scalars import Name, Section, Usd
from proxy.policy.files.load import iter_policy_files
from proxy.policy.files.source import Document, PolicyError, SourceLocation
from proxy.policy.files.validation import report_errors
from proxy.policy.files.yaml_reader import read_file
from proxy.types.guard import Verdict

TESTS_FOLDER = "tests"
NO_TESTS = 'does not exist. See "Tests of policies" in docs/policies.md for an example.'
DEFAULT_TIME = datetime(2026, 1, 5, 12, tzinfo=UTC)


def _parse_moment(value: Any) -> Any:
    try:
        return datetime.fromisoformat(value) if isinstance(value, str) else value
    except ValueError:
        raise ValueError(
            "must be a time such as 2026-01-31T22:00 (UTC) or 2026-01-31T22:00+01:00"
        ) from None


Moment = Annotated[
    datetime,
    BeforeValidator(_parse_moment),
    AfterValidator(lambda time: time.astimezone(UTC) if time.tzinfo else time.replace(tzinfo=UTC)),
    WithJsonSchema({"type": "string", "examples": ["2026-01-31T22:00"]}),
]


class ScriptedAnswer(Section):
    """Response of an upstream to one request."""

    text: str | None = None
    """Text of the response. Short form: a plain string."""
    chunks: list[str] | None = None
    """Text in pieces, which a stream sends one by one."""
    status: int = 200
    """HTTP status. If it is not 200, the body is an error."""
    headers: dict[str, str] = Field(default_factory=dict)
    """Response headers."""
    usage: dict[str, int] | None = None
    """Reported usage, in OpenAI's format."""
    fault: Literal["connect", "silent", "garbled", "cut"] | None = None
    """`connect`: unreachable; `silent`: no response; `garbled`: not JSON; `cut`: ends early."""

    SHORT_FORMS = ((str, "text"),)

    @property
    def text_chunks(self) -> list[str]:
        return self.chunks if self.chunks is not None else [self.text or "Hello."]


class Given(Section):
    """A call and its circumstances."""

    key: Name
    """Name of the virtual key."""
    deployment: Name | None = None
    """Deployment in the request header."""
    path: str | None = None
    """Request path. Default: derived from the body, as in `headrace explain`."""
    method: Literal["DELETE", "GET", "PATCH", "POST", "PUT"] = "POST"
    """Request method. Default POST. A GET has no body."""
    headers: dict[str, str] = Field(default_factory=dict)
    """Other request headers."""
    body: dict[str, Any] | None = None
    """Request body. Default: a short chat with the deployment."""
    at: Moment = DEFAULT_TIME
    """Time of the call. Default: Monday, 5 January 2026, 12:00 UTC."""
    used: dict[Name, Usd] = Field(default_factory=dict)
    """Amounts of limits that were used before, by limit name. Costs in USD."""
    answers: list[ScriptedAnswer] = Field(default_factory=list)
    """Responses of upstreams, in order. Further requests get a short response."""


class ExpectedRequest(Section):
    """Expected request to the upstream that responded."""

    body: dict[str, Any] | None = None
    """Part of the request body."""
    text: str | None = None
    """All texts of the request that a model reads, in order, joined by newlines."""


class ExpectedAnswer(Section):
    """Expected response to the client."""

    body: dict[str, Any] | None = None
    """Part of the response body, if it is not a stream."""
    text: str | None = None
    """Text of the response, streamed or not."""
    headers: dict[str, str] = Field(default_factory=dict)
    """Some of the response headers."""


class Expect(Section):
    """Expected result of a call. Keys that are not set are not checked."""

    status: int | None = None
    """HTTP status for the client."""
    error: str | None = None
    """Code of the error, or `none`."""
    deployment: Name | None = None
    """Selected deployment."""
    tags: dict[str, str] | None = None
    """All tags of the call."""
    rules: list[str] | None = None
    """All rules that apply, as policy/rule, in order."""
    shadow_rules: list[str] | None = None
    """All rules in shadow mode that would apply."""
    targets: list[str] | None = None
    """All targets that receive a request, as upstream/model, in order."""
    plan: list[str] | None = None
    """All targets of the plan, in order."""
    guards: dict[str, Verdict] | None = None
    """Verdicts of guards, by input.NAME or output.NAME."""
    upstream: ExpectedRequest | None = None
    """Request to the upstream that responded, or failed last."""
    client: ExpectedAnswer | None = None
    """Response to the client."""
    cost_usd: Usd | None = None
    """Cost of the call in USD, including all attempts."""
    charged: dict[Name, Usd] | None = None
    """Amounts that limits were charged, by limit name. Costs in USD."""

    @model_validator(mode="after")
    def _require_expectation(self) -> Self:
        if not self.model_fields_set:
            raise ValueError("must have at least one expectation")
        return self


class Case(Section):
    """A test. Its name is a sentence."""

    given: Given
    """The call and its circumstances."""
    expect: Expect
    """The expected result."""


class Suite(Section):
    """A file of policy tests."""

    tests: dict[str, Case] = Field(default_factory=dict)
    """Tests by name."""


def read_cases(folder: Path) -> tuple[dict[str, Case], Document]:
    """Return the tests of a folder and their document. Raise ``PolicyError`` with all errors."""
    document = Document()
    if not (folder / TESTS_FOLDER).is_dir():
        document.report_incomplete(SourceLocation(TESTS_FOLDER, 1, 1), (), NO_TESTS)
        raise PolicyError(document.problems)
    for file in iter_policy_files(folder / TESTS_FOLDER, document):
        read_file(file, file.relative_to(folder).as_posix(), document)
    document.raise_problems()
    try:
        return Suite.model_validate(document.data).tests, document
    except ValidationError as error:
        report_errors(document, error, Suite)
        raise PolicyError(document.problems) from None
