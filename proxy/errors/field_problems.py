"""Problems of requests that several modules report, each worded once.

The problem of a field is a clause that follows its name: ``model: must be a string``.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from proxy.errors.words import MAX_NAME, join_names, shorten_to_ascii

BAD_NAME = f"must be a string of at most {MAX_NAME} characters"
NEEDS_LOGPROBS = "requires logprobs: true"
NOT_ALLOWED = "clients may not set this field"
NOT_DECLARED = (
    'clients may not set this field, unless the path lists it under "fields" or the upstream '
    "accepts it"
)
NOT_SUPPORTED = "this value is not supported by the upstream that serves this model"
STORED_AT_PROVIDER = (
    "must not refer to content stored at the provider, because guards cannot inspect it"
)


def describe_missing_field(expected: str) -> str:
    """Return the problem of a required field, which must be what ``expected`` describes."""
    return f"is required and must be {expected}"


def describe_conflict(field: str) -> str:
    return f"cannot be combined with {field}"


def describe_unsupported_type(kind: object) -> str:
    """Return the problem of a part whose type the upstream's API lacks."""
    name = shorten_to_ascii(str(kind))
    return f'type "{name}" is not supported by the upstream that serves this model'


def describe_missing_endpoint(endpoint: str) -> str:
    """Return the problem of a model whose upstream lacks an endpoint."""
    return f"the upstream that serves this model has no {endpoint} endpoint"


def describe_large_body(max_bytes: int) -> str:
    """Return the message for a body of more than ``max_bytes``."""
    return f"The request body must not exceed {max_bytes} bytes."


def describe_unusable_deployment(name: str, problem: str = "does not exist") -> str:
    """Return the message for a deployment that a key cannot use."""
    return f'Deployment "{shorten_to_ascii(name)}" {problem}, or this key may not use it.'


def describe_unserved_models(models: Sequence[str], where: str = "") -> str:
    """Return the message for models that no deployment of a key serves."""
    several, together = ("s", " together") if len(models) > 1 else ("", "")
    return (
        f"No deployment of this key serves the model{several} {join_names(models)}{together}"
        f"{where}. GET /v1/models lists the models of this key."
    )


def describe_ambiguity(subject: str, deployments: Collection[str]) -> str:
    """Return the problem of a call that several deployments can serve."""
    names = join_names(sorted(deployments))
    return (
        f"{subject} is served by several deployments ({names}). "
        "Choose one with the header x-headrace-deployment."
    )
