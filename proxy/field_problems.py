"""Problems of request fields that several modules report, each worded once.

A problem is a clause that follows the name of its field: ``model: must be a string``.
"""

from __future__ import annotations

from collections.abc import Collection

from proxy.words import MAX_NAME, ascii_word, listed

BAD_NAME = f"must be a string of at most {MAX_NAME} characters"
NEEDS_LOGPROBS = "requires logprobs: true"
NOT_ALLOWED = "clients may not set this field"
NOT_SUPPORTED = "this value is not supported by the upstream that serves this model"
STORED_AT_PROVIDER = (
    "must not refer to content stored at the provider, because guards cannot inspect it"
)


def missing(expected: str) -> str:
    """Return the problem of a required field, which must be what ``expected`` describes."""
    return f"is required and must be {expected}"


def conflicts_with(other: str) -> str:
    return f"cannot be combined with {other}"


def unsupported_type(kind: object) -> str:
    """Return the problem of a part whose type the upstream's API lacks."""
    return f'type "{ascii_word(str(kind))}" is not supported by the upstream that serves this model'


def no_endpoint(endpoint: str) -> str:
    """Return the problem of a model whose upstream lacks an endpoint."""
    return f"the upstream that serves this model has no {endpoint} endpoint"


def ambiguous(subject: str, deployments: Collection[str]) -> str:
    """Return the problem of a call that several deployments can serve."""
    names = listed(sorted(deployments))
    return (
        f"{subject} is served by several deployments ({names}). "
        "Choose one with the header x-headrace-deployment."
    )
