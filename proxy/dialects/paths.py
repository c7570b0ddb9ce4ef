"""Paths of routes in which a client names something, such as ``/v1/models/{model}``.

A path is compared as it was sent; what the client names in it is decoded once.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from urllib.parse import parse_qsl, unquote

from proxy.errors.words import listed
from proxy.types import Json, RequestHead

Parameters = tuple[tuple[str, str], ...]

PARTS: Mapping[str, str] = {
    "deployment": ".+",
    "id": "[^/]+",
    "item": "[^/]+",
    "model": ".+",
}
"""What may stand for each name of a path: the names of models have slashes in them."""
REDUNDANT = frozenset({"api-version", "beta"})
"""What Azure's and Anthropic's clients say in each query: a path or a header says it as well."""
_PLAIN_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,31}(?:\[\])?")
_AZURE = re.compile("/openai/deployments/([^/]+)(/.+)")
_NAMED = re.compile(r"\{([a-z_]+)\}")


def is_pattern(route: str) -> bool:
    """True if a route names a part of its path."""
    return "{" in route


def compile_route(route: str) -> re.Pattern[str]:
    """Return what matches the paths of a route, with a group for each part that it names."""
    pieces = _NAMED.split(route)
    for index, piece in enumerate(pieces):
        pieces[index] = f"(?P<{piece}>{PARTS[piece]})" if index % 2 else re.escape(piece)
    return re.compile("".join(pieces))


def path_parameters(match: re.Match[str]) -> Parameters:
    """Return what a path says in the parts that its route names."""
    return tuple((name, unquote(value)) for name, value in match.groupdict().items())


def query_parameters(query: str, known: frozenset[str]) -> Parameters:
    """Return what a query says under the names that are ``known``, in its order."""
    if not query or not known:
        return ()
    pairs = parse_qsl(query, keep_blank_values=True)
    return tuple((name, value) for name, value in pairs if name in known)


def dropped_parameters(query: str, known: frozenset[str]) -> tuple[str, ...]:
    """Return a warning that names what a query says under other names, if it does. A name that may
    be a secret is not shown: what is no plain word, or has no value."""
    pairs = parse_qsl(query, keep_blank_values=True)
    names = [
        name if value and _PLAIN_NAME.fullmatch(name) else "?"
        for name, value in pairs
        if name not in known and name not in REDUNDANT
    ]
    return (f"query parameters dropped: {listed([*dict.fromkeys(names)])}",) if names else ()


def azure_deployment(path: str) -> Parameters:
    """Return the deployment that a path of Azure's clients names; nothing for another path."""
    match = _AZURE.fullmatch(path)
    return () if match is None else (("deployment", unquote(match[1])),)


def openai_path(path: str, parameters: Parameters) -> str:
    """Return OpenAI's path for one of Azure's whose deployment was read; another as it is."""
    return _AZURE.sub(r"/v1\2", path) if parameters else path


def with_model_of_path(head: RequestHead, body: Json) -> tuple[Json, tuple[str, ...]]:
    """Return the body with the model that the path names, as Azure's clients do. Warn if the body
    names another one."""
    name = head.parameter("deployment")
    if name is None:
        return body, ()
    is_other = body.get("model") not in (None, name)
    warnings = ("model dropped: the path names the model",) if is_other else ()
    return {**body, "model": name}, warnings
