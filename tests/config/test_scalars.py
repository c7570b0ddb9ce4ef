"""References of policy sections to other objects."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from proxy.config.scalars import FileName, Name, Reference, Section, references, referring_keys


class Referring(Section):
    deployment: Annotated[Name, Reference("deployment")]
    single: Annotated[FileName | None, Reference("text")] = None
    several: Annotated[list[FileName], Reference("text")] = Field(default_factory=list)
    plain: Name = "a"


def test_marked_keys_refer() -> None:
    assert referring_keys(Referring, "text") == ["single", "several"]
    assert referring_keys(Referring, "deployment") == ["deployment"]
    assert referring_keys(Referring, "upstream") == []


def test_references_have_their_key() -> None:
    part = Referring(deployment="chat", single="a.txt", several=["b.txt", "c.txt"])

    assert list(references(part, "deployment")) == [("deployment", "chat")]
    assert list(references(part, "text")) == [
        ("single", "a.txt"),
        ("several", "b.txt"),
        ("several", "c.txt"),
    ]
    assert list(references(Referring(deployment="chat"), "text")) == []
