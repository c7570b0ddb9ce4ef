"""The scalars of policy files, and what all their parts have in common."""

from __future__ import annotations

import re
from datetime import date
from decimal import Decimal
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    StringConstraints,
    WithJsonSchema,
    model_validator,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from proxy.policy import units

NAME = r"[a-z0-9][a-z0-9._-]{0,63}"
CREDENTIAL = re.compile(r"auth|api-?key|token|secret|password|cookie", re.IGNORECASE)
VARIABLE = r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}"


def _pattern(pattern: str, example: str) -> dict[str, Any]:
    return {"type": "string", "pattern": f"^(?:{pattern})$", "examples": [example]}


DialectName = Literal["openai", "portkey", "fireworks", "scale", "multimodel", "enkrypt"]
Name = Annotated[str, StringConstraints(pattern=f"^{NAME}$")]
Model = Annotated[str, StringConstraints(min_length=1, max_length=256)]
TagKey = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]{0,63}$")]
Duration = Annotated[
    float, BeforeValidator(units.duration), WithJsonSchema(_pattern(units.DURATION, "5s"))
]
Size = Annotated[int, BeforeValidator(units.size), WithJsonSchema(_pattern(units.SIZE, "64MiB"))]
Usd = Annotated[
    Decimal,
    BeforeValidator(units.money),
    Field(ge=0),
    WithJsonSchema({"type": ["number", "string"], "minimum": 0}),
]
Day = Annotated[
    date | None,
    BeforeValidator(units.day),
    WithJsonSchema({"type": "string", "format": "date"}),
]


class Section(BaseModel):
    """What all parts of a policy have in common."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, use_attribute_docstrings=True
    )


class Switched(Section):
    """A part that may be turned off in one word."""

    off: bool = False
    """Whether there is none; `off` for short."""

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """Tell editors of the short form too."""
        return {"anyOf": [{"const": "off"}, handler(core)]}

    @model_validator(mode="before")
    @classmethod
    def _short_form(cls, value: Any) -> Any:
        return {"off": True} if value == "off" else value


def _secret(value: str) -> str:
    if not re.fullmatch(rf"{VARIABLE}|file:.+", value):
        raise ValueError("must be ${VARIABLE} or file:/path, never the secret itself")
    return value


def _digest(value: str) -> str:
    if not re.fullmatch(r"[0-9a-f]{64}", value):
        raise ValueError("must be a SHA-256 in hex: `headrace key NAME` gives one")
    return value


def _header(value: str) -> str:
    if not re.fullmatch(r"[a-z0-9-]{1,64}", value):
        raise ValueError("must be a header's name in lower case")
    if CREDENTIAL.search(value):
        raise ValueError("must not be a header that carries a credential")
    return value


HeaderName = Annotated[str, AfterValidator(_header)]
Digest = Annotated[
    str, AfterValidator(_digest), WithJsonSchema({"type": "string", "pattern": "^[0-9a-f]{64}$"})
]
SecretRef = Annotated[
    str,
    AfterValidator(_secret),
    WithJsonSchema(_pattern(rf"{VARIABLE}|file:.+", "${OPENAI_API_KEY}")),
]


def _url(value: str) -> str:
    parts = urlsplit(value)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.port == 0:
        raise ValueError("must be an http or https URL")
    if not value.isascii() or not value.isprintable() or " " in value:
        raise ValueError("must be plain ASCII without spaces")
    if "@" in parts.netloc or "?" in value or "#" in value:
        raise ValueError("must not hold credentials, a query or a fragment")
    return value


Url = Annotated[str, AfterValidator(_url)]


def listed(value: Any) -> Any:
    """One of a kind, or several."""
    return value if isinstance(value, list) else [value]
