"""Decides which answers travel as frames (`proxy.types.events`); all others are chunks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from proxy.dialects import DIALECTS
from proxy.dialects.base import Dialect
from proxy.dialects.ways import target_endpoint
from proxy.types import Call, Endpoint, Plan, Target
from proxy.types.events import FamilyName

Families = tuple[FamilyName, FamilyName]
"""The families of a client and of the upstream that answers it."""
_UNPARTED: Final[tuple[FamilyName, ...]] = ("embeddings", "stored", "document")
_PARTED: Final[tuple[FamilyName, ...]] = ("chat", "completions", "messages", "responses")
SWITCHED: Final[frozenset[Families]] = frozenset(
    {(client, upstream) for client in _PARTED for upstream in _PARTED}
    | {(name, name) for name in _UNPARTED}
)
"""Pairs of families between which answers are frames."""
OF_ENDPOINTS: Final[Mapping[Endpoint, FamilyName]] = {
    "chat": "chat",
    "completions": "completions",
    "embeddings": "embeddings",
    "responses": "responses",
    "stored": "stored",
    "conversations": "stored",
    "models": "document",
    "count_tokens": "document",
    "passthrough": "document",
}
"""The families of answers, unless a dialect has another form for those with parts."""


def family_name(dialect: Dialect, endpoint: Endpoint) -> FamilyName:
    """Return the family of the answers at an endpoint."""
    family = OF_ENDPOINTS[endpoint]
    return family if family in _UNPARTED else dialect.families.get(endpoint, family)


def client_family(call: Call) -> FamilyName:
    """Return the family in which a call is answered."""
    return family_name(DIALECTS[call.head.dialect], call.head.endpoint)


def families_of(call: Call, target: Target) -> Families:
    """Return the families of a client and of the target that answers it."""
    upstream = DIALECTS[target.upstream.dialect]
    endpoint = target_endpoint(call.head.endpoint, target, upstream)
    return client_family(call), family_name(upstream, endpoint)


def uses_frames(families: Families, call: Call, plan: Plan | None) -> bool:
    """Return True if a target answers a call in frames. Of several models all do or none."""
    if plan is None or len(plan.model_calls) < 2:
        return families in SWITCHED
    targets = [target for model_call in plan.model_calls for target in model_call.targets]
    return all([families_of(call, target) in SWITCHED for target in targets])


def expects_frames(call: Call, plan: Plan | None) -> bool:
    """Return True if the first target of a call answers in frames."""
    if plan is None or not plan.model_calls:
        return False
    return uses_frames(families_of(call, plan.model_calls[0].targets[0]), call, plan)
