"""What an upstream says, without the credential that it was asked with, or any part of it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from string import ascii_lowercase, ascii_uppercase
from urllib.parse import urlsplit

from proxy.errors import ProxyError
from proxy.errors.words import MAX_ID, MAX_TEXT
from proxy.types import Upstream
from proxy.types.target import CREDENTIAL_WORDS

LEAST_PART = 8  # characters of a credential that tell nothing yet
STARS = "***"

_CARRIES = re.compile("|".join(CREDENTIAL_WORDS), re.IGNORECASE)
_LOWER = str.maketrans(ascii_uppercase, ascii_lowercase)


def concealed(text: str, upstream: Upstream, hosts: Iterable[str] = ()) -> str:
    """Return the beginning of an upstream's words, as long as a message may be, with stars in
    place of each part of our credential, and of ``hosts``. Case does not matter: servers change it.
    """
    text = text[: 2 * MAX_TEXT]  # so that even a part at the edge of a message is known
    plain = text.translate(_LOWER)
    parts = (*_parts(upstream), *hosts)
    spans = sorted((at, at + len(part)) for part in parts for at in _places(part, plain))
    return _starred(text, spans)


def conceal(error: ProxyError, upstream: Upstream) -> None:
    """Take our credential from all words of an upstream that pass with an error: what holds a part
    of it and should be a single word says nothing any more."""
    if error.system_text is not None:
        error.system_text = concealed(error.system_text, upstream)
    hosts = [*_hosts(upstream)]
    if error.upstream_message is not None:
        error.say(concealed(error.upstream_message, upstream, hosts))
    if error.param is not None:
        error.param = concealed(error.param, upstream, hosts)[:MAX_ID]
    error.upstream_code = _word(error.upstream_code, upstream)
    error.upstream_type = _word(error.upstream_type, upstream)
    error.findings = tuple(
        found for found in error.findings if _word(found.detector, upstream) is not None
    )


def _word(word: str | None, upstream: Upstream) -> str | None:
    return word if word is None or concealed(word, upstream) == word else None


def _hosts(upstream: Upstream) -> Iterator[str]:
    """Yield how an upstream's address may be written; a bare name such as ``vllm`` is none."""
    parts = urlsplit(upstream.base_url.lower())
    host, place = parts.hostname or "", parts.netloc.rpartition("@")[2]
    yield from (f"//{host}", f"//{place}")
    if parts.port is not None:
        yield place
    if "." in host or ":" in host:
        yield host


def _parts(upstream: Upstream) -> Iterator[str]:
    """Yield what must not be shown: each part of a credential, and other headers of ours whole."""
    secrets = [("api-key", upstream.api_key), *upstream.headers]
    for name, secret in secrets:
        value = "" if secret is None else secret.reveal().translate(_LOWER)
        if len(value) <= LEAST_PART or not _CARRIES.search(name):
            yield from filter(None, (value,))
        else:
            yield from {value[at : at + LEAST_PART] for at in range(len(value) - LEAST_PART + 1)}


def _places(part: str, text: str) -> Iterator[int]:
    at = text.find(part)
    while at >= 0:
        yield at
        at = text.find(part, at + 1)


def _starred(text: str, spans: list[tuple[int, int]]) -> str:
    pieces: list[str] = []
    past = 0
    for start, end in spans:
        if start > past or not pieces:
            pieces += [text[past:start], STARS]
        past = max(past, end)
    return "".join([*pieces, text[past:]])
