"""Reads headers and paths that are common to all dialects.

Headers never choose an upstream, a host or a price. A malformed header that affects the call is
refused. A malformed header that only informs is ignored. A path such as ``/v1/models/{model}`` is
compared as it was sent; parameters in it are decoded once.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from urllib.parse import parse_qsl, unquote

from proxy.dialects.base import AUTHORIZATION, ClientDialect, Headers, UpstreamDialect
from proxy.errors import BadRequest
from proxy.errors.words import MAX_NAME, MAX_WORDS, join_names
from proxy.types import Json, RequestHead, TraceContext

BEARER_HEADER, GEMINI_KEY = "Authorization: Bearer", "x-goog-api-key"
MAX_TIMEOUT_S = 86_400
REFRESH_IGNORED = "cache refresh ignored: this key may not refresh the cache"
Tag = tuple[str, str | None]
HEADRACE_PREFIX = "\nx-headrace-"
"""Matches the joined header names of a request that has headers of the proxy."""
FORWARDABLE_VALUE = re.compile(r"[A-Za-z0-9._=-]{1,64}(?:, ?[A-Za-z0-9._=-]{1,64}){0,31}")
"""Allowed values of client headers that are forwarded: short words."""
ACCOUNT_SUFFIX = "-id"
"""Suffix of headers that choose a workspace or an organization."""
_TRACEPARENT = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})")
_MARK = re.compile(r"\b[0-9a-f]{16}\b")
_NUMBER = re.compile(r"[0-9]{1,8}(?:\.[0-9]{1,6})?")
_BOOLEANS = {"true": True, "1": True, "false": False, "0": False, "": False}


def make_header_error(name: str, problem: str) -> BadRequest:
    return BadRequest(f"{name}: {problem}", param=name)


def select_forwarded_headers(
    headers: Headers, server: UpstreamDialect, accepts: Collection[str]
) -> dict[str, str]:
    """Return the client headers for an upstream of the same dialect.

    A header that chooses an account is omitted, unless the upstream ``accepts`` it.
    """
    prefix = server.forwarded_header_prefix
    return {
        name: value
        for name, value in headers.items()
        if prefix is not None
        and name.startswith(prefix)
        and (name in accepts or not name.endswith(ACCOUNT_SUFFIX))
        and FORWARDABLE_VALUE.fullmatch(value)
    }


def read_boolean_header(name: str, headers: Headers) -> bool:
    """Read a header with true, false, 1, 0 or nothing. Raises ``BadRequest`` for other values."""
    value = headers.get(name, "").strip().lower()
    if value not in _BOOLEANS:
        raise make_header_error(name, "must be true or false")
    return _BOOLEANS[value]


def parse_timeout_s(name: str, text: str, units_per_s: int) -> float:
    """Return the timeout of a header in seconds. Raises ``BadRequest``.

    ``units_per_s`` is 1 for a value in seconds, 1000 for one in milliseconds.
    """
    number = float(text) if _NUMBER.fullmatch(text := text.strip()) else 0.0
    seconds = number / units_per_s
    if not 0 < seconds <= MAX_TIMEOUT_S:
        unit = "seconds" if units_per_s == 1 else "milliseconds"
        maximum = MAX_TIMEOUT_S * units_per_s
        problem = f"must be a number of {unit} greater than 0 and at most {maximum}"
        raise make_header_error(name, problem)
    return seconds


def read_tag_header(name: str, headers: Headers) -> tuple[Tag, ...]:
    """Read ``k=v,k2=v2`` or labels without values. Raises ``BadRequest``."""
    parts = (part.partition("=") for part in headers.get(name, "").split(","))
    tags = [(key.strip(), value.strip() if sign else None) for key, sign, value in parts]
    return check_tags(name, [tag for tag in tags if tag[0]])


def check_tags(name: str, pairs: Sequence[Tag]) -> tuple[Tag, ...]:
    """Return the tags of a header. Raises ``BadRequest`` for too many, long or malformed ones."""
    if len(pairs) > MAX_WORDS:
        raise make_header_error(name, f"must have at most {MAX_WORDS} tags")
    texts = [text or "" for pair in pairs for text in pair]
    if any(len(text) > MAX_NAME for text in texts):
        raise make_header_error(name, f"must have at most {MAX_NAME} characters in each tag")
    try:
        "".join(texts).encode()
    except UnicodeEncodeError:  # other bytes are read as surrogates
        raise make_header_error(name, "must be valid UTF-8") from None
    return tuple(pairs)


def read_trace_context(headers: Headers) -> TraceContext | None:
    """Read a W3C ``traceparent``. A malformed one starts a new trace, as the standard requires."""
    match = _TRACEPARENT.fullmatch(headers.get("traceparent", "").strip())
    if match is None or not int(match[1], 16) or not int(match[2], 16):
        return None
    return TraceContext(match[1], match[2], is_sampled=bool(int(match[3], 16) & 1))


def read_common_headers(headers: Headers, head: RequestHead) -> RequestHead:
    """Read the proxy's own headers, which every dialect allows."""
    return replace(
        head,
        deployment=headers.get("x-headrace-deployment", "").strip() or None,
        tags=read_tag_header("x-headrace-tags", headers),
        bypass_cache=read_boolean_header("x-headrace-refresh-cache", headers),
        parent=read_trace_context(headers),
        via=tuple(_MARK.findall(headers.get("x-headrace-via", ""))),
    )


Parameters = tuple[tuple[str, str], ...]

REDUNDANT_PARAMETERS = frozenset({"api-version", "beta"})
"""Query parameters of Azure's and Anthropic's clients that repeat a path or a header."""
_PLAIN_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,31}(?:\[\])?")
_AZURE = re.compile("/openai/deployments/([^/]+)(/.+)")
_SEGMENT_PATTERNS = {"id": "[^/]+", "item": "[^/]+"}
"""Path parameters that match one segment. Names of models and deployments may contain slashes."""
_PATH_PARAMETER = re.compile(r"\{([a-z_]+)\}")

PASSTHROUGH_HINT = 'The operator can make it available under "passthrough:" in the policies.'
MAX_LOGGED_PATH, MAX_LOGGED_SEGMENTS = 1024, 8
_PLAIN = re.compile("[a-z_]{0,32}|v[0-9](?:beta)?")
OPENAI_HINT = "Configure the client for an OpenAI-compatible server whose base URL ends in /v1."
OTHER_API_HINTS = (
    ("/api/", f"This path belongs to Ollama's API. {OPENAI_HINT}"),
    ("/v1beta/", f"This path belongs to Gemini's API. {OPENAI_HINT}"),
)
"""Path prefixes of APIs that are not served, and advice for their clients."""

KEY_HEADERS = ("x-api-key", "api-key", "apikey", "x-portkey-api-key", GEMINI_KEY)
"""Headers in which clients send their key."""
KEY_QUERIES = frozenset({"access_token", "api-key", "api_key", "apikey", "key", "token"})
"""Query parameters in which clients send their key."""


def is_route_pattern(route: str) -> bool:
    """Return True if the path of a route has parameters."""
    return "{" in route


def compile_route(route: str) -> re.Pattern[str]:
    """Return the pattern of a route, with a group for each parameter in its path."""
    pieces = _PATH_PARAMETER.split(route)
    pieces[::2] = map(re.escape, pieces[::2])
    pieces[1::2] = [f"(?P<{name}>{_SEGMENT_PATTERNS.get(name, '.+')})" for name in pieces[1::2]]
    return re.compile("".join(pieces))


def read_path_parameters(match: re.Match[str]) -> Parameters:
    """Return the values of a route's parameters in a path."""
    return tuple((name, unquote(value)) for name, value in match.groupdict().items())


def read_query_parameters(query: str, names: frozenset[str]) -> Parameters:
    """Return the query parameters with one of the ``names``, in the order of the query."""
    pairs = parse_qsl(query, keep_blank_values=True)
    return tuple((name, value) for name, value in pairs if name in names)


def list_dropped_parameter_warnings(query: str, known_names: frozenset[str]) -> tuple[str, ...]:
    """Return a warning that names the dropped query parameters, or nothing.

    A name that may be a secret is shown as ``?``: it has no value, or is not a plain word.
    """
    pairs = parse_qsl(query, keep_blank_values=True)
    names = [
        name if value and _PLAIN_NAME.fullmatch(name) else "?"
        for name, value in pairs
        if name not in known_names and name not in REDUNDANT_PARAMETERS
    ]
    return (f"query parameters dropped: {join_names([*dict.fromkeys(names)])}",) if names else ()


def read_azure_deployment(path: str) -> Parameters:
    """Return the deployment that a path of Azure's clients names; nothing for another path."""
    match = _AZURE.fullmatch(path)
    return () if match is None else (("deployment", unquote(match[1])),)


def to_openai_path(path: str, parameters: Parameters) -> str:
    """Return OpenAI's path for an Azure path with a deployment. Other paths are unchanged."""
    return _AZURE.sub(r"/v1\2", path) if parameters else path


def insert_model_from_path(head: RequestHead, body: Json) -> tuple[Json, tuple[str, ...]]:
    """Return a body with the model in the path of Azure's clients, and warnings.

    The warning is for a body that names another model.
    """
    name = head.get_url_parameter("deployment")
    if name is None:
        return body, ()
    is_other = body.get("model") not in (None, name)
    warnings = ("model dropped: the path sets the model",) if is_other else ()
    return {**body, "model": name}, warnings


def build_missing_key_hint(client: ClientDialect, headers: Mapping[str, str], query: str) -> str:
    """Return a hint about the headers that may have the key, and where else the request has one."""
    hint = f"This path reads the key from the header {', or '.join(list_key_headers(client))}."
    places = [name for name in KEY_HEADERS if headers.get(name, "").strip()]
    if headers.get("authorization", "").strip():
        places.append("Authorization (without Bearer)")
    if query and any(name.lower() in KEY_QUERIES for name, _ in parse_qsl(query)):
        places.append("the query string")
    return f"{hint} The request has a key in {', '.join(places)}." if places else hint


def list_key_headers(client: ClientDialect) -> list[str]:
    """Return the names of the headers that may have the key, in their documented form."""
    return [BEARER_HEADER if name == AUTHORIZATION else name for name in client.key_headers]


def describe_unknown_path(path: str, known_paths: Collection[str]) -> str:
    """Return the message for an unknown path."""
    hint = _suggest_path_correction(path, known_paths)
    served = ", ".join(sorted(known for known in known_paths if known.startswith("/v1/")))
    return f"Unknown path. {hint} Available paths include {served}."


def redact_path(path: str) -> str:
    """Return a path for the log, with ``*`` in place of each segment that is not a plain word."""
    parts = path[:MAX_LOGGED_PATH].split("/")[: MAX_LOGGED_SEGMENTS + 1]
    return "/".join([part if _PLAIN.fullmatch(part) else "*" for part in parts])


def _suggest_path_correction(path: str, known_paths: Collection[str]) -> str:
    end = max(filter(path.endswith, known_paths), key=len, default="")
    if not end.startswith("/v1/"):
        for begin, hint in OTHER_API_HINTS:
            if path.startswith(begin):
                return hint
    if path.rstrip("/") in known_paths:
        return "Remove the slash at the end of the request path."
    if path.lower() in known_paths:
        return "Write the path in lower case."
    return _suggest_base_url(path, end, known_paths) if end else PASSTHROUGH_HINT


def _suggest_base_url(path: str, end: str, known_paths: Collection[str]) -> str:
    """Return advice for a client whose base URL precedes a served path with other segments."""
    prefix = path.removesuffix(end)
    if not prefix.strip("/"):
        return "Remove the slash at the end of the client's base URL."
    if prefix.endswith("/v1") and end.startswith("/v1/"):
        return "Remove /v1 from the client's base URL, because the client adds it."
    if prefix in known_paths:
        return "End the client's base URL with /v1, because the client adds the rest of the path."
    if prefix.startswith("/v1/"):  # perhaps a path of another API
        return PASSTHROUGH_HINT
    return f"{end} is available. Remove what precedes it from the client's base URL."
