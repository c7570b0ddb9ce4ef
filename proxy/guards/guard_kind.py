"""What a kind of guard is: its keys in YAML, and how a detector is made of them.

Other distributions bring ``Keys`` and ``make`` as well, see ``proxy.policy.schema.guards``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any, Generic, TypeVar

from proxy.config.scalars import Section
from proxy.runtime.frozen import frozen
from proxy.types import Secret, Upstream
from proxy.types.detections import DetectionFormat
from proxy.types.guard import AnyDetector, Detector, PromptContext, Service, Stage

K = TypeVar("K", bound=Section)
D_co = TypeVar("D_co", bound=Detector | Service, covariant=True)


def only_under(name: str, stage: Stage) -> str:
    """Return the problem of a guard, an action or a key at the wrong stage."""
    return f"{name} is allowed under {stage} only"


class WrongKey(ValueError):
    """What is wrong with a guard, by the key that says it."""

    def __init__(self, key: str, message: str) -> None:
        super().__init__(message)
        self.key = key


@frozen
class GuardContext:
    """What a guard may need beside its keys: its name and stage, and what those keys refer to
    (``proxy.config.scalars``), by what stands in the keys."""

    name: str = ""
    stage: Stage = "input"
    texts: Mapping[str, str] = field(default_factory=dict)
    secrets: Mapping[str, Secret] = field(default_factory=dict)
    upstreams: Mapping[str, Upstream] = field(default_factory=dict)


NO_CONTEXT = GuardContext()


@frozen
class ByContext(Generic[D_co]):
    """Makes a detector for each call, or None for a call without the context that it needs."""

    about: Callable[[PromptContext], D_co | None]
    lookback: int | None = None


@frozen
class MostCost:
    """What is made of a guard that reads no text: the most that a call may cost, in nano-USD."""

    nano_usd: int


@frozen
class GuardKind(Generic[K]):
    """One kind of guard; the word that policies use for it is in the table of kinds.

    ``Keys`` has its own keys in YAML: what is said of them there is told by editors and the page of
    guards. ``make`` returns a detector, or raises ``ValueError``. ``cased`` gives it texts with
    their capitals; ``fields`` are those that it looks at where the policy names none, and
    ``roles_left_out`` those whose messages it leaves out then. ``answers``
    is true of one for answers alone, ``asks`` of one that asks somebody else. ``detections`` are
    its words for Enkrypt's clients; without them it keeps its own. Of its defaults and ``example``
    the page of guards makes one.
    """

    Keys: type[K]
    make: Callable[[K, GuardContext], AnyDetector | MostCost]
    cased: bool = True
    fields: frozenset[str] | None = None
    roles_left_out: frozenset[str] = frozenset()
    answers: bool = False
    asks: bool = False
    detections: tuple[DetectionFormat, ...] = ()
    example: Mapping[str, Any] = field(default_factory=dict)
