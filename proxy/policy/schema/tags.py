"""The sections ``tags`` and ``caller_tags``."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    Field,
    GetJsonSchemaHandler,
    field_validator,
    model_validator,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from proxy.policy import patterns
from proxy.policy.schema.scalars import Section


def _tag_value(value: str) -> str:
    if not patterns.is_plain(value):
        raise ValueError(f"must be 1 to {patterns.MAX_VALUE} visible characters, in NFC")
    return value


TagValue = Annotated[str, AfterValidator(_tag_value)]


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
