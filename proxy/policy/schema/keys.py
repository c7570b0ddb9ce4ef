"""Sections ``keys``, ``revoked`` and ``cors``."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema

from proxy.config.scalars import MOMENT, NAME, Digest, Moment, Name, Section, TagKey, text

HEX = "[0-9a-f]{64}"
_DIGEST = {"type": "string", "pattern": f"^{HEX}$"}
_CREDENTIAL = {
    "type": "object",
    "properties": {"digest": _DIGEST, "until": MOMENT},
    "required": ["digest"],
    "additionalProperties": False,
}
_CREDENTIALS = {"type": "array", "minItems": 1, "items": {"anyOf": [_DIGEST, _CREDENTIAL]}}


def _credentials(value: Any) -> Any:
    """Return a list of credentials for one digest, or for a list of digests or credentials."""
    digests = value if isinstance(value, list) else [value]
    return [item if isinstance(item, dict) else {"digest": item} for item in digests]


class CredentialConfig(Section):
    """One secret of a virtual key."""

    digest: Digest
    """SHA-256 of the secret."""
    until: Moment = None
    """End of validity: a day (inclusive, UTC) or a time. Default: no end."""


class KeyConfig(Section):
    """A virtual key, stored as the SHA-256 of its secrets."""

    sha256: Annotated[
        list[CredentialConfig],
        BeforeValidator(_credentials),
        Field(min_length=1),
        WithJsonSchema({"anyOf": [_DIGEST, _CREDENTIALS]}),
    ]
    """SHA-256 of the secret, created by `headrace key NAME`. Use a list during rotation, with plain
    digests or `{digest: ..., until: 2026-12-31}`."""
    expires: Moment = None
    """End of validity of the key and all its secrets."""
    deployments: Annotated[list[Name], Field(min_length=1)]
    """Deployments that the key may call."""
    description: str = ""
    """Description for readers."""
    tags: dict[TagKey, str] = Field(default_factory=dict)
    """Tags of its calls. They override tags of the deployment."""
    may: list[Literal["refresh", "trace"]] = Field(default_factory=list)
    """Additional permissions: `refresh` reloads the policies through a header, `trace` samples its
    calls as its `traceparent` header requests."""


NOT_A_REVOCATION = "must be the name of a key or its SHA-256 in hex"


def is_revocation(value: Any) -> bool:
    """Return True if an entry can be the name or the digest of a key."""
    return isinstance(value, str) and re.fullmatch(NAME, value) is not None


Revocation = Annotated[str, *text(NAME, NOT_A_REVOCATION, "widget")]


ORIGIN = r"\*|[a-z][a-z0-9+.-]*://[a-z0-9._-]+(?::[0-9]{1,5})?"
Origin = Annotated[
    str,
    *text(
        ORIGIN,
        "must be an origin in lower case without a path, such as https://app.example.com, or *",
        "https://app.example.com",
    ),
]


class CorsConfig(Section):
    """Web pages that may call from a browser and read responses."""

    origins: Annotated[list[Origin], Field(max_length=1000)] = Field(default_factory=list)
    """Allowed origins, or `*` for all. Cookies are never allowed."""
