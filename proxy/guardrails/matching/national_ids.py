"""Numbers that states give to people, told by their form and their check digits."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Iterator, Sequence, Set

from proxy.frozen import frozen
from proxy.guardrails.matching.numbers import ESCAPED, DigitRun, words
from proxy.types.guard import Finding

# One in ten numbers of the right length is valid where there is one check digit: such a number
# counts if the text says what it is, or if it is written in groups as only these are.
WEAK, STRONG = 0.3, 0.7


@frozen
class Form:
    """How one kind of number looks (in RE2), which of python-stdnum's modules checks it, how much
    that proves for bare digits, and what people call it.
    """

    regex: str
    module: str
    bare: float
    called: frozenset[str]


def _form(regex: str, module: str, bare: float, called: str) -> Form:
    return Form(regex=regex, module=module, bare=bare, called=words(called))


CPR = "[0-9]{6}-?[0-9]{4}"
SSN = _form(
    "[0-9]{3}-[0-9]{2}-[0-9]{4}|[0-9]{3} [0-9]{2} [0-9]{4}|[0-9]{9}",
    "us.ssn",
    WEAK,
    "ssn ssns social security",
)
FORMS: dict[str, tuple[Form, ...]] = {
    "AR": (_form("[0-9]{2}-?[0-9]{8}-?[0-9]", "ar.cuit", WEAK, "cuit cuil"),),
    "AU": (_form("[0-9]{3} ?[0-9]{3} ?[0-9]{3}", "au.tfn", WEAK, "tfn tax"),),
    "BE": (
        _form(
            "[0-9]{2}[. ]?[0-9]{2}[. ]?[0-9]{2}[- ]?[0-9]{3}[. ]?[0-9]{2}",
            "be.nn",
            STRONG,
            "rijksregisternummer rrn insz niss",
        ),
    ),
    "BG": (_form("[0-9]{10}", "bg.egn", WEAK, "егн egn"),),
    "BR": (_form(r"[0-9]{3}\.?[0-9]{3}\.?[0-9]{3}-?[0-9]{2}", "br.cpf", STRONG, "cpf"),),
    "CA": (_form("[0-9]{3}[ -]?[0-9]{3}[ -]?[0-9]{3}", "ca.sin", WEAK, "sin insurance nas"),),
    "CH": (_form(r"756\.?[0-9]{4}\.?[0-9]{4}\.?[0-9]{2}", "ch.ssn", STRONG, "ahv avs"),),
    "CL": (_form(r"[0-9]{1,2}\.?[0-9]{3}\.?[0-9]{3}-[0-9Kk]", "cl.rut", STRONG, "rut run"),),
    "CN": (_form("[1-9][0-9]{16}[0-9Xx]", "cn.ric", STRONG, "身份证 身份证号 身份证号码"),),
    "CZ": (_form("[0-9]{6}/[0-9]{3,4}", "cz.rc", STRONG, "rodné rč"),),
    "DE": (
        _form(
            "[1-9][0-9] ?[0-9]{3} ?[0-9]{3} ?[0-9]{3}",
            "de.idnr",
            WEAK,
            "idnr steuer steueridentifikationsnummer identifikationsnummer tin",
        ),
    ),
    "DK": (_form(CPR, "dk.cpr", WEAK, "cpr personnummer"),),
    "EE": (_form("[1-8][0-9]{10}", "ee.ik", WEAK, "isikukood"),),
    "ES": (
        _form("[0-9]{8}-?[A-Za-z]", "es.dni", STRONG, "dni nif"),
        _form("[XYZxyz]-?[0-9]{7}-?[A-Za-z]", "es.nie", STRONG, "nie"),
    ),
    "FI": (_form("[0-9]{6}[-+A-FU-Ya-f][0-9]{3}[0-9A-Za-z]", "fi.hetu", STRONG, "hetu"),),
    "FR": (
        _form(
            "[12] ?[0-9]{2} ?[0-9]{2} ?(?:[0-9]{2}|2[ABab]) ?[0-9]{3} ?[0-9]{3} ?[0-9]{2}",
            "fr.nir",
            STRONG,
            "nir sécurité sociale",
        ),
    ),
    "GB": (_form("[0-9]{3}[ -]?[0-9]{3}[ -]?[0-9]{4}", "gb.nhs", WEAK, "nhs"),),
    "HR": (_form("[0-9]{11}", "hr.oib", WEAK, "oib"),),
    "IE": (_form("[0-9]{7}[A-Wa-w][A-Ia-iWw]?", "ie.pps", STRONG, "pps ppsn"),),
    "IL": (_form("[0-9]{7,8}-?[0-9]", "il.idnr", WEAK, "teudat zehut זהות"),),
    "IN": (
        _form("[2-9][0-9]{3}[ -]?[0-9]{4}[ -]?[0-9]{4}", "in_.aadhaar", WEAK, "aadhaar uidai"),
        _form("[A-Za-z]{5}[0-9]{4}[A-Za-z]", "in_.pan", WEAK, "pan"),
    ),
    "IT": (
        _form(
            "[A-Za-z]{6}[0-9]{2}[A-Za-z][0-9]{2}[A-Za-z][0-9]{3}[A-Za-z]",
            "it.codicefiscale",
            STRONG,
            "codice fiscale cf",
        ),
    ),
    "KR": (_form("[0-9]{6}-?[0-9]{7}", "kr.rrn", STRONG, "주민등록번호 rrn"),),
    "MX": (_form("[A-Za-z]{4}[0-9]{6}[A-Za-z]{6}[0-9A-Za-z][0-9]", "mx.curp", STRONG, "curp"),),
    "MY": (_form("[0-9]{6}-[0-9]{2}-[0-9]{4}", "my.nric", STRONG, "nric mykad"),),
    "NL": (_form(r"[0-9]{4}\.?[0-9]{2}\.?[0-9]{3}", "nl.bsn", WEAK, "bsn burgerservicenummer"),),
    "NO": (_form("[0-9]{6} ?[0-9]{5}", "no.fodselsnummer", STRONG, "fødselsnummer"),),
    "PL": (_form("[0-9]{11}", "pl.pesel", WEAK, "pesel"),),
    "PT": (_form("[1-3][0-9]{2} ?[0-9]{3} ?[0-9]{3}", "pt.nif", WEAK, "nif contribuinte"),),
    "RO": (_form("[1-9][0-9]{12}", "ro.cnp", WEAK, "cnp"),),
    "SE": (_form("(?:[12][0-9])?[0-9]{6}[-+]?[0-9]{4}", "se.personnummer", WEAK, "personnummer"),),
    "TH": (_form("[1-8]-?[0-9]{4}-?[0-9]{5}-?[0-9]{2}-?[0-9]", "th.pin", WEAK, "ประชาชน"),),
    "TR": (_form("[1-9][0-9]{10}", "tr.tckimlik", STRONG, "kimlik tckn"),),
    "ZA": (_form("[0-9]{6} ?[0-9]{4} ?[0-9]{3}", "za.idnr", WEAK, "identity id"),),
}
LINE_END = r"\\[nrt]"  # written as two letters, the second of which is no letter of a code
SEPARATED = re.compile(r"[0-9A-Za-z][ ./-][0-9A-Za-z]")
# What makes it a part of a longer number, or of a code.
BEFORE = re.compile(r"\w[-./]$|[0-9] $")
AFTER = re.compile(r"[-/]\w")
MORE_DIGITS = re.compile(" [0-9]")


class NationalId:
    """Finds one kind of number in the places where its form was seen."""

    __slots__ = ("_bare", "_called", "_kind", "_valid", "regex")

    def __init__(self, kind: str, form: Form) -> None:
        self._kind, self._bare, self._called = kind, form.bare, form.called
        self.regex = rf"(?:\b|{LINE_END})(?:{form.regex})\b"
        # One module a number: only those are read that a policy asks for.
        valid: Callable[[str], bool] = importlib.import_module(f"stdnum.{form.module}").is_valid
        self._valid = valid

    def find(self, part: DigitRun) -> Iterator[Finding]:
        """Find the number that the part is, if its check digits are right."""
        if part.raw[:2] in ESCAPED:
            part = DigitRun(part.text, part.start + 2, part.end)
        raw = part.raw.upper()
        after = part.text[part.end : part.end + 2]
        if not part.alone or BEFORE.search(part.text[max(0, part.start - 2) : part.start]):
            return
        if AFTER.match(after) or (" " in raw and MORE_DIGITS.match(after)):
            return
        if not self._valid(raw.replace(" ", "-") if self._kind == "ssn" else raw):
            return
        yield Finding(
            start=part.start, end=part.end, kind=self._kind, score=self._score(part, self._called)
        )

    def _score(self, part: DigitRun, called: Set[str]) -> float:
        if part.is_named(called):
            return 1.0
        return 0.8 if SEPARATED.search(part.raw) else self._bare


def national_ids(kind: str) -> Sequence[NationalId]:
    """What finds ``ssn``, or the ``id_XX`` of a country; KeyError where there is none."""
    forms = (SSN,) if kind == "ssn" else FORMS[kind.removeprefix("id_")]
    return [NationalId(kind, form) for form in forms]
