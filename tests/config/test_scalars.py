"""What a part refers to is found by its keys, whatever their number and form."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from proxy.config.scalars import FileName, Name, Reference, Section, references, referring_keys


class Referring(Section):
    deployment: Annotated[Name, Reference("deployment")]
    one: Annotated[FileName | None, Reference("text")] = None
    several: Annotated[list[FileName], Reference("text")] = Field(default_factory=list)
    plain: Name = "a"


def test_the_keys_are_those_that_are_marked() -> None:
    assert referring_keys(Referring, "text") == ["one", "several"]
    assert referring_keys(Referring, "deployment") == ["deployment"]
    assert referring_keys(Referring, "upstream") == []


def test_what_is_named_is_given_with_its_key() -> None:
    part = Referring(deployment="chat", one="a.txt", several=["b.txt", "c.txt"])

    assert list(references(part, "deployment")) == [("deployment", "chat")]
    assert list(references(part, "text")) == [
        ("one", "a.txt"),
        ("several", "b.txt"),
        ("several", "c.txt"),
    ]


def test_a_key_that_names_nothing_refers_to_nothing() -> None:
    assert list(references(Referring(deployment="chat"), "text")) == []
