"""Paths of routes in which a client names something, such as ``/v1/models/{model}``.

A path is compared as it was sent; what the client names in it is decoded once.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from urllib.parse import parse_qsl, unquote

from proxy.dialects.request_headers import GEMINI_KEY
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

PASSTHROUGH = 'The operator can make it available under "passthrough:" in the policies.'
MOST_PATH, MOST_PARTS = 1024, 8
_PLAIN = re.compile("[a-z_]{0,32}|v[0-9](?:beta)?")
OPENAIS = "Configure the client for an OpenAI-compatible server whose base URL ends in /v1."
ELSEWHERES = (
    ("/api/", f"This path belongs to Ollama's API. {OPENAIS}"),
    ("/v1beta/", f"This path belongs to Gemini's API. {OPENAIS}"),
)
"""How the paths of APIs begin that clients take for another one's, and what to do about it."""

KEY_HEADERS = ("x-api-key", "api-key", "apikey", "x-portkey-api-key", GEMINI_KEY)
"""Headers in which clients of one API or another send their key."""
KEY_QUERIES = frozenset({"access_token", "api-key", "api_key", "apikey", "key", "token"})
"""Under which names they send it in a query."""


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
    """Return the values of a route's parameters in a path."""
    return tuple((name, unquote(value)) for name, value in match.groupdict().items())


def query_parameters(query: str, names: frozenset[str]) -> Parameters:
    """Return the query parameters that are ``known``, in the order of the query."""
    if not query or not names:
        return ()
    pairs = parse_qsl(query, keep_blank_values=True)
    return tuple((name, value) for name, value in pairs if name in names)


def dropped_parameters(query: str, known_names: frozenset[str]) -> tuple[str, ...]:
    """Return a warning that names the dropped query parameters, or None.

    Names that may be secrets are not shown: those that are no plain words or have no value.
    """
    pairs = parse_qsl(query, keep_blank_values=True)
    names = [
        name if value and _PLAIN_NAME.fullmatch(name) else "?"
        for name, value in pairs
        if name not in known_names and name not in REDUNDANT
    ]
    return (f"query parameters dropped: {listed([*dict.fromkeys(names)])}",) if names else ()


def azure_deployment(path: str) -> Parameters:
    """Return the deployment that a path of Azure's clients names; nothing for another path."""
    match = _AZURE.fullmatch(path)
    return () if match is None else (("deployment", unquote(match[1])),)


def openai_path(path: str, parameters: Parameters) -> str:
    """Return OpenAI's path for an Azure path with a deployment. Other paths are unchanged."""
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


def where_key_belongs(read: str, headers: Mapping[str, str], query: str) -> str:
    """Return which headers are ``read`` for the key, and where the request has one instead."""
    hint = f"This path reads the key from the header {read.replace('`', '')}."
    places = [name for name in KEY_HEADERS if headers.get(name, "").strip()]
    if headers.get("authorization", "").strip():
        places.append("Authorization (without Bearer)")
    if query and any(name.lower() in KEY_QUERIES for name, _ in parse_qsl(query)):
        places.append("the query string")
    return f"{hint} The request has one in {', '.join(places)}." if places else hint


def not_served(path: str, known_paths: Collection[str]) -> str:
    """Return what to say of a path that is none of those that are ``known``."""
    hint = _hint(path, known_paths)
    served = ", ".join(
        sorted(known_path for known_path in known_paths if known_path.startswith("/v1/"))
    )
    return f"Unknown path. {hint} Available paths include {served}."


def plain_path(path: str) -> str:
    """Return a path for the log: of its parts those that are plain words, for any other ``*``."""
    parts = path[:MOST_PATH].split("/")[: MOST_PARTS + 1]
    return "/".join([part if _PLAIN.fullmatch(part) else "*" for part in parts])


def _hint(path: str, known_paths: Collection[str]) -> str:
    end = max(
        (known_path for known_path in known_paths if path.endswith(known_path)), key=len, default=""
    )
    if not end.startswith("/v1/"):
        for begin, hint in ELSEWHERES:
            if path.startswith(begin):
                return hint
    if path.rstrip("/") in known_paths:
        return "Remove the slash at the end of the path."
    if path.lower() in known_paths:
        return "Write the path in lower case."
    return _about_base(path, end, known_paths) if end else PASSTHROUGH


def _about_base(path: str, end: str, known_paths: Collection[str]) -> str:
    """Return what is wrong with a base URL to which a client has added what is served."""
    prefix = path.removesuffix(end)
    if not prefix.strip("/"):
        return "Remove the slash at the end of the client's base URL."
    if prefix.endswith("/v1") and end.startswith("/v1/"):
        return "Remove /v1 from the client's base URL, because the client adds it."
    if prefix in known_paths:
        return "End the client's base URL with /v1, because the client adds the rest of the path."
    if prefix.startswith("/v1/"):  # perhaps a path of another API
        return PASSTHROUGH
    return f"{end} is available. Remove what precedes it from the client's base URL."
