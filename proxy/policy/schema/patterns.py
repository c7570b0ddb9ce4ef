"""Patterns for tag values, matched in time that grows with the value alone.

Callers send the values, so an engine that backtracks could be made to hang the whole process by
one pattern that was written without thinking of that. Look-around and backreferences are refused.
"""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass, field

from pydantic_core import SchemaError, SchemaValidator, core_schema

MAX_VALUE = 64


def is_plain(value: str) -> bool:
    """True if a tag value is short, visible and in one Unicode form."""
    return (
        0 < len(value) <= MAX_VALUE
        and value.isprintable()
        and unicodedata.is_normalized("NFC", value)
    )


@dataclass(frozen=True, slots=True)
class TagPattern:
    """A compiled pattern. It fits plain values only, from their first character to their last."""

    text: str
    _engine: SchemaValidator

    def fits(self, value: str) -> bool:
        return is_plain(value) and self._engine.isinstance_python(value)


def compiled(text: str) -> TagPattern:
    """Compile a pattern. Raises ``ValueError`` saying what is wrong with it."""
    _engine(text)  # by itself first: its brackets must not close ours
    return TagPattern(text, _engine(f"^(?:{text})$"))


def _engine(text: str) -> SchemaValidator:
    try:
        return SchemaValidator(core_schema.str_schema(pattern=text))
    except SchemaError as error:
        last = str(error).splitlines()[-1].strip()
        reason = last.removeprefix("SchemaError: ").removeprefix("error: ").rstrip(".")
        raise ValueError(f"is not a pattern: {reason}") from None


@dataclass(frozen=True, slots=True)
class Glob:
    """A text in which ``*`` stands for any characters and ``?`` for one; it fits whole values."""

    text: str
    _engine: SchemaValidator = field(repr=False, compare=False)

    def fits(self, value: str) -> bool:
        return self._engine.isinstance_python(value)


def glob(text: str) -> Glob:
    """Compile a glob; every text is one."""
    parts = {"*": "(?s:.*)", "?": "(?s:.)"}
    return Glob(text, _engine("^" + "".join(parts.get(c) or _literal(c) for c in text) + r"\z"))


def _literal(character: str) -> str:
    return f"\\x{{{ord(character):x}}}"
