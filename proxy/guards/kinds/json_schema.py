"""The `json_schema` guard: finds responses that are not JSON, or do not match a schema.

Schemas with external references are rejected. Patterns take linear time. Objects with duplicate
names are invalid.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, NoReturn

import jsonschema_rs
from pydantic import Field, WithJsonSchema

from proxy.config.scalars import Section
from proxy.dialects.wire.strict_json import parse_rejecting_duplicates
from proxy.guards.guard_kind import GuardKind
from proxy.types.guard import Finding

MAX_PATH = 200


class JsonSchema:
    """Detector of texts that are not JSON or violate a schema.

    Kinds are ``invalid_json`` and ``invalid_schema``. JSON may be surrounded by white space, but
    not by a fenced block. Raises ``ValueError`` for an invalid schema.
    """

    __slots__ = ("_validator",)

    def __init__(self, schema: Mapping[str, Any] | bool = True) -> None:
        try:
            self._validator = jsonschema_rs.validator_for(
                schema if isinstance(schema, bool) else dict(schema),
                retriever=_reject_external_reference,
                pattern_options=jsonschema_rs.RegexOptions(),
            )
        except ValueError as error:
            raise ValueError("must be a valid JSON schema without external references") from error

    lookback = None

    def find(self, text: str) -> Sequence[Finding]:
        kind, _ = self.find_problem_and_schema_path(text)
        return () if kind is None else (Finding(0, len(text), kind),)

    def find_problem_and_schema_path(
        self, text: str
    ) -> tuple[Literal["invalid_json", "invalid_schema"] | None, str]:
        """Return the problem and the path of the violated keyword in the schema.

        The path has at most 200 characters, and contains nothing from the text.
        """
        try:
            value = parse_rejecting_duplicates(text.encode())
        except ValueError:
            return "invalid_json", ""
        error = next(self._validator.iter_errors(value), None)
        if error is None:
            return None, ""
        return "invalid_schema", ".".join(map(str, error.schema_path))[:MAX_PATH]


def _reject_external_reference(address: str) -> NoReturn:
    raise LookupError("external references are not allowed")


class JsonSchemaConfig(Section):
    """Responses that are not JSON of a given schema."""

    json_schema: Annotated[
        dict[str, Any] | Literal[True],
        Field(alias="schema"),
        WithJsonSchema({"anyOf": [{"type": "object"}, {"const": True}]}),
    ] = True
    """JSON Schema. Default: any JSON."""


KIND = GuardKind(
    JsonSchemaConfig,
    lambda keys, context: JsonSchema(keys.json_schema),
    fields=frozenset({"content"}),
)
