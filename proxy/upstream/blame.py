"""Whose fault it is that an upstream does not know what it is asked for: the client's, where that
named something that the upstream keeps, else the policy's, as a deployment names model and path.
"""

from __future__ import annotations

from collections import deque
from typing import Any
from urllib.parse import parse_qsl

from proxy.errors import UpstreamNotFound, UpstreamRefused
from proxy.types import Call, Target

UNKNOWN = frozenset({404, 405, 410})
MODEL_CODES = frozenset(
    {
        "DeploymentNotFound",
        "invalid_model",
        "model_decommissioned",
        "model_not_active",
        "model_not_available",
        "model_not_found",
        "unknown_model",
    }
)
"""The codes, or types, by which upstreams say, under any status, that they do not know the model.
"""
KEPT_SUFFIXES = ("_id", "_ids", "_file")
KEPT_NAMES = frozenset({"container", "conversation", "file"})
OF_OTHERS = frozenset({"args", "arguments", "metadata"})
"""Members whose names are those of a client's own things."""
OWN_IDS = frozenset({"call_id", "tool_call_id", "tool_use_id", "user_id"})
"""Ids that name nothing that an upstream keeps."""
NO_NAMES = frozenset({"include", "include[]", "limit", "order", "purpose"})
"""What a query may say without naming a thing."""
MOST_VALUES = 10_000  # of a body that are looked at


def blame(error: UpstreamRefused, call: Call, target: Target) -> UpstreamRefused:
    """Return the error of an upstream that finds a request at fault, or one of another kind where
    the fault is that of the policy, which names a model or a path that the upstream does not know.
    """
    if not _is_policys_fault(error, call, target):
        return error
    status = error.upstream_status or error.status
    found = UpstreamNotFound(error.message, upstream_status=status, param=error.param)
    vars(found).update(vars(error), should_retry=False)
    return found


def _is_policys_fault(error: UpstreamRefused, call: Call, target: Target) -> bool:
    if error.upstream_code in MODEL_CODES or error.upstream_type in MODEL_CODES:
        return error.param in (None, "model")  # elsewhere stands a model that the client names
    if error.upstream_status not in UNKNOWN:
        return False
    if not error.in_words and call.head.passed is None:
        return True  # some balancer that has lost what is behind it
    if _is_about_what_is_kept(call):
        return False
    return target.model in error.message or not _has_ids(call.body)


def _is_about_what_is_kept(call: Call) -> bool:
    """True if a client says in the path or its query which thing of those that an upstream keeps is
    meant, or leans on one."""
    passed = call.head.passed
    if passed is not None and (passed.path != call.head.route or _names_any(passed.query)):
        return True
    return call.pin is not None


def _names_any(query: str) -> bool:
    """True if a query names a thing, such as the one after which a page begins."""
    return any(name not in NO_NAMES for name, _ in parse_qsl(query))


def _has_ids(body: dict[str, Any]) -> bool:
    """True if a field of a body names something that an upstream keeps, as far as is looked."""
    values: deque[Any] = deque((body,))
    for _ in range(MOST_VALUES):
        if not values:
            return False
        value = values.popleft()
        if isinstance(value, dict):
            if any(_is_id(name, value[name]) for name in value):
                return True
            values.extend(value[name] for name in value if name not in OF_OTHERS)
        elif isinstance(value, list):
            values.extend(value)
    return False


def _is_id(name: str, value: Any) -> bool:
    """True if a member names something. What describes a tool's argument is an object."""
    if name in OWN_IDS or not (name in KEPT_NAMES or name.endswith(KEPT_SUFFIXES)):
        return False
    return bool(value) and (isinstance(value, (str, list)))
