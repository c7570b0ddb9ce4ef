"""Properties that distinguish credentials from names, identifiers and digests."""

from __future__ import annotations

import math
import re
from base64 import b64decode
from binascii import Error
from collections import Counter

from proxy.guards.matching.re2set import Span

MIN_ENTROPY = 3.7
# Adjacent characters of different classes, as a share of all characters. Names written in camel
# case, with versions or with dates stay below both, and random characters are above one of them.
MIN_DIGIT_CHANGES, MIN_CHANGES = 0.17, 0.36

MAX_BYTES, NAME_BYTES = 256, 40  # of a token or a path before it; of a name before it

_HEX = re.compile(rb"(?i)[0-9a-f]+(?:[_-][0-9a-f]+)*")
_UUID = re.compile(rb"(?i)[0-9a-z]{8}(?:-[0-9a-z]{4}){3}-[0-9a-z]{12}")
_TERM = re.compile(
    rb"(?i)(?:base|utf|iso|sha|md|rfc|u?int|x|win|ipv|oauth|http|bcrypt|argon|pbkdf|hmac|aes|str)"
    rb"[-_]?[0-9].*|[0-9.,]+(?:-?[a-z]{1,12}|[-/][0-9]+.*)|v?[0-9]+(?:\.[0-9]+)+.*"
)
_CODE = re.compile(rb"[(\[{$%\\/]|^[a-z_]\w*(?:\.[a-z_]\w*)+|::|->|=>|&#|@.*\.")
_PREFIX = re.compile(rb"(?:(?:[a-z]+|[A-Z]+|[A-Z][a-z]+)[_.-])+")
_LONG_RUN = re.compile(rb"[A-Za-z0-9]{11,}")
_DIGIT_CHANGE = re.compile(rb"(?=[A-Za-z][0-9]|[0-9][A-Za-z])")
_CASE_CHANGE = re.compile(rb"(?=[a-z][A-Z]|[A-Z][a-z])")
# Prefixes of objects that APIs, logs and traces name by a random identifier.
_OBJECTS = re.compile(
    rb"(?i)(?:^|[_.-])(?:id|uid|call|chatcmpl|cmpl|msg|message|resp|response|req|request|run|step"
    rb"|thread|asst|assistant|file|batch|org|proj|project|item|evt|event|trace|span|job|task|node"
    rb"|user|usr|cus|customer|acct|account|sub|price|prod|order|invoice|charge|session|conv|chat"
    rb"|toolu|tool|image|img|doc|page|block|chunk|commit|build|rev|sha|md5|hash|etag|nonce)[_.-]$"
)
# A name that declares an identifier or a digest, or a separator.
_NAMED = re.compile(
    rb"(?i)(?:id|sha-?[0-9]{0,3}|md5|hash|digest|checksum|fingerprint|integrity|etag|cursor|marker"
    rb"|next_?token)[\"']?[ \t]{0,2}[:=][ \t]{0,2}[\"']?$|[\\#+]$"
)
_PATH = re.compile(rb"(?:^|[^\w:/.-])(?:\w:)?[\w./@~-]*/$")  # not part of a URL

# Continuations of a token: a host name, an address, base64, or a call.
_CONTINUATION = re.compile(rb"[+=(@]|\.[\w-]")


def entropy(data: bytes) -> float:
    """Return the Shannon entropy in bits per byte, or 0 for no data."""
    size = len(data)
    return -sum(n / size * math.log2(n / size) for n in Counter(data).values())


def is_generated_token(data: bytes, span: Span) -> bool:
    """Return True if a word prefix is followed by random characters that are not an identifier."""
    start, end = span
    token, lead = data[start:end], _PREFIX.match(data, start, end)
    if lead is None or len(token) > MAX_BYTES or _CONTINUATION.match(data, end):
        return False
    if _OBJECTS.search(lead[0]) or _UUID.search(token):
        return False
    if _NAMED.search(data, max(0, start - NAME_BYTES), start):
        return False
    if data[start - 1 : start] == b"/" and _PATH.search(data, max(0, start - MAX_BYTES), start):
        return False
    body = data[lead.end() : end]
    return not _HEX.fullmatch(body) and entropy(body) >= MIN_ENTROPY and _is_random(body)


def _is_random(body: bytes) -> bool:
    """Return True if a value has a long alphanumeric run and changes its character class often."""
    size = len(body)
    digits = len(_DIGIT_CHANGE.findall(body))
    changes = digits + len(_CASE_CHANGE.findall(body))
    return _LONG_RUN.search(body) is not None and (
        digits >= MIN_DIGIT_CHANGES * size or (digits > 0 and changes >= MIN_CHANGES * size)
    )


def is_password(data: bytes, span: Span) -> bool:
    """Return True if a value after "the password is" contains letters and digits, or only
    digits."""
    value = data[slice(*span)]
    if not re.search(rb"[0-9]", value) or _TERM.fullmatch(value) or _CODE.search(value):
        return False
    return value.isdigit() or re.search(rb"[A-Za-z]", value) is not None


def is_basic_credential(data: bytes, span: Span) -> bool:
    """Return True if a value is the base64 of a user and a password."""
    try:
        user, colon, password = b64decode(data[slice(*span)], validate=True).decode().partition(":")
    except (Error, ValueError):
        return False
    return bool(colon and password) and (user + password).isprintable()


def is_literal(data: bytes, span: Span) -> bool:
    """Return True unless a value is an expression of a program or a template."""
    return not _CODE.search(data[slice(*span)])


PROPERTIES = {
    "basic_credential": is_basic_credential,
    "generated_token": is_generated_token,
    "literal": is_literal,
    "password": is_password,
}
"""Properties of values, by their name in a rule file."""
