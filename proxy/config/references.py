"""Keys whose values stand for something else: it is found by whoever knows the whole folder."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from pydantic import BaseModel

from proxy.frozen import frozen

Referred = Literal["deployment", "upstream", "secret", "text", "service"]


@frozen
class Reference:
    """Marks a key by what its values refer to: the name of a deployment or of an upstream, a
    secret, a file of text beside the policies, or the address of a service."""

    to: Referred


def referring_keys(model: type[BaseModel], to: Referred) -> list[str]:
    """Return the keys of a model whose values refer to something of a sort."""
    fields = model.model_fields.items()
    return [key for key, field in fields if Reference(to) in field.metadata]


def references(part: BaseModel, to: Referred) -> Iterator[tuple[str, str]]:
    """Yield what a part refers to: the key, and one of its values."""
    for key in referring_keys(type(part), to):
        value = getattr(part, key)
        values = value if isinstance(value, list) else [value]
        yield from ((key, each) for each in values if each is not None)
