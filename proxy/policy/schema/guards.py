"""Guards, under ``input`` and ``output`` of policies, deployments and rules.

Here is what all of them have in common; the keys of each kind stand with its detector.
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
    """What all guards have in common."""

    REQUIREMENTS: ClassVar[tuple[Requirement, ...]] = (
        Requirement(
            one(no(equals("action", "route")), filled("to")),
            "route says where to, and nothing else does",
        ),
        Requirement(
            needs(equals("restore", True), equals("action", "mask")),
            "restore puts back what is masked: it needs action: mask",
        ),
        Requirement(
            needs(filled("restore_hosts"), equals("restore", True)),
            "restore_hosts says where values are put back: it needs restore: true",
        ),
    )

    name: Name | None = None
    """Its name in logs, metrics and refusals; that of its kind where it is not said."""
    action: Action = "block"
    """What its findings lead to: `flag` only notes them; `route` sends a question elsewhere,
    `retry` asks once more for an answer."""
    to: list[TargetConfig] | None = None
    """Where `route` sends the call: targets, tried in order."""
    mode: Literal["enforce", "shadow"] = "enforce"
    """`shadow` counts what it would do, and does nothing."""
    on_error: Literal["closed", "open"] = "closed"
    """Whether a guard that fails, or takes too long, blocks the call."""
    deadline: Duration = 1.0
    """How long it may take for all texts of a call; 1s."""
    roles: list[Role] | None = None
    """Whose messages it looks at; all of them where none is said."""
    fields: list[Kind] | None = None
    """Which kinds of text it looks at; all of them where none is said."""
    message: Annotated[str, StringConstraints(min_length=1, max_length=500)] | None = None
    """What the client reads where a finding stops its call."""
    restore: bool = False
    """Whether what is masked in a question is put back into its answer: the upstream sees
    placeholders, the client its own values."""
    restore_hosts: Annotated[list[Label], Field(max_length=100)] | None = None
    """Hosts whose links and pictures may hold what is put back: `example.com` is that host alone,
    `*.example.com` all below it. In all other addresses placeholders stay."""
    guard: str
    """Its kind."""


COMMON = tuple(name for name in GuardConfig.model_fields if name != "guard")
"""The keys that all guards have."""


@cache
def config_of(word: str) -> type[GuardConfig]:
    """Return the model of the guards of a kind: its own keys beside those that all guards have.

    It is made once, when a policy first names the kind. Raise ``KeyError`` for no kind of ours.
    """
    kind, literal = KINDS[word], cast(Any, Literal)[word]
    return create_model(
        kind.Keys.__name__,
        __base__=(kind.Keys, GuardConfig),
        __doc__=kind.Keys.__doc__,
        guard=(literal, Field(description="Its kind.")),
    )
