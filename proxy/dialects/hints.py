"""What a client is told whose path is not served: what is, and which setting of its to change; and
where its key is read, if it sends none there.

Nothing of the path it has sent stands in that, and no key: who knows what its address has in it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from urllib.parse import parse_qsl

from proxy.dialects.request_headers import GEMINI_KEY

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


def where_key_belongs(read: str, headers: Mapping[str, str], query: str) -> str:
    """Return which headers are ``read`` for the key, and where the request has one instead."""
    hint = f"This path reads the key from the header {read.replace('`', '')}."
    found = [name for name in KEY_HEADERS if headers.get(name, "").strip()]
    if headers.get("authorization", "").strip():
        found.append("Authorization (without Bearer)")
    if query and any(name.lower() in KEY_QUERIES for name, _ in parse_qsl(query)):
        found.append("the query string")
    return f"{hint} The request has one in {', '.join(found)}." if found else hint


def not_served(path: str, known: Collection[str]) -> str:
    """Return what to say of a path that is none of those that are ``known``."""
    hint = _hint(path, known)
    served = ", ".join(sorted(each for each in known if each.startswith("/v1/")))
    return f"Unknown path. {hint} Available paths include {served}."


def plain_path(path: str) -> str:
    """Return a path for the log: of its parts those that are plain words, for any other ``*``."""
    parts = path[:MOST_PATH].split("/")[: MOST_PARTS + 1]
    return "/".join([part if _PLAIN.fullmatch(part) else "*" for part in parts])


def _hint(path: str, known: Collection[str]) -> str:
    end = max((each for each in known if path.endswith(each)), key=len, default="")
    if not end.startswith("/v1/"):
        for begin, hint in ELSEWHERES:
            if path.startswith(begin):
                return hint
    if path.rstrip("/") in known:
        return "Remove the slash at the end of the path."
    if path.lower() in known:
        return "Write the path in lower case."
    return _about_base(path, end, known) if end else PASSTHROUGH


def _about_base(path: str, end: str, known: Collection[str]) -> str:
    """Return what is wrong with a base URL to which a client has added what is served."""
    before = path.removesuffix(end)
    if not before.strip("/"):
        return "Remove the slash at the end of the client's base URL."
    if before.endswith("/v1") and end.startswith("/v1/"):
        return "Remove /v1 from the client's base URL, because the client adds it."
    if before in known:
        return "End the client's base URL with /v1, because the client adds the rest of the path."
    if before.startswith("/v1/"):  # perhaps a path of another API
        return PASSTHROUGH
    return f"{end} is available. Remove what precedes it from the client's base URL."
