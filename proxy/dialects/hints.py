"""What a client is told whose path is not served: what is, and which setting of its to change; and
where its key is read, if it seems to have put it elsewhere.

Nothing of the path it has sent stands in that, and no key: who knows what its address has in it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from urllib.parse import parse_qsl

MOST_PATH, MOST_PARTS = 1024, 8
_PLAIN = re.compile("[a-z_]{0,32}|v[0-9](?:beta)?")
OPENAIS = "the one for servers of OpenAI's API, with a base URL that ends in /v1"
ELSEWHERES = (
    ("/api/", f"These are Ollama's paths: choose another provider in the client, {OPENAIS}."),
    ("/v1beta/", f"These are Gemini's paths: choose another provider in the client, {OPENAIS}."),
)
"""How the paths of APIs begin that clients take for another one's, and what to do about it."""

KEY_HEADERS = ("x-api-key", "api-key", "apikey", "x-portkey-api-key", "x-goog-api-key")
"""Headers in which clients of one API or another send their key."""
KEY_QUERIES = frozenset({"access_token", "api-key", "api_key", "apikey", "key", "token"})
"""Under which names they send it in a query."""


def misplaced_key(read: str, headers: Mapping[str, str], query: str) -> str:
    """Return what to say where no key is in the places that are ``read``, and something stands
    where other clients have theirs; nothing where nothing does."""
    found = [name for name in KEY_HEADERS if headers.get(name, "").strip()]
    if headers.get("authorization", "").strip():
        found.append("Authorization without Bearer")
    if query and any(name.lower() in KEY_QUERIES for name, _ in parse_qsl(query)):
        found.append("the query")
    if not found:
        return ""
    return f"This path reads it from {read.replace('`', '')}; it seems to be in {', '.join(found)}."


def not_served(path: str, known: Collection[str]) -> str:
    """Return what to say of a path that is none of those that are ``known``."""
    hint = _hint(path, known)
    served = ", ".join(sorted(each for each in known if each.startswith("/v1/")))
    return (
        f"There is no such path.{hint and ' '}{hint} Served are {served} and more; others pass "
        "where the operator lists them under passthrough."
    )


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
        return "Leave out the slash at its end."
    if path.lower() in known:
        return "Write it in lower case."
    return _about_base(path, end, known) if end else ""


def _about_base(path: str, end: str, known: Collection[str]) -> str:
    """Return what is wrong with a base URL to which a client has added what is served."""
    before = path.removesuffix(end)
    if not before.strip("/"):
        return "Leave out the slash at the end of the client's base URL."
    if before.endswith("/v1") and end.startswith("/v1/"):
        return "Leave /v1 out of the client's base URL: it adds that itself."
    if before in known:
        return "End the client's base URL before that path, with /v1: it adds the rest itself."
    return f"It ends in {end}, which is served: leave what is before that out of the base URL."
