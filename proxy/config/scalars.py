"""Types of values in policy files, and the base class of their sections."""

from __future__ import annotations

import ast
import inspect
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from datetime import date, datetime
from decimal import Decimal
from functools import cache
from itertools import pairwise
from typing import Annotated, Any, ClassVar, Literal, Self
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    StringConstraints,
    WithJsonSchema,
    model_validator,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

from proxy.config import units
from proxy.config.shapes import Requirement
from proxy.runtime.frozen import frozen
from proxy.types.target import CREDENTIAL_WORDS


def make_case_insensitive_pattern(word: str) -> str:
    """Return a case-insensitive pattern. JSON Schema has no flag for it."""
    return "".join(f"[{c.lower()}{c.upper()}]" if c.isalpha() else c for c in word)


ReferenceTarget = Literal["deployment", "upstream", "secret", "text", "service"]
NAME_PATTERN = r"[a-z0-9][a-z0-9._-]{0,63}"
CREDENTIAL_PATTERN = "|".join(map(make_case_insensitive_pattern, CREDENTIAL_WORDS))
USD_PATTERN = r"\d+(?:\.\d+)?"
MOMENT_SCHEMA = {
    "type": "string",
    "pattern": rf"^{units.DAY_PATTERN}([T ]{units.TIME_PATTERN}(:[0-5]\d)?"
    rf"(Z|[+-]{units.TIME_PATTERN}))?$",
    "examples": ["2026-12-31", "2026-12-31T18:00Z"],
}
_PORT_PATTERN = r"0*(?:[1-9]\d{0,3}|[1-5]\d{4}|6[0-4]\d{3}|65[0-4]\d{2}|655[0-2]\d|6553[0-5])"
URL_PATTERN = rf"https?://(?:(?![/?#@:\[\]\\])[!-~])+(?::{_PORT_PATTERN})?(?:/(?:(?![?#])[!-~])*)?"
VISIBLE_PATTERN = r"^[^\s\x00-\x1f\x7f-\xa0]+(?: [^\s\x00-\x1f\x7f-\xa0]+)*$"
VARIABLE_PATTERN = r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}"


def _make_pattern_schema(pattern: str, example: str) -> dict[str, Any]:
    return {"type": "string", "pattern": f"^(?:{pattern})$", "examples": [example]}


def require(is_valid: Callable[[Any], object], message: str) -> AfterValidator:
    """Return an annotation that rejects values that are not valid with a message."""

    def check(value: Any) -> Any:
        if not is_valid(value):
            raise ValueError(message)
        return value

    return AfterValidator(check)


def make_pattern_annotations(
    pattern: str, message: str, example: str
) -> tuple[AfterValidator, WithJsonSchema]:
    """Return annotations for text that must match a pattern as a whole."""
    is_valid = re.compile(pattern).fullmatch
    return require(is_valid, message), WithJsonSchema(_make_pattern_schema(pattern, example))


def parse_text(
    parse: Callable[[Any], Any], pattern: str, example: str
) -> tuple[BeforeValidator, WithJsonSchema]:
    """Return annotations for a value that is written as text and parsed."""
    return BeforeValidator(parse), WithJsonSchema(_make_pattern_schema(pattern, example))


def number_or_text(pattern: str, **bounds: Any) -> WithJsonSchema:
    """Return the schema of a number that may be written as text."""
    text = {"type": "string", "pattern": f"^(?:{pattern})$"}
    return WithJsonSchema({"anyOf": [{"type": "number", **bounds}, text]})


@frozen
class OneOfWords:
    """Annotation of text that must be one of ``words``, like a ``Literal``."""

    words: tuple[str, ...]

    def __get_pydantic_core_schema__(
        self, source: object, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        return core_schema.literal_schema(list(self.words))


Name = Annotated[str, StringConstraints(pattern=f"^{NAME_PATTERN}$")]
Model = Annotated[str, StringConstraints(min_length=1, max_length=256)]
TagKey = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]{0,63}$")]
Label = Annotated[str, StringConstraints(min_length=1, max_length=64)]
FileName = Annotated[str, StringConstraints(min_length=1, max_length=200)]
TextList = Annotated[list[Annotated[str, StringConstraints(min_length=1, max_length=500)]], Field()]
LongText = Annotated[str, StringConstraints(min_length=1, max_length=8000)]
Share = Annotated[float, Field(ge=0, le=1)]
PositiveShare = Annotated[float, Field(gt=0, le=1)]
PositiveInt = Annotated[int, Field(ge=1)]
Duration = Annotated[float, *parse_text(units.parse_duration, units.DURATION_PATTERN, "5s")]
Size = Annotated[int, *parse_text(units.parse_size, units.SIZE_PATTERN, "64MiB")]
Usd = Annotated[
    Decimal,
    BeforeValidator(units.parse_decimal_usd),
    Field(ge=0),
    number_or_text(USD_PATTERN, minimum=0),
]


PositiveUsd = Annotated[
    Usd,
    require(bool, "must be greater than 0"),
    number_or_text(rf"(?=.*[1-9]){USD_PATTERN}", exclusiveMinimum=0),
]
Day = Annotated[
    date | None,
    BeforeValidator(units.parse_day),
    WithJsonSchema({"type": "string", "format": "date", "pattern": f"^{units.DAY_PATTERN}$"}),
]
Moment = Annotated[
    datetime | None, BeforeValidator(units.parse_moment), WithJsonSchema(MOMENT_SCHEMA)
]
Zone = Annotated[str, StringConstraints(pattern=r"^[A-Za-z][A-Za-z0-9_+/-]{0,63}$")]


@cache
def get_key_descriptions(model: type[BaseModel]) -> Mapping[str, str]:
    """Return the description of each field: by default the docstring below it in the source.

    The description of a ``Field`` wins, then the one of the last base class that declares the key.
    pydantic can read them too, but for each class at each start; this is for editors and docs.
    """
    texts: dict[str, str] = {}
    for base in reversed(model.__mro__):
        annotated = inspect.get_annotations(base)
        texts = {name: text for name, text in texts.items() if name not in annotated}
        if issubclass(base, BaseModel):
            texts |= _read_key_docstrings(base.__module__).get(base.__name__, {})
    fields = model.model_fields
    described = {name: field.description for name, field in fields.items() if field.description}
    return {name: text for name, text in texts.items() if name in fields} | described


@cache
def _read_key_docstrings(module: str) -> Mapping[str, Mapping[str, str]]:
    try:
        tree = ast.parse(inspect.getsource(sys.modules[module]))
    except (KeyError, OSError, TypeError):  # the source of the module is not available
        return {}
    return {
        node.name: {
            key.target.id: inspect.cleandoc(text.value.value)
            for key, text in pairwise(node.body)
            if isinstance(key, ast.AnnAssign) and isinstance(key.target, ast.Name)
            if isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant)
            if isinstance(text.value.value, str)
        }
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
    }


class Section(BaseModel):
    """Base class of all sections of YAML files, at any depth."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, defer_build=True)
    REQUIREMENTS: ClassVar[tuple[Requirement, ...]] = ()
    """Conditions on several keys, in addition to those of the base classes."""
    SHORT_FORMS: ClassVar[tuple[tuple[type | str, str], ...]] = ()
    """Values that stand for one key: the type of its values, one of them, or the key for true."""
    FORM_MESSAGE: ClassVar[str] = ""
    """Message for a value that is neither a mapping nor a short form."""

    @classmethod
    def list_requirements(cls) -> list[Requirement]:
        """Return the requirements of the base classes, then of this class."""
        groups = [base.__dict__.get("REQUIREMENTS", ()) for base in reversed(cls.__mro__)]
        return [requirement for group in groups for requirement in group]

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """Return the schema for editors, with the requirements and the short forms."""
        schema = handler.resolve_ref_schema(handler(core))
        for name, description in get_key_descriptions(cls).items():
            key = cls.model_fields[name].alias or name
            schema["properties"][key]["description"] = description
        if required := [r.condition.schema(cls) for r in cls.list_requirements()]:
            schema["allOf"] = required
        short_forms = [
            {"const": form} if isinstance(form, str) else _get_value_schema(schema, key)
            for form, key in cls.SHORT_FORMS
        ]
        return {"anyOf": [*short_forms, schema]} if short_forms else schema

    @model_validator(mode="before")
    @classmethod
    def _expand_short_form(cls, value: Any) -> Any:
        for form, key in cls.SHORT_FORMS:
            if value == form:
                return {key: True if form == key else form}
            if type(value) is form:
                return {key: value}
        if cls.FORM_MESSAGE and not isinstance(value, (dict, cls)):
            raise ValueError(cls.FORM_MESSAGE)
        return value

    @model_validator(mode="after")
    def _check_requirements(self) -> Self:
        for message in self.iter_unmet_messages():
            raise ValueError(message)
        return self

    def iter_unmet_messages(self) -> Iterator[str]:
        """Yield the messages of requirements that are not met."""
        yield from (r.message for r in self.list_requirements() if not r.condition.test(self))


def _get_value_schema(schema: JsonSchemaValue, key: str) -> JsonSchemaValue:
    """Return the schema of a key without its description and without null."""
    value = schema["properties"][key]
    value = next((part for part in value.get("anyOf", ()) if part != {"type": "null"}), value)
    return {name: part for name, part in value.items() if name != "description"}


class Switchable(Section):
    """A section that the word ``off`` turns off."""

    off: bool = False
    """Turns it off. Short form: `off`."""

    SHORT_FORMS = (("off", "off"),)


HEADER_NAME = "[a-z0-9-]{1,64}"
HeaderName = Annotated[
    str,
    *make_pattern_annotations(HEADER_NAME, "must be a header name in lower case", "x-app"),
    *make_pattern_annotations(
        f"(?!.*(?:{CREDENTIAL_PATTERN})){HEADER_NAME}",
        "must not be a header that contains a credential",
        "x-app",
    ),
]
Digest = Annotated[
    str,
    *make_pattern_annotations(
        "[0-9a-f]{64}",
        "must be a SHA-256 in hex. Run `headrace key NAME` to create a key.",
        "0" * 64,
    ),
]
SecretRef = Annotated[
    str,
    *make_pattern_annotations(
        rf"{VARIABLE_PATTERN}|file:.+",
        "must be ${VARIABLE} or file:/path, not the secret itself",
        "${OPENAI_API_KEY}",
    ),
]

KeyRef = Annotated[
    str,
    *make_pattern_annotations(
        rf"{VARIABLE_PATTERN}|file:.+|(?:azure|google):https://\S+|aws:[a-z0-9-]+",
        "must be ${VARIABLE}, file:/path, azure:SCOPE, google:SCOPE or aws:REGION, "
        "not the secret itself",
        "${OPENAI_API_KEY}",
    ),
]
"""A secret, or a cloud whose token is used."""


@frozen
class RefersTo:
    """Annotation of a key whose values refer to a deployment, upstream, text file or secret.

    The values of ``service`` are URLs.
    """

    target_kind: ReferenceTarget


def list_referring_keys(model: type[BaseModel], target_kind: ReferenceTarget) -> list[str]:
    """Return the keys of a model whose values refer to ``target_kind``."""
    fields = model.model_fields.items()
    return [key for key, field in fields if RefersTo(target_kind) in field.metadata]


def iter_references(part: BaseModel, target_kind: ReferenceTarget) -> Iterator[tuple[str, str]]:
    for key in list_referring_keys(type(part), target_kind):
        value = getattr(part, key)
        values = value if isinstance(value, list) else [value]
        yield from ((key, item) for item in values if item is not None)


def check_url(value: str) -> str:
    """Return the URL. Raise ``ValueError`` with the reason if it is invalid."""
    try:
        parts = urlsplit(value)
        port = parts.port
    except ValueError:
        raise ValueError("must be a valid URL with a port between 1 and 65535") from None
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0:
        raise ValueError("must be an http or https URL")
    if not value.isascii() or not value.isprintable() or " " in value:
        raise ValueError("must consist of ASCII characters without spaces")
    if "@" in parts.netloc or "?" in value or "#" in value:
        raise ValueError("must not contain credentials, a query or a fragment")
    return value


Url = Annotated[
    str,
    AfterValidator(check_url),
    WithJsonSchema(_make_pattern_schema(URL_PATTERN, "https://api.example.com")),
]


def wrap_in_list(value: Any) -> Any:
    return value if isinstance(value, list) else [value]


class ItemOrList:
    """Annotation of a list that may be written as its only item."""

    def __init__(self, **keywords: Any) -> None:
        self._keywords = keywords

    def __get_pydantic_core_schema__(
        self, source: object, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        return core_schema.no_info_before_validator_function(wrap_in_list, handler(source))

    def __get_pydantic_json_schema__(
        self, core: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        schema = handler(core)
        return {"anyOf": [schema["items"], schema | self._keywords]}
