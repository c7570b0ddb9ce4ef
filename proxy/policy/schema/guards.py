"""Keys that all guards have, under ``input`` and ``output`` of policies and rules.

The keys of each guard kind are declared with its detector.
"""

from __future__ import annotations

from functools import cache
from typing import Annotated, Any, ClassVar, Literal, cast

from pydantic import Field, StringConstraints, create_model

from proxy.config.scalars import Duration, Label, Name, Section
from proxy.config.shapes import Requirement, equals, filled, needs, no, one
from proxy.guardrails.kinds.table import KINDS
from proxy.policy.schema.deployments import TargetConfig
from proxy.types.guard import Action

Role = Literal["system", "developer", "user", "assistant", "tool", "function"]
Kind = Literal[
    "arguments", "content", "context", "logprobs", "metadata", "name", "other", "prediction",
    "prompt", "reasoning", "refusal", "schema", "stop", "suffix", "tool", "user",
]  # fmt: skip


class GuardConfig(Section):
    """Keys of all guards."""

    REQUIREMENTS: ClassVar[tuple[Requirement, ...]] = (
        Requirement(
            one(no(equals("action", "route")), filled("to")),
            "action: route requires targets under to, and to requires action: route",
        ),
        Requirement(
            needs(equals("restore", True), equals("action", "mask")),
            "restore requires action: mask",
        ),
        Requirement(
            needs(filled("restore_hosts"), equals("restore", True)),
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
    """Processor time for all texts of a call, or time for the answer of a service. Default 1s."""
    roles: list[Role] | None = None
    """Message roles to inspect. Default: all."""
    fields: list[Kind] | None = None
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


COMMON = tuple(name for name in GuardConfig.model_fields if name != "guard")
"""Names of the keys that all guards have."""


@cache
def config_of(word: str) -> type[GuardConfig]:
    """Return the model of a guard kind: its own keys and those of all guards.

    Built once, when a policy first uses the kind. Raise ``KeyError`` for an unknown kind.
    """
    kind, literal = KINDS[word], cast(Any, Literal)[word]
    return create_model(
        kind.Keys.__name__,
        __base__=(kind.Keys, GuardConfig),
        __doc__=kind.Keys.__doc__,
        guard=(literal, Field(description="Guard kind.")),
    )
