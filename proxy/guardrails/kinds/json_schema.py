"""JSON answers: whether a text is JSON, and of the shape that a schema gives.

A schema cannot reach out: a reference to anything outside of it is refused when it is made. Its
patterns take linear time. An object with the same name twice is not JSON.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, NoReturn

import jsonschema_rs
from pydantic import Field, WithJsonSchema

from proxy.config.scalars import Section
from proxy.dialects.counting import read_distinct
from proxy.guardrails.guard_kind import GuardKind
from proxy.types.guard import Finding

MOST_CHARACTERS = 200


class JsonSchema:
    """Finds the whole text where it is not JSON (``invalid_json``) or does not fit the schema
    (``invalid_schema``); ``ValueError`` if the schema is none.

    JSON alone, with white space around it: not a fenced block, and no number beyond its grammar.
    """

    __slots__ = ("_validator",)

    def __init__(self, schema: Mapping[str, Any] | bool = True) -> None:
        try:
            self._validator = jsonschema_rs.validator_for(
                schema if isinstance(schema, bool) else dict(schema),
                retriever=_refuse,
                pattern_options=jsonschema_rs.RegexOptions(),
            )
        except ValueError as wrong:
            raise ValueError("must be a valid JSON schema without external references") from wrong

    @property
    def reach(self) -> None:
        return None

    def find(self, text: str) -> Sequence[Finding]:
        kind, _ = self.problem(text)
        return () if kind is None else (Finding(0, len(text), kind),)

    def problem(self, text: str) -> tuple[Literal["invalid_json", "invalid_schema"] | None, str]:
        """What is wrong, and which part of the schema tells so.

        The part is a path of the schema's own words, at most ``MOST_CHARACTERS``. It says nothing
        of the text, not even a name in it, as names may be values.
        """
        try:
            value = read_distinct(text.encode())
        except ValueError:
            return "invalid_json", ""
        wrong = next(self._validator.iter_errors(value), None)
        if wrong is None:
            return None, ""
        return "invalid_schema", ".".join(map(str, wrong.schema_path))[:MOST_CHARACTERS]


def _refuse(address: str) -> NoReturn:
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
