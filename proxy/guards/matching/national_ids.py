"""Finds national identification numbers by their format and check digits."""

from __future__ import annotations

import importlib
import re
import tomllib
from collections.abc import Callable, Iterator, Sequence

from proxy.guards.matching.numbers import CHARS_BEFORE as CONTEXT
from proxy.guards.matching.numbers import DATA, ESCAPED, DigitRun, word_set
from proxy.runtime.frozen import frozen
from proxy.types.guard import Finding

# One check digit accepts one in ten random numbers, so short numbers need groups or a name.
WEAK_SCORE, STRONG_SCORE, GROUPED_SCORE, NAMED_SCORE = 0.3, 0.7, 0.8, 1.0
SHORT = "[0-9]{1,10}"


@frozen
class Form:
    """Format of one kind of number, from `data/national_ids.toml`."""

    pattern: str
    names: str
    module: str = ""
    unsure: str = SHORT


FORMS = {
    code: tuple(Form(**form) for form in forms)
    for code, forms in tomllib.loads((DATA / "national_ids.toml").read_text("utf-8")).items()
}
(SSN,) = FORMS.pop("ssn")
LINE_END = r"\\[nrt]"  # escaped white space, whose letter belongs to no code
SEPARATED = re.compile(r"[0-9A-Za-z][ ./-][0-9A-Za-z]")
# Context that makes a match part of a longer number or a code.
CODE_BEFORE = re.compile(r"\w[-./]\Z|[0-9] \Z")
CODE_AFTER = re.compile(r"[-/]\w")
MORE_DIGITS = re.compile(" [0-9]")
# Names of numbers of any country in forms and keys.
ANY_NAME = re.compile(
    r"(?<![a-z])(?:(?:national|personal|tax(?:payer)?|fiscal|citizen|identity|identification)[ _-]?"
    r"(?:id|identi[a-z]+|insurance|number|no|code)|id[ _-]?(?:number|no|card)|tin)(?![a-z])",
    re.IGNORECASE,
)


def validator(form: Form) -> Callable[[str], bool]:
    """Return the check of a format. Imports only the required module of python-stdnum."""
    checks = importlib.import_module(f"stdnum.{form.module}").is_valid if form.module else bool

    def is_valid(raw: str) -> bool:
        if raw not in (raw.upper(), raw.lower()):  # as in 2176792kB
            return False
        try:
            return bool(checks(raw.upper().replace(" ", "")))
        except LookupError:  # python-stdnum 2.2 fails for some places in China
            return False

    return is_valid


class NationalId:
    """Finds one kind of number among the matches of its pattern."""

    __slots__ = ("_is_valid", "_kind", "_names", "_unsure", "regex")

    def __init__(self, kind: str, form: Form) -> None:
        self._kind, self._names, self._is_valid = kind, word_set(form.names), validator(form)
        self._unsure = re.compile(form.unsure)
        self.regex = rf"(?:\b|{LINE_END})(?:{form.pattern})\b"

    def find(self, part: DigitRun) -> Iterator[Finding]:
        if part.raw[:2] in ESCAPED:
            part = DigitRun(part.text, part.start + 2, part.end)
        following = part.text[part.end : part.end + 2]
        if not part.is_isolated or CODE_BEFORE.search(
            part.text[max(0, part.start - 2) : part.start]
        ):
            return
        if CODE_AFTER.match(following) or (" " in part.raw and MORE_DIGITS.match(following)):
            return
        if self._is_valid(part.raw):
            yield Finding(start=part.start, end=part.end, kind=self._kind, score=self._score(part))

    def _score(self, part: DigitRun) -> float:
        preceding = part.text[max(0, part.start - CONTEXT) : part.start]
        if part.is_named(self._names) or ANY_NAME.search(preceding):
            return NAMED_SCORE
        if SEPARATED.search(part.raw):
            return GROUPED_SCORE
        return WEAK_SCORE if self._unsure.fullmatch(part.raw) else STRONG_SCORE


def national_ids(kind: str) -> Sequence[NationalId]:
    """Return the detectors of ``ssn`` or ``id_XX``, where XX is a country. Raises ``KeyError``."""
    forms = (SSN,) if kind == "ssn" else FORMS[kind.removeprefix("id_")]
    return [NationalId(kind, form) for form in forms]
