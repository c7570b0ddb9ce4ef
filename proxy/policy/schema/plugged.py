"""All guards that policies may have: ours, by the table of kinds, and those that others bring.

Others are distributions with an entry point under ``headrace.guards``. The entry's name is the word
that policies use. It leads to an object with two attributes, as a ``GuardKind`` has them: ``Keys``,
a pydantic model of the keys that its guards have in YAML beside those of all guards, and ``make``,
which gives a way of looking (``proxy.types.guard``) for them alone, or raises ``ValueError``.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from functools import cache, reduce
from importlib.metadata import EntryPoint, entry_points
from types import GenericAlias
from typing import Annotated, Any

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    PlainValidator,
    SerializeAsAny,
    TypeAdapter,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from proxy.guardrails.kinds.table import KINDS
from proxy.policy.schema.guards import COMMON, GuardConfig, config_of
from proxy.settings import restore_certificates
from proxy.types.guard import Looking
from proxy.words import quoted

GROUP = "headrace.guards"


class Plugged(GuardConfig):
    """A guard of another distribution."""

    keys: SerializeAsAny[BaseModel]
    """Its own keys, as its own model has read them."""
    version: str | None
    """That of its distribution, so that no answer is shown again under another."""
    make: Callable[[Any], Looking] = Field(exclude=True)
    """Returns its detector."""

    def made(self) -> Looking:
        """Return its detector. Raise ``ValueError`` if it cannot be made."""
        try:
            return self.make(self.keys)
        except ValueError:
            raise
        except Exception as bug:
            message = f"guard {quoted(self.guard)} failed to start with {type(bug).__name__}"
            raise ValueError(message) from bug


def installed() -> dict[str, EntryPoint]:
    """Find what there is, by the words that policies use; nothing of it is loaded."""
    return {entry.name: entry for entry in entry_points(group=GROUP)}


def read(entry: EntryPoint, values: Mapping[str, Any]) -> Plugged:
    """Read what a policy says of a guard that others bring. Raises ``ValueError``, of which
    ``ValidationError`` is one."""
    restore_certificates()
    try:
        found = entry.load()
        keys, make = _strict(found.Keys), found.make
    except Exception as bug:
        raise ValueError(
            f"guard {quoted(entry.name)} cannot be loaded: {type(bug).__name__}"
        ) from bug
    own = {name: each for name, each in values.items() if name not in COMMON and name != "guard"}
    common = {name: each for name, each in values.items() if name in COMMON}
    version = entry.dist.version if entry.dist is not None else None
    return Plugged(
        guard=entry.name, keys=keys.model_validate(own), version=version, make=make, **common
    )


def _strict(keys: type[BaseModel]) -> type[BaseModel]:
    """Refuse keys that a model does not know, whatever it says of them itself."""

    class Strict(keys):  # type: ignore[misc, valid-type]  # it comes from elsewhere
        model_config = ConfigDict(extra="forbid")

    return Strict


@cache
def _all() -> TypeAdapter[GuardConfig]:
    """Return the guards of all kinds: what editors are told, and what says why something is none.
    It imports all kinds."""
    union: Any = reduce(operator.or_, map(config_of, KINDS))
    return TypeAdapter(Annotated[union, Field(discriminator="guard")])


@cache
def _one(word: str) -> TypeAdapter[dict[str, GuardConfig]]:
    """Return what reads a guard of a kind, below its word: where problems are is told with it, as
    in a union of all kinds."""
    below_its_word: Any = GenericAlias(dict, (str, config_of(word)))
    return TypeAdapter(below_its_word)


def _guard(value: Any) -> GuardConfig:
    word = value.get("guard") if isinstance(value, dict) else None
    if not isinstance(word, str):
        return _all().validate_python(value)
    if word in KINDS:
        return _one(word).validate_python({word: value})[word]
    entry = installed().get(word)
    return _all().validate_python(value) if entry is None else read(entry, value)


class _OfAnyKind:
    """What tells editors of all kinds; policies are read without them."""

    def __get_pydantic_json_schema__(
        self, core: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        return handler(_all().core_schema)


AnyGuard = Annotated[SerializeAsAny[GuardConfig], PlainValidator(_guard), _OfAnyKind()]
