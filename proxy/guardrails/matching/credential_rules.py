"""Rules for credentials that the rules of gitleaks do not cover: by a property, or by context."""

from __future__ import annotations

# ruff: noqa: RUF001  # marks of Chinese sentences
from collections.abc import Callable, Sequence

from proxy.guardrails.matching.credential_values import (
    is_basic_credential,
    is_generated_token,
    is_literal,
    is_password,
)
from proxy.guardrails.matching.gitleaks import GUESSED, Allowed, SecretRule
from proxy.guardrails.matching.key_shapes import KEY_SHAPES
from proxy.guardrails.matching.re2set import Pattern, Span

PLACEHOLDER = (
    r"(?i)^(?:change_?(?:it|me)|example|guest|pass(?:word)?|postgres|pwd|root|secret|test|token|user"
    r"|(?:your|my)[_-]?.*|\*+|x+|\.+)\W*$|^[$%{<\[(]"
)
PLACEHOLDERS = Allowed("secret", [Pattern(PLACEHOLDER, late=True)])

GENERIC = r"(?:^|\\[nrt]|[^\w-])([A-Za-z]{2,20}[_.-][A-Za-z0-9_-]{24,})"
IS = r"(?:is|was|ist|war|lautet|es|era)(?: now| jetzt| ahora)?\b:?"
OF = r"(?: (?:for|of|to|für|zu|de|del|para)(?: [\w.@-]{1,30}){1,3})?"
PASSWORD = (
    r"\b(?:pass(?:word|phrase|code)|pwd|passwort|kennwort|contrase(?:ñ|n)a|clave)\b['\"]?"
    rf"{OF}[ \t]{{0,2}}(?:{IS}|[:=：])|(?:密码|密碼|口令)[ \t]{{0,2}}(?:是|为|為|:|：|=)"
)
KEY = (
    r"(?:\b(?:(?:api|access|secret|auth|bearer)[ _-]?(?:key|token)|token|(?:api-?)?schlüssel"
    rf"|clave(?: de (?:la )?api)?)\b{OF}[ \t]{{0,2}}{IS}"
    r"|(?:密钥|密鑰|令牌)[ \t]{0,2}(?:是|为|為))"
)
QUOTED = r"[ \t]{0,2}(?:['\"\x60“„«「]|\*\*)?"
CHARACTER = r"[^\s;&'\"\x60<>“”«»「」，。；、]"
LAST = r"[^\s;&'\"\x60<>“”«»「」，。；、.,:)\]}*]"
VALUE = r"([^\s;&'\"\x60<>#]{3,128})"


def own_rules() -> Sequence[SecretRule]:
    """Return the rules by shape, by property and by context."""
    shapes = [_rule(shape.kind, shape.pattern, shape.least_entropy) for shape in KEY_SHAPES]
    return [*shapes, *_in_prose(), *_in_addresses(), *_in_commands()]


def _in_prose() -> Sequence[SecretRule]:
    return [
        _rule("generic-token", GENERIC, accepts=is_generated_token, score=GUESSED),
        _rule(
            "password",
            rf"(?i)(?:{PASSWORD}){QUOTED}({CHARACTER}{{5,127}}{LAST})",
            accepts=is_password,
            score=GUESSED,
        ),
        _rule(
            "stated-key",
            rf"(?i){KEY}{QUOTED}({CHARACTER}{{15,255}}{LAST})",
            least_entropy=3.0,
            accepts=is_password,
            score=GUESSED,
        ),
    ]


def _in_addresses() -> Sequence[SecretRule]:
    return [
        _rule(
            "url-credentials",
            r"(?i)\b[a-z][a-z0-9+.-]{1,20}://[^\s:/?#@\[\]\"'<>\x60]{0,64}"
            r":([^\s/?#\"'<>\x60]{3,128})@[\w\[]",
        ),
        _rule(
            "oracle-url-password",
            r"(?i)\bjdbc:oracle:[a-z]{1,10}:[^\s/@:'\"]{1,64}/([^\s/@'\"]{3,128})@",
        ),
        _rule(
            "connection-password",
            rf"(?i);[ \t]?(?:password|pwd)={VALUE}",
            accepts=is_literal,
        ),
        _rule(
            "connection-password",
            rf"(?i)(?:\b|[?&])(?:password|pwd)={VALUE};[ \t]?[a-z][\w ]{{1,30}}=",
            accepts=is_literal,
        ),
        _rule("query-password", rf"(?i)[?&](?:password|passwd|pwd)={VALUE}", accepts=is_literal),
        _rule(
            "connection-key",
            r"(?i)\b(?:AccountKey|SharedAccessKey|SharedSecret|AccessKey)=([a-z0-9+/]{30,120}={0,2})",
            least_entropy=3.5,
        ),
        _rule(
            "azure-sas-signature",
            r"(?i)[?&;]sig=([a-z0-9+/%]{40,120}(?:=|%3d))",
            least_entropy=3.5,
        ),
    ]


def _in_commands() -> Sequence[SecretRule]:
    return [
        _rule(
            "netrc-password",
            r"(?i)\bmachine\s{1,8}\S{1,100}\s{1,8}login\s{1,8}\S{1,64}\s{1,8}password\s{1,8}(\S{3,128})",
        ),
        _rule(
            "basic-credentials",
            r"(?i)\bbasic[ \t]{1,4}([a-z0-9+/]{8,400}={0,2})(?:[^\w+/=]|$)",
            accepts=is_basic_credential,
        ),
        _rule(
            "curl-password",
            r"[\s\x60](?:-[a-zA-Z]{0,5}u|--(?:proxy-)?user)[= \t]{0,5}['\"]?[^\s:'\"\x60]{0,64}"
            r":([^\s'\"\x60<>]{2,128}[^\s'\"\x60<>,.;:!?)\]}])",
            least_entropy=2.0,
            keywords=(b"curl",),
        ),
        _rule(
            "aws-secret-access-key",
            r"(?i)(?:aws[\w.-]{0,10}secret|secret[_-]?access[_-]?key)[\w.-]{0,20}[\s'\"]{0,3}"
            r"[:=,][>\s'\"=]{0,5}([a-z0-9/+]{40})(?:[^a-z0-9/+=]|$)",
            least_entropy=3.5,
        ),
        _rule(
            "authorization-header",
            r"(?i)\bauthorization['\"]?[ \t]{0,4}[:=,][ \t'\"]{0,5}(?:basic|bearer|token)[ \t]{1,4}"
            r"([\w~@.+/-]{16,600}={0,2})",
            least_entropy=3.0,
        ),
    ]


def _rule(
    kind: str,
    pattern: str,
    least_entropy: float = 0.0,
    keywords: Sequence[bytes] = (),
    accepts: Callable[[bytes, Span], bool] | None = None,
    score: float = 1.0,
) -> SecretRule:
    return SecretRule(
        kind=kind,
        pattern=pattern,
        found=Pattern(pattern, late=True),
        keywords=keywords,
        least_entropy=least_entropy,
        group=1,
        allowed=[PLACEHOLDERS],
        accepts=accepts,
        score=score,
    )
