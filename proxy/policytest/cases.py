"""The files of policy tests: what a call says, what upstreams answer, and what must come of it."""

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
from proxy.policy.files.load import files_below, note
from proxy.policy.files.source import Document, PolicyError, SourceLocation
from proxy.policy.files.yaml_reader import read_file
from proxy.types.guard import Verdict

FOLDER = "tests"
NO_TESTS = "is not there: there are no tests (docs/policies.md, Tests of policies, shows one)"
A_MONDAY = datetime(2026, 1, 5, 12, tzinfo=UTC)


def _moment(value: Any) -> Any:
    try:
        return datetime.fromisoformat(value) if isinstance(value, str) else value
    except ValueError:
        raise ValueError("must be a moment such as 2026-01-31T22:00") from None


def _in_utc(value: datetime) -> datetime:
    return value.astimezone(UTC) if value.tzinfo else value.replace(tzinfo=UTC)


Moment = Annotated[
    datetime,
    BeforeValidator(_moment),
    AfterValidator(_in_utc),
    WithJsonSchema({"type": "string", "examples": ["2026-01-31T22:00"]}),
]


class ScriptedAnswer(Section):
    """What one upstream says to one request."""

    text: str | None = None
    """The text of its answer; a plain string for short."""
    chunks: list[str] | None = None
    """The same in pieces, which a stream sends one by one."""
    status: int = 200
    """Its status; one that is not 200 comes with an error in its body."""
    headers: dict[str, str] = Field(default_factory=dict)
    """Headers of its response."""
    usage: dict[str, int] | None = None
    """The usage that it reports, as OpenAI writes it."""
    fault: Literal["connect", "silent", "garbled", "cut"] | None = None
    """It cannot be reached, says nothing, answers with garbage, or breaks off after its chunks."""

    SHORT_FORMS = ({"type": "string"},)

    @model_validator(mode="before")
    @classmethod
    def _short_form(cls, value: Any) -> Any:
        return {"text": value} if isinstance(value, str) else value

    @property
    def pieces(self) -> list[str]:
        return self.chunks if self.chunks is not None else [self.text or "Hello."]


class Given(Section):
    """One call, and the world that it meets."""

    key: Name
    """The name of its virtual key."""
    deployment: Name | None = None
    """The deployment that its header names."""
    path: str | None = None
    """Its route; by its body where it is not said, as `headrace explain` takes it."""
    method: Literal["DELETE", "GET", "PATCH", "POST", "PUT"] = "POST"
    """Its method; POST where it is not said. A GET has no body."""
    headers: dict[str, str] = Field(default_factory=dict)
    """Its other headers."""
    body: dict[str, Any] | None = None
    """Its body; a greeting to the deployment where it is not said."""
    at: Moment = A_MONDAY
    """When it comes; Monday, 5 January 2026, noon in UTC where it is not said."""
    used: dict[Name, Usd] = Field(default_factory=dict)
    """What was used of limits before it came, by their names; money in USD."""
    answers: list[ScriptedAnswer] = Field(default_factory=list)
    """What upstreams say, request by request; a short answer to all that come after."""


class ExpectedRequest(Section):
    """What the upstream that answered must have been asked."""

    body: dict[str, Any] | None = None
    """A part of the request's body."""
    text: str | None = None
    """All texts of the request that a model reads, in order, joined by line breaks."""


class ExpectedAnswer(Section):
    """What the client must have got."""

    body: dict[str, Any] | None = None
    """A part of the answer's body, where it is not a stream."""
    text: str | None = None
    """The text of the answer, whole or streamed."""
    headers: dict[str, str] = Field(default_factory=dict)
    """Some of its headers."""


class Expect(Section):
    """What must come of a call; what is not said here may be anything."""

    status: int | None = None
    """The status that the client gets."""
    error: str | None = None
    """The error's code; `none` for an answer without one."""
    deployment: Name | None = None
    """The deployment that is found."""
    tags: dict[str, str] | None = None
    """All tags of the call."""
    rules: list[str] | None = None
    """All rules that apply, as policy/rule, in order."""
    shadow_rules: list[str] | None = None
    """All rules in shadow that would apply."""
    targets: list[str] | None = None
    """All targets that are asked, as upstream/model, in order."""
    plan: list[str] | None = None
    """All targets that may be asked, in order."""
    guards: dict[str, Verdict] | None = None
    """What guards say, by input.NAME or output.NAME; of others anything."""
    upstream: ExpectedRequest | None = None
    """What the upstream that answered, or failed last, was asked."""
    client: ExpectedAnswer | None = None
    """What the client got."""
    cost_usd: Usd | None = None
    """What the call cost, in all attempts."""
    charged: dict[Name, Usd] | None = None
    """What limits were charged in the end, by their names; money in USD."""

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if not self.model_fields_set:
            raise ValueError("must expect something")
        return self


class Case(Section):
    """One test, under a name that is a sentence."""

    given: Given
    """The call, and what it meets."""
    expect: Expect
    """What must come of it."""


class Suite(Section):
    """A file of tests."""

    tests: dict[str, Case] = Field(default_factory=dict)
    """Tests by their names."""


def read_cases(folder: Path) -> tuple[dict[str, Case], Document]:
    """Read the tests beside the policies of a folder, and where they are written.

    Raises ``PolicyError`` with everything that is wrong.
    """
    document = Document()
    if not (folder / FOLDER).is_dir():
        document.give_up(SourceLocation(FOLDER, 1, 1), (), NO_TESTS)
        raise PolicyError(document.problems)
    for file in files_below(folder / FOLDER, document):
        read_file(file, file.relative_to(folder).as_posix(), document)
    if document.problems:
        raise PolicyError(document.problems)
    try:
        return Suite.model_validate(document.data).tests, document
    except ValidationError as error:
        note(document, error, Suite)
        raise PolicyError(document.problems) from None
