"""Interface of guard kinds: their YAML keys, and the function that makes a detector of them.

Other distributions may add kinds, see ``proxy.policy.schema.guards``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any, Generic, TypeVar

from proxy.config.scalars import Section
from proxy.runtime.frozen import frozen
from proxy.types import Secret, Upstream
from proxy.types.detections import DetectionFormat
from proxy.types.guard import AnyDetector, Detector, PromptContext, ServiceDetector, Stage

K = TypeVar("K", bound=Section)
D_co = TypeVar("D_co", bound=Detector | ServiceDetector, covariant=True)


def make_wrong_stage_message(name: str, allowed_stage: Stage) -> str:
    """Return the error message for a guard, an action or a key at the wrong stage."""
    return f"{name} is allowed under {allowed_stage} only"


class InvalidGuardSetting(ValueError):
    """Invalid value of a YAML key of a guard."""

    def __init__(self, key: str, message: str) -> None:
        super().__init__(message)
        self.key = key


@frozen
class GuardContext:
    """Name and stage of a guard, and the files, secrets and upstreams it refers to.

    Each of these is keyed by the value that refers to it in the policy.
    """

    name: str = ""
    stage: Stage = "input"
    texts: Mapping[str, str] = field(default_factory=dict)
    secrets: Mapping[str, Secret] = field(default_factory=dict)
    upstreams: Mapping[str, Upstream] = field(default_factory=dict)


NO_CONTEXT = GuardContext()


@frozen
class PromptDetectorFactory(Generic[D_co]):
    """Makes a detector for each call, or None for a call without the context that it needs."""

    for_prompt: Callable[[PromptContext], D_co | None]
    lookback: int | None = None
    model_deployment: str | None = None  # deployment of the model that detectors ask


@frozen
class MaxCallCost:
    """Maximum cost of a call in nano-USD, for a guard that inspects no text."""

    nano_usd: int


@frozen
class GuardKind(Generic[K]):
    """One kind of guard. The table of kinds has the name that policies use."""

    Keys: type[K]
    """YAML keys. Editors and the page of guards show their docstrings."""
    make: Callable[[K, GuardContext], AnyDetector | MaxCallCost]
    """Returns a detector. Raises ``ValueError`` or ``InvalidGuardSetting`` for invalid keys."""
    cased: bool = True
    """True if the detector gets texts with their case, not case-folded."""
    fields: frozenset[str] | None = None
    """Kinds of texts that are inspected by default."""
    excluded_roles: frozenset[str] = frozenset()
    """Roles whose messages are skipped by default."""
    is_output_only: bool = False
    """True if the guard is allowed for responses only."""
    calls_service: bool = False
    """True if the guard calls a service."""
    detections: tuple[DetectionFormat, ...] = ()
    """Format of the results for Enkrypt clients."""
    example: Mapping[str, Any] = field(default_factory=dict)
    """Keys of the example on the page of guards, in addition to the defaults."""
