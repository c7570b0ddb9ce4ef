"""Sections ``tags`` and ``caller_tags``."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, WithJsonSchema, field_validator, model_validator

from proxy.config.scalars import VISIBLE, Section
from proxy.config.shapes import Requirement, equals, has, one
from proxy.policy.schema import patterns

TAG_VALUE = {"type": "string", "minLength": 1, "maxLength": patterns.MAX_VALUE, "pattern": VISIBLE}


def _tag_value(value: str) -> str:
    if not patterns.is_plain(value):
        raise ValueError(
            f"must be 1 to {patterns.MAX_VALUE} printable characters in Unicode form NFC"
        )
    return value


TagValue = Annotated[str, AfterValidator(_tag_value), WithJsonSchema(TAG_VALUE)]


class Tag(Section):
    """Allowed values of a tag: a list, a pattern, or ``flag`` for a tag without a value."""

    values: Annotated[list[TagValue], Field(min_length=1)] | None = None
    """Allowed values."""
    pattern: str | None = None
    """RE2 pattern that the whole value must match."""
    flag: bool = False
    """Whether the tag has no value: it is set or not set."""
    caller: bool = False
    """Whether clients may set the tag in a header."""

    SHORT_FORMS = (
        {"type": "array", "items": TAG_VALUE, "minItems": 1},
        {"const": "flag"},
    )
    REQUIREMENTS = (
        Requirement(
            one(has("values"), has("pattern"), equals("flag", True)),
            "must have exactly one of values, pattern and flag",
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
    """Handling of client tags that the policy does not allow."""

    otherwise: Literal["drop", "refuse"] = "drop"
    """`drop` removes the tag with a warning header; `refuse` rejects the call."""
