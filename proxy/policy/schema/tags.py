"""The sections ``tags`` and ``caller_tags``."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, WithJsonSchema, field_validator, model_validator

from proxy.config.scalars import VISIBLE, Section
from proxy.config.shapes import Requirement, equals, has, one
from proxy.policy.schema import patterns

TAG_VALUE = {"type": "string", "minLength": 1, "maxLength": patterns.MAX_VALUE, "pattern": VISIBLE}


def _tag_value(value: str) -> str:
    if not patterns.is_plain(value):
        raise ValueError(f"must be 1 to {patterns.MAX_VALUE} visible characters, in NFC")
    return value


TagValue = Annotated[str, AfterValidator(_tag_value), WithJsonSchema(TAG_VALUE)]


class Tag(Section):
    """The values a tag may have: a closed list, a pattern, or just set (``flag``)."""

    values: Annotated[list[TagValue], Field(min_length=1)] | None = None
    """The closed list of its values."""
    pattern: str | None = None
    """What its whole value must match, in the language of RE2."""
    flag: bool = False
    """It is set or not, and has no other value."""
    caller: bool = False
    """Whether callers may set it by header."""

    SHORT_FORMS = (
        {"type": "array", "items": TAG_VALUE, "minItems": 1},
        {"const": "flag"},
    )
    REQUIREMENTS = (
        Requirement(
            one(has("values"), has("pattern"), equals("flag", True)),
            "must be a list of values, a pattern, or flag",
        ),
    )

    @model_validator(mode="before")
    @classmethod
    def _short_forms(cls, value: Any) -> Any:
        if isinstance(value, list):
            return {"values": value}
        return {"flag": True} if value == "flag" else value

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
