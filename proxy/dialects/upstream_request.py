"""The question to an upstream: path, headers and body, made from what policy saw and no more."""

from __future__ import annotations

import re

import orjson

from proxy.dialects import DIALECTS
from proxy.dialects.base import Dialect
from proxy.dialects.parameters import added_by, apply_parameters
from proxy.dialects.pieces import dump_pieces
from proxy.dialects.translation import blamed, names_of, translate
from proxy.dialects.ways import changed_fields, passed_on, target_endpoint, way_of
from proxy.errors import BadField
from proxy.frozen import frozen
from proxy.offload import LARGE_BYTES
from proxy.types import UNCHANGED, Call, Changes, Endpoint, Json, Target, Translated, Way

_WORDS = re.compile(r"[A-Za-z0-9._-]{1,64}(?:, ?[A-Za-z0-9._-]{1,64}){0,31}")
"""What a header of a client that is passed on may say: short words."""


@frozen
class UpstreamRequest:
    """One request as an upstream of its dialect wants it. ``endpoint`` is the target's, ``headers``
    are those of all requests that go this way, which nobody changes;
    ``most_answered`` are the tokens that all answers to it may have."""

    url: str
    headers: dict[str, str]
    body: bytes
    endpoint: Endpoint
    dropped: tuple[str, ...]
    most_answered: int


def translated(
    call: Call,
    target: Target,
    from_dialect: Dialect,
    to_dialect: Dialect,
    changes: Changes = UNCHANGED,
) -> Translated:
    """Return the body for one target, as rules have changed it: it is what limits claim by, and
    what is sent, and kept with the call unless that is large. The dialects are those of the call
    and of the target. Raises ``BadField``, by the client's own name, when it cannot be
    expressed."""
    way = way_of(call.head.endpoint, from_dialect, target, to_dialect)
    return _translated(way, call, target, from_dialect, to_dialect, changes)


def _translated(
    way: Way,
    call: Call,
    target: Target,
    from_dialect: Dialect,
    to_dialect: Dialect,
    changes: Changes,
) -> Translated:
    for known, known_changes, kept in call.translations:
        if known is target and known_changes is changes:
            return kept
    asked = call.head.endpoint
    made = passed_on(way, asked, call.body, target.model, changes)
    if made is None:
        try:
            made = translate(
                from_dialect, to_dialect, (asked, way.endpoint), call.body, target, changes
            )
        except BadField as error:
            raise BadField(blamed(error.param or "", call.names), error.problem) from None
    if call.size <= LARGE_BYTES:
        call.translations.append((target, changes, made))
    return made


def parameters(call: Call, target: Target, changes: Changes) -> Json:
    """Return a call's body as rules have changed it for a target, in OpenAI's form."""
    if not (changes.set or changes.cap):
        return call.body
    way = target.upstream.ways.get((call.head.dialect, call.head.endpoint, target.endpoint))
    if way is not None:
        found = changed_fields(way, call.body, target.model, changes)
        if found is not None and not (way.takes_zero and 0 in found.fields.values()):
            return {**call.body, **found.fields}
    to_dialect = DIALECTS[target.upstream.dialect]
    endpoint = target_endpoint(call.head.endpoint, target, to_dialect)
    read, added = added_by(changes, endpoint, target.model)
    if read.isdisjoint(call.body):
        return {**call.body, **added}
    known = to_dialect.fields.get(endpoint, {}).keys() | target.upstream.accepts
    body = apply_parameters(endpoint, {**call.body, "model": target.model}, changes, known)
    del body["model"]
    return {**body, "model": call.body["model"]} if "model" in call.body else body


def build_request(
    call: Call,
    target: Target,
    from_dialect: Dialect,
    to_dialect: Dialect,
    changes: Changes = UNCHANGED,
) -> UpstreamRequest:
    """Write the call, as rules have changed it, for one target.

    Raises ``BadField`` when the target's dialect cannot express it.
    """
    way = way_of(call.head.endpoint, from_dialect, target, to_dialect)
    fit_for = _translated(way, call, target, from_dialect, to_dialect, changes)
    body = fit_for.body
    if call.stream and to_dialect.server.streams and to_dialect.server.usage_option:
        options = {**(body.get("stream_options") or {}), "include_usage": True}
        body = {**body, "stream_options": options}
    return UpstreamRequest(
        url=way.url,
        headers=_headers(call, way, from_dialect, to_dialect),
        body=orjson.dumps(body) if call.size <= LARGE_BYTES else dump_pieces(body),
        endpoint=way.endpoint,
        dropped=_by_client(call, fit_for.dropped) if fit_for.dropped else (),
        most_answered=fit_for.most_answered,
    )


def _headers(call: Call, way: Way, from_dialect: Dialect, to_dialect: Dialect) -> dict[str, str]:
    """Return the headers of a request: those of its way, and the client's own that pass by name to
    an upstream of the same dialect, or what it is told instead. A policy's own count first."""
    passed = to_dialect.server.passed_headers
    if not passed:
        return way.headers
    given = call.head.headers if from_dialect is to_dialect else {}
    good = {name: given[name] for name in passed if _WORDS.fullmatch(given.get(name, ""))}
    usual = {name: value for name, value in passed.items() if value}
    return {**usual, **good, **way.headers}


def _by_client(call: Call, dropped: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names by which the client's body has the fields that are dropped."""
    names = (alias for name in dropped for alias in names_of(name, call.names))
    return tuple(dict.fromkeys(names))
