"""The sections ``keys`` and ``revoked``."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema

from proxy.config.scalars import MOMENT, NAME, Digest, Moment, Name, Section, TagKey

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
    """Read one digest, or several, each alone or with its end."""
    digests = value if isinstance(value, list) else [value]
    return [each if isinstance(each, dict) else {"digest": each} for each in digests]


class CredentialConfig(Section):
    """One text that a key may have."""

    digest: Digest
    """Its SHA-256."""
    until: Moment = None
    """Until when it counts, a day (to its end, in UTC) or a moment; for good where not said."""


class KeyConfig(Section):
    """A virtual key, known by the SHA-256 of its text, or of each of several."""

    sha256: Annotated[
        list[CredentialConfig],
        BeforeValidator(_credentials),
        Field(min_length=1),
        WithJsonSchema({"anyOf": [_DIGEST, _CREDENTIALS]}),
    ]
    """The SHA-256 of the key's text: `headrace key NAME` draws one. Several while a key is changed,
    each alone or as `{digest: ..., until: 2026-12-31}`."""
    expires: Moment = None
    """Until when the key counts, whatever its texts."""
    deployments: Annotated[list[Name], Field(min_length=1)]
    """The deployments that it may call."""
    description: str = ""
    """For people."""
    tags: dict[TagKey, str] = Field(default_factory=dict)
    """Tags of its calls; they win over the deployment's."""
    may: list[Literal["refresh", "trace"]] = Field(default_factory=list)
    """What else it may do: `refresh` re-reads the policies by header, `trace` samples its calls by
    the `traceparent` that it sends."""


def is_revocation(value: Any) -> bool:
    """True if an entry of the list can name a key, or be the digest of one."""
    return isinstance(value, str) and re.fullmatch(NAME, value) is not None


def _revocation(value: str) -> str:
    if not is_revocation(value):
        raise ValueError("must be the name of a key, or a SHA-256 in hex")
    return value


Revocation = Annotated[
    str,
    AfterValidator(_revocation),
    WithJsonSchema({"type": "string", "pattern": f"^{NAME}$"}),
]
