"""Numbers that states give to people, told by their form and their check digits."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Iterator, Sequence

from proxy.frozen import frozen
from proxy.guardrails.matching.numbers import BEFORE as CONTEXT
from proxy.guardrails.matching.numbers import ESCAPED, DigitRun, words
from proxy.types.guard import Finding

# One in ten numbers of the right length is valid where there is one check digit. A short one needs
# groups as only these numbers have, or a name.
WEAK, STRONG, GROUPED, NAMED = 0.3, 0.7, 0.8, 1.0
SHORT = "[0-9]{1,10}"


@frozen
class Form:
    """One kind of number."""

    regex: str
    """RE2 pattern."""
    module: str
    """Module of python-stdnum with the check digits, empty if the number has none."""
    names: frozenset[str]
    unsure: str = SHORT
    """Pattern of ungrouped numbers that need a name."""


def _form(regex: str, module: str, names: str, unsure: str = SHORT) -> Form:
    return Form(regex=regex, module=module, names=words(names), unsure=unsure)


CPR = "[0-9]{6}-?[0-9]{4}"
EPOCH = "1[0-9]{12}"  # may be a time in milliseconds
NINO_SECOND = "A-CEGHJ-NPR-TW-Z"
NINO_PREFIX = (
    f"(?:[ACEHJLMOPRSWXY][{NINO_SECOND}]|B[A-CEHJ-NPR-TW-Z]|G[ACEGHJ-NPR-TW-Z]"
    "|[KT][A-CEGHJ-MPR-TW-Z]|N[A-CEGHJLMNPRSW-Z]|Z[A-CEGHJ-NPR-TW-Y])"
)
SSN = _form(
    "[0-9]{3}-[0-9]{2}-[0-9]{4}|[0-9]{3} [0-9]{2} [0-9]{4}|[0-9]{9}",
    "us.ssn",
    "ssn ssns social security",
)
FORMS: dict[str, tuple[Form, ...]] = {
    "AR": (_form("[0-9]{2}-?[0-9]{8}-?[0-9]", "ar.cuit", "cuit cuil"),),
    "AU": (_form("[0-9]{3} ?[0-9]{3} ?[0-9]{3}", "au.tfn", "tfn tax"),),
    "BE": (
        _form(
            "[0-9]{2}[. ]?[0-9]{2}[. ]?[0-9]{2}[- ]?[0-9]{3}[. ]?[0-9]{2}",
            "be.nn",
            "rijksregisternummer rrn insz niss",
        ),
    ),
    "BG": (_form("[0-9]{10}", "bg.egn", "егн egn"),),
    "BR": (_form(r"[0-9]{3}\.?[0-9]{3}\.?[0-9]{3}-?[0-9]{2}", "br.cpf", "cpf"),),
    "CA": (_form("[0-9]{3}[ -]?[0-9]{3}[ -]?[0-9]{3}", "ca.sin", "sin insurance nas"),),
    "CH": (_form(r"756\.?[0-9]{4}\.?[0-9]{4}\.?[0-9]{2}", "ch.ssn", "ahv avs"),),
    "CL": (_form(r"[0-9]{1,2}\.?[0-9]{3}\.?[0-9]{3}-[0-9Kk]", "cl.rut", "rut run"),),
    "CN": (_form("[1-9][0-9]{16}[0-9Xx]", "cn.ric", "身份证 身份证号 身份证号码"),),
    "CZ": (_form("[0-9]{6}/[0-9]{3,4}", "cz.rc", "rodné rč"),),
    "DE": (
        _form(
            "[1-9][0-9] ?[0-9]{3} ?[0-9]{3} ?[0-9]{3}",
            "de.idnr",
            "idnr steuer steueridentifikationsnummer identifikationsnummer tin",
        ),
    ),
    "DK": (_form(CPR, "dk.cpr", "cpr personnummer"),),
    "EE": (_form("[1-8][0-9]{10}", "ee.ik", "isikukood"),),
    "ES": (
        _form("[0-9]{8}-?[A-Za-z]", "es.dni", "dni nif"),
        _form("[XYZxyz]-?[0-9]{7}-?[A-Za-z]", "es.nie", "nie"),
    ),
    "FI": (_form("[0-9]{6}[-+A-FU-Ya-f][0-9]{3}[0-9A-Za-z]", "fi.hetu", "hetu"),),
    "FR": (
        _form(
            "[12] ?[0-9]{2} ?[0-9]{2} ?(?:[0-9]{2}|2[ABab]) ?[0-9]{3} ?[0-9]{3} ?[0-9]{2}",
            "fr.nir",
            "nir sécurité sociale",
        ),
    ),
    "GB": (
        _form("[0-9]{3}[ -]?[0-9]{3}[ -]?[0-9]{4}", "gb.nhs", "nhs"),
        _form(rf"{NINO_PREFIX}(?: ?[0-9]{{2}}){{3}} ?[A-D]", "", "nino insurance"),
    ),
    "HR": (_form("[0-9]{11}", "hr.oib", "oib"),),
    "IE": (_form("[0-9]{7}[A-Wa-w][A-Ia-iWw]?", "ie.pps", "pps ppsn"),),
    "IL": (_form("[0-9]{7,8}-?[0-9]", "il.idnr", "teudat zehut זהות"),),
    "IN": (
        _form(
            "[2-9][0-9]{3}[ -]?[0-9]{4}[ -]?[0-9]{4}",
            "in_.aadhaar",
            "aadhaar uidai आधार আধার ஆதார் ఆధార్ આધાર ಆಧಾರ್ ആധാർ ਆਧਾਰ",
            "20[0-9]{10}",  # may be a timestamp
        ),
        _form("[A-Za-z]{5}[0-9]{4}[A-Za-z]", "in_.pan", "pan"),
    ),
    "IT": (
        _form(
            "[A-Za-z]{6}[0-9]{2}[A-Za-z][0-9]{2}[A-Za-z][0-9]{3}[A-Za-z]",
            "it.codicefiscale",
            "codice fiscale cf",
        ),
    ),
    "KR": (_form("[0-9]{6}-?[0-9]{7}", "kr.rrn", "주민등록번호 rrn"),),
    "MX": (_form("[A-Za-z]{4}[0-9]{6}[A-Za-z]{6}[0-9A-Za-z][0-9]", "mx.curp", "curp"),),
    "MY": (_form("[0-9]{6}-[0-9]{2}-[0-9]{4}", "my.nric", "nric mykad"),),
    "NL": (_form(r"[0-9]{4}\.?[0-9]{2}\.?[0-9]{3}", "nl.bsn", "bsn burgerservicenummer"),),
    "NO": (_form("[0-9]{6} ?[0-9]{5}", "no.fodselsnummer", "fødselsnummer"),),
    "PL": (_form("[0-9]{11}", "pl.pesel", "pesel"),),
    "PT": (_form("[1-3][0-9]{2} ?[0-9]{3} ?[0-9]{3}", "pt.nif", "nif contribuinte"),),
    "RO": (_form("[1-9][0-9]{12}", "ro.cnp", "cnp"),),
    "SE": (_form("(?:[12][0-9])?[0-9]{6}[-+]?[0-9]{4}", "se.personnummer", "personnummer"),),
    "TH": (_form("[1-8]-?[0-9]{4}-?[0-9]{5}-?[0-9]{2}-?[0-9]", "th.pin", "ประชาชน", EPOCH),),
    "TR": (_form("[1-9][0-9]{10}", "tr.tckimlik", "kimlik tckn"),),
    "ZA": (_form("[0-9]{6} ?[0-9]{4} ?[0-9]{3}", "za.idnr", "identity id"),),
}
LINE_END = r"\\[nrt]"  # written as two letters, the second of which is no letter of a code
SEPARATED = re.compile(r"[0-9A-Za-z][ ./-][0-9A-Za-z]")
# What makes it a part of a longer number, or of a code.
BEFORE = re.compile(r"\w[-./]\Z|[0-9] \Z")
AFTER = re.compile(r"[-/]\w")
MORE_DIGITS = re.compile(" [0-9]")
# What forms and keys call a number of any country.
ANY_NAME = re.compile(
    r"(?<![a-z])(?:(?:national|personal|tax(?:payer)?|fiscal|citizen|identity|identification)[ _-]?"
    r"(?:id|identi[a-z]+|insurance|number|no|code)|id[ _-]?(?:number|no|card)|tin)(?![a-z])",
    re.IGNORECASE,
)


def validator(form: Form) -> Callable[[str], bool]:
    """Load what checks a number of this form. Only modules that a policy needs are imported."""
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
    """Finds one kind of number in the places where its form was seen."""

    __slots__ = ("_is_valid", "_kind", "_names", "_unsure", "regex")

    def __init__(self, kind: str, form: Form) -> None:
        self._kind, self._names, self._is_valid = kind, form.names, validator(form)
        self._unsure = re.compile(form.unsure)
        self.regex = rf"(?:\b|{LINE_END})(?:{form.regex})\b"

    def find(self, part: DigitRun) -> Iterator[Finding]:
        """Find the number that the part is, if its check digits are right."""
        if part.raw[:2] in ESCAPED:
            part = DigitRun(part.text, part.start + 2, part.end)
        after = part.text[part.end : part.end + 2]
        if not part.alone or BEFORE.search(part.text[max(0, part.start - 2) : part.start]):
            return
        if AFTER.match(after) or (" " in part.raw and MORE_DIGITS.match(after)):
            return
        if self._is_valid(part.raw):
            yield Finding(start=part.start, end=part.end, kind=self._kind, score=self._score(part))

    def _score(self, part: DigitRun) -> float:
        before = part.text[max(0, part.start - CONTEXT) : part.start]
        if part.is_named(self._names) or ANY_NAME.search(before):
            return NAMED
        if SEPARATED.search(part.raw):
            return GROUPED
        return WEAK if self._unsure.fullmatch(part.raw) else STRONG


def national_ids(kind: str) -> Sequence[NationalId]:
    """What finds ``ssn``, or the ``id_XX`` of a country; KeyError where there is none."""
    forms = (SSN,) if kind == "ssn" else FORMS[kind.removeprefix("id_")]
    return [NationalId(kind, form) for form in forms]
