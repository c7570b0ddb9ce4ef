"""What clients that were written for other gateways say in their headers, in any dialect.

A header with a meaning here is obeyed, ours before theirs; what only describes the call is a
property, which stands in its log line and on its span and decides nothing. Of all others the
client is told once that they are ignored: they never choose an upstream, a price or a retry.

``GET /model/info`` is the list of models as LiteLLM's clients read it: where a model is asked for,
under which name there and for how much is the policy's to know.

Sources: LiteLLM's page on models; the pages on request headers of LiteLLM, Helicone, OpenRouter and
Cloudflare's AI Gateway.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Literal

import orjson

from proxy.dialects.base import Headers
from proxy.dialects.counting import read_distinct
from proxy.dialects.request_headers import MAX_TIMEOUT_S, Tag, bad_header, checked_tags
from proxy.errors.words import (
    MAX_ID,
    MAX_NAME,
    MAX_WORD,
    Word,
    ascii_word,
    first_items,
    listed,
    word,
)
from proxy.types import Call, Json, RequestHead

Meaning = Literal["user", "session", "tags", "seconds", "milliseconds", "metadata", "cache"]
Property = tuple[Word, Word]

MEANINGS: dict[str, Meaning] = {
    "x-litellm-end-user-id": "user",
    "x-litellm-customer-id": "user",
    "x-litellm-tags": "tags",
    "x-litellm-timeout": "seconds",
    "x-litellm-session-id": "session",
    "x-litellm-spend-logs-metadata": "metadata",
    "helicone-user-id": "user",
    "helicone-session-id": "session",
    "helicone-cache-enabled": "cache",
    "cf-aig-metadata": "metadata",
    "cf-aig-request-timeout": "milliseconds",
    "cf-aig-skip-cache": "cache",
}
"""What a header means here. Those of the cache are read where it is asked: ``CacheControl``."""

PROPERTIES: dict[str, str] = {
    "helicone-session-name": "session-name",
    "helicone-session-path": "session-path",
    "http-referer": "http-referer",
    "x-title": "x-title",
    "x-openrouter-title": "x-title",
}
"""Headers that describe the application, by the name of the property that each is."""

OWN = "x-headrace-properties"
NAMED = "helicone-property-"  # the rest of the name is that of the property
PREFIXES = ("x-litellm-", "helicone-", "cf-aig-")
"""Of which headers a client is told where they mean nothing here."""
MARKS = re.compile("\n(?:" + "|".join((*PREFIXES, *PROPERTIES, OWN)) + ")")
"""What is in the joined names of headers if any of them is of another gateway."""
INFO_PATHS = ("/model/info", "/v1/model/info")
_SIGN = re.compile("[=:]")
_NUMBER = re.compile(r"[0-9]{1,8}(?:\.[0-9]{1,6})?")


def read_foreign_headers(headers: Headers, head: RequestHead) -> RequestHead:
    """Return the head with what the headers of other gateways add to it. Those of the head are
    read, of which none has the caller's key: properties are logged. ``headers`` are all that came.

    Raises ``BadRequest`` for a user, tags and times that cannot be read, as these decide something.
    """
    ignored = sorted(_without_meaning(headers))
    headers = head.headers
    meant = {name: MEANINGS[name] for name in headers if name in MEANINGS}
    warning = f"headers ignored because the policy decides: {listed(ignored)}"
    session = _first("session", headers, meant)
    return replace(
        head,
        tags=head.tags + _tags(headers, meant),
        user=head.user or _user(headers, meant),
        session=word(headers[session], MAX_ID) if session else None,
        timeout_s=_timeout_s(headers, meant) if head.timeout_s is None else head.timeout_s,
        properties=tuple(first_items(_properties(headers, meant))),
        warnings=(*head.warnings, *([warning] if ignored else ())),
    )


def read_metadata_tags(head: RequestHead, body: Json) -> tuple[RequestHead, Json]:
    """Return the head with the tags that clients of LiteLLM say in ``metadata.tags``, and the body
    without them: to upstreams ``metadata`` are texts alone. Both are the same where there are none.

    Raises ``BadRequest`` for too many, and for one that is too long.
    """
    metadata = body["metadata"]
    given = metadata.get("tags") if isinstance(metadata, dict) else None
    if not isinstance(given, list) or not all(isinstance(tag, str) for tag in given):
        return head, body
    tags = tuple(_tag(text) for text in given)
    left = {name: value for name, value in metadata.items() if name != "tags"}
    rest = {name: value for name, value in body.items() if name != "metadata"}
    return (
        replace(head, tags=head.tags + checked_tags("metadata.tags", tags)),
        {**rest, "metadata": left} if left else rest,
    )


def _tag(text: str) -> Tag:
    """Return a tag in one text: ``name=value``, LiteLLM's ``name:value``, or a bare label."""
    name, *value = _SIGN.split(text, maxsplit=1)
    return name.strip(), value[0].strip() if value else None


def _without_meaning(headers: Headers) -> Iterator[str]:
    for name in headers:
        known = name in MEANINGS or name in PROPERTIES or name.startswith(NAMED)
        if name.startswith(PREFIXES) and not known:
            yield name


def _first(meaning: Meaning, headers: Headers, meant: dict[str, Meaning]) -> str | None:
    """Return the first header of a meaning that says something."""
    return next((name for name in meant if meant[name] == meaning and headers[name]), None)


def _user(headers: Headers, meant: dict[str, Meaning]) -> str | None:
    name = _first("user", headers, meant)
    if name is None:
        return None
    user = headers[name]
    if len(user) > MAX_NAME or not user.isprintable():
        raise bad_header(name, f"must have at most {MAX_NAME} printable characters")
    return user


def _tags(headers: Headers, meant: dict[str, Meaning]) -> tuple[Tag, ...]:
    tags: list[Tag] = []
    for name in (name for name, meaning in meant.items() if meaning == "tags"):
        parts = (part.strip() for part in headers[name].split(","))
        tags += checked_tags(name, [_tag(part) for part in parts if part])
    return tuple(tags)


def _timeout_s(headers: Headers, meant: dict[str, Meaning]) -> float | None:
    """Return the shortest time that a header allows, in seconds; None where none says one."""
    times = [
        _seconds(name, headers[name], 1 if meaning == "seconds" else 1000)
        for name, meaning in meant.items()
        if meaning in {"seconds", "milliseconds"} and headers[name].strip()
    ]
    return min(times, default=None)


def _seconds(name: str, text: str, of_a_second: int) -> float:
    number = float(text) if _NUMBER.fullmatch(text := text.strip()) else 0.0
    seconds = number / of_a_second
    if not 0 < seconds <= MAX_TIMEOUT_S:
        unit = "seconds" if of_a_second == 1 else "milliseconds"
        most = MAX_TIMEOUT_S * of_a_second
        raise bad_header(name, f"must be a number of {unit} greater than 0 and at most {most}")
    return seconds


def _properties(headers: Headers, meant: dict[str, Meaning]) -> Iterator[Property]:
    """Yield what describes the call, each name and value cut to what a line may hold."""
    for tag, value in _pairs(headers.get(OWN, "").split(",")):
        yield ascii_word(tag, MAX_WORD), word(value, MAX_NAME)
    for name, value in headers.items():
        if name in PROPERTIES:
            yield Word(PROPERTIES[name]), word(value, MAX_NAME)
        elif name.startswith(NAMED) and name != NAMED:
            yield ascii_word(name.removeprefix(NAMED), MAX_WORD), word(value, MAX_NAME)
        elif meant.get(name) == "metadata":
            yield from _metadata(value)


def _pairs(parts: Iterable[str]) -> Iterator[tuple[str, str]]:
    for part in first_items(parts):
        name, _, value = part.partition("=")
        if name.strip():
            yield name.strip(), value.strip()


def _metadata(text: str) -> Iterator[Property]:
    """Yield the members of a JSON object that have a name, and are no lists and no objects; nothing
    of what is no JSON object, as it only informs."""
    try:
        members = read_distinct(text.encode())
    except ValueError:
        return
    for name, value in first_items(members.items() if isinstance(members, dict) else ()):
        if name.strip() and isinstance(value, (str, int, float)):
            shown = value if isinstance(value, str) else orjson.dumps(value).decode()
            yield ascii_word(name, MAX_WORD), word(shown, MAX_NAME)


def model_info(call: Call, parts: Mapping[int, Json]) -> Json:
    """Return a list of models as these paths have it; on any other it stays as it is."""
    data = parts[0]
    if call.head.route not in INFO_PATHS:
        return data
    return {"data": [_info(each) for each in data["data"]]}


def _info(model: Json) -> Json:
    name = model["id"]
    info = {"id": name, "db_model": False, "litellm_provider": model["owned_by"]}
    return {"model_name": name, "litellm_params": {"model": name}, "model_info": info}
