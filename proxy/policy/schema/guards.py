"""Guards, under ``input`` and ``output`` of policies and rules.

The keys of each guard kind are declared with its detector. Other distributions add kinds by an
entry point in the group ``headrace.guards`` with the name of the kind. Its object has the
attributes ``Keys``, a pydantic model of its keys, and ``make``, which takes only the keys, unlike
that of a ``GuardKind``. It returns a detector (``proxy.types.guard``) or raises ``ValueError``.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from functools import cache, reduce
from importlib.metadata import EntryPoint, entry_points
from types import GenericAlias
from typing import Annotated, Any, ClassVar, Literal, cast

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    PlainValidator,
    SerializeAsAny,
    StringConstraints,
    TypeAdapter,
    create_model,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from proxy.config.scalars import Duration, Label, Name, Section
from proxy.config.shapes import Requirement, equals, has_size, if_then, not_, one_of
from proxy.errors.words import quote
from proxy.guards.kinds import KINDS
from proxy.policy.schema.deployments import TargetConfig
from proxy.settings import load_suppressed_certificates
from proxy.types.guard import Action, AnyDetector

MessageRole = Literal["system", "developer", "user", "assistant", "tool", "function"]
TextKind = Literal[
    "arguments", "content", "context", "logprobs", "metadata", "name", "other", "prediction",
    "prompt", "reasoning", "refusal", "schema", "stop", "suffix", "tool", "user",
]  # fmt: skip


class GuardConfig(Section):
    """Keys of all guards."""

    REQUIREMENTS: ClassVar[tuple[Requirement, ...]] = (
        Requirement(
            one_of(not_(equals("action", "route")), has_size("to")),
            "action: route requires targets under to, and to requires action: route",
        ),
        Requirement(
            if_then(equals("restore", True), equals("action", "mask")),
            "restore requires action: mask",
        ),
        Requirement(
            if_then(has_size("restore_hosts"), equals("restore", True)),
            "restore_hosts requires restore: true",
        ),
    )

    name: Name | None = None
    """Name in logs, metrics and errors. Default: the guard kind."""
    action: Action = "block"
    """Action on findings: `block`, `mask`, `flag` (record only), `route` (send the request to other
    targets) or `retry` (request another response)."""
    to: list[TargetConfig] | None = None
    """Targets of the action `route`, tried in order."""
    mode: Literal["enforce", "shadow"] = "enforce"
    """`shadow` records findings without any effect on the call."""
    on_error: Literal["closed", "open"] = "closed"
    """If the guard fails or exceeds its deadline: `closed` blocks the call, `open` lets it pass."""
    deadline: Duration = 1.0
    """Processor time for all texts of a call, or time until a service replies. Default 1s."""
    roles: list[MessageRole] | None = None
    """Message roles to inspect. Default: all."""
    fields: list[TextKind] | None = None
    """Kinds of text to inspect. Default: all."""
    message: Annotated[str, StringConstraints(min_length=1, max_length=500)] | None = None
    """Error message for the client if a finding blocks the call."""
    restore: bool = False
    """Whether masked values of the request are restored in the response. The upstream sees
    placeholders, the client its own values."""
    restore_hosts: Annotated[list[Label], Field(max_length=100)] | None = None
    """Hosts whose URLs may contain restored values: `example.com` is one host, `*.example.com` all
    its subdomains. Other URLs keep the placeholders."""
    guard: str
    """Guard kind."""


COMMON_KEYS = tuple(name for name in GuardConfig.model_fields if name != "guard")
"""Names of the keys that all guards have."""


@cache
def get_guard_model(kind_name: str) -> type[GuardConfig]:
    """Return the model of a guard kind, with its keys and the common ones, or raise KeyError."""
    kind, literal = KINDS[kind_name], cast(Any, Literal)[kind_name]
    return create_model(
        kind.Keys.__name__,
        __base__=(kind.Keys, GuardConfig),
        __doc__=kind.Keys.__doc__,
        guard=(literal, Field(description="Guard kind.")),
    )


ENTRY_POINT_GROUP = "headrace.guards"


class PluginGuard(GuardConfig):
    """A guard of another distribution. ``version`` is part of the digest in cache keys."""

    keys: SerializeAsAny[BaseModel]
    version: str | None
    make: Callable[[Any], AnyDetector] = Field(exclude=True)

    def make_detector(self) -> AnyDetector:
        """Return the detector of the guard. Raise ``ValueError`` if it cannot be created."""
        try:
            return self.make(self.keys)
        except ValueError:
            raise
        except Exception as bug:
            message = f"guard {quote(self.guard)} failed to start with {type(bug).__name__}"
            raise ValueError(message) from bug


def find_plugins() -> dict[str, EntryPoint]:
    """Return the guard kinds of other distributions by name, without loading them."""
    return {entry.name: entry for entry in entry_points(group=ENTRY_POINT_GROUP)}


def load_plugin_guard(entry: EntryPoint, values: Mapping[str, Any]) -> PluginGuard:
    """Return a guard of another distribution. Raise ``ValueError`` if its keys are invalid."""
    load_suppressed_certificates()
    try:
        kind = entry.load()

        # The base class is loaded at run time.
        class StrictKeys(kind.Keys):  # type: ignore[misc, name-defined]
            model_config = ConfigDict(extra="forbid")

        make = kind.make
    except Exception as bug:
        message = f"guard {quote(entry.name)} cannot be loaded: {type(bug).__name__}"
        raise ValueError(message) from bug
    kind_keys = {
        name: value for name, value in values.items() if name not in (*COMMON_KEYS, "guard")
    }
    common = {name: value for name, value in values.items() if name in COMMON_KEYS}
    version = entry.dist.version if entry.dist is not None else None
    keys = StrictKeys.model_validate(kind_keys)
    return PluginGuard(guard=entry.name, keys=keys, version=version, make=make, **common)


@cache
def _get_union_validator() -> TypeAdapter[GuardConfig]:
    union: Any = reduce(operator.or_, map(get_guard_model, KINDS))
    return TypeAdapter(Annotated[union, Field(discriminator="guard")])


@cache
def _get_kind_validator(name: str) -> TypeAdapter[dict[str, GuardConfig]]:
    """Return a validator for ``{name: guard}``, so that paths of errors are as in the union."""
    return TypeAdapter(cast(Any, GenericAlias(dict, (str, get_guard_model(name)))))


def _validate_guard(value: Any) -> GuardConfig:
    name = value.get("guard") if isinstance(value, dict) else None
    if isinstance(name, str) and name in KINDS:
        return _get_kind_validator(name).validate_python({name: value})[name]
    entry = find_plugins().get(name) if isinstance(name, str) else None
    return (
        _get_union_validator().validate_python(value)
        if entry is None
        else load_plugin_guard(entry, value)
    )


class _JsonSchemaOfAllKinds:
    def __get_pydantic_json_schema__(
        self, core: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        return handler(_get_union_validator().core_schema)


AnyGuard = Annotated[
    SerializeAsAny[GuardConfig], PlainValidator(_validate_guard), _JsonSchemaOfAllKinds()
]
