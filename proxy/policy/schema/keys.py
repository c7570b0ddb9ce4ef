"""The section ``keys``."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from proxy.policy.schema.scalars import Digest, Name, Section, TagKey


class Key(Section):
    """A virtual key, known by the SHA-256 of its text."""

    sha256: Digest
    """The SHA-256 of the key's text: `headrace key NAME` draws one."""
    deployments: Annotated[list[Name], Field(min_length=1)]
    """The deployments that it may call."""
    description: str = ""
    """For people."""
    tags: dict[TagKey, str] = Field(default_factory=dict)
    """Tags of its calls; they win over the deployment's."""
    may: list[Literal["refresh"]] = Field(default_factory=list)
    """What else it may do: `refresh` re-reads the policies by header."""
