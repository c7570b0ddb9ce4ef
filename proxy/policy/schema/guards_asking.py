"""Guards that ask somebody else, a class for each kind; and with them all kinds that there are."""

from __future__ import annotations

from typing import Annotated, Any, Literal, get_args

from pydantic import Field, PlainValidator, StringConstraints, TypeAdapter

from proxy.config.scalars import Duration, Model, Name, SecretRef, Url, text
from proxy.config.shapes import Requirement, equals, has, needs, no
from proxy.policy.schema.guards import GuardConfig, Most, Own, Share
from proxy.policy.schema.plugged import Plugged, installed, read

Prose = Annotated[str, StringConstraints(min_length=1, max_length=8000)]
Category = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_/-]{0,63}$")]


Entity = Annotated[
    str,
    *text("[A-Z][A-Z0-9_]{0,63}", "must be in the analyzer's own words, such as PERSON", "PERSON"),
]
LanguageCode = Annotated[str, *text("[a-z]{2,3}", "must be a language's code, such as en", "en")]


class ByModelConfig(GuardConfig):
    """What all guards have in common that ask a model."""

    deployment: Name
    """Which deployment is asked: without guards, at its own limits and cost."""
    threshold: Share = 0.5
    """How certain it must be."""
    longest: Most = 32_000
    """The most characters that it is shown; of more it cannot tell."""
    deadline: Duration = 10.0
    """How long it may take for all texts of a call; 10s."""


class JudgeConfig(ByModelConfig):
    """Whatever can be said in words, judged by a model."""

    REQUIREMENTS = (
        Requirement(
            needs(equals("check", "criteria"), has("criteria")),
            "must have criteria, or check something else",
        ),
        *(
            Requirement(
                needs(equals("check", check), no(has("criteria"))),
                f"must not have criteria: check {check} has its own",
            )
            for check in ("grounded", "relevant")
        ),
    )

    guard: Literal["judge"]
    """Its kind."""
    check: Literal["criteria", "grounded", "relevant"] = "criteria"
    """By what: your criteria, the call's context, or what its user asked."""
    criteria: Prose | None = None
    """What a text must be or must not be, as you would tell it to a person."""


class PolicyViolationConfig(ByModelConfig):
    """What a policy of your own forbids, judged by a model."""

    guard: Literal["policy_violation"]
    """Its kind."""
    policy: Prose
    """The policy, in words."""


class BiasConfig(ByModelConfig):
    """Prejudice against groups of people, judged by a model."""

    guard: Literal["bias"]
    """Its kind."""


class WebhookConfig(GuardConfig):
    """A service of your own: see `docs/guard-services.md`."""

    guard: Literal["webhook"]
    """Its kind."""
    url: Url
    """Where it is posted to."""
    secret: SecretRef
    """What signs each request, as ${VARIABLE} or file:/path."""
    kinds: list[Name] = Field(default_factory=list)
    """The kinds of findings that it may name; all others count as `other`."""
    deadline: Duration = 2.0
    """How long it may take for all texts of a call; 2s."""


class PresidioConfig(GuardConfig):
    """Personal data, names and places among it, by a Presidio analyzer of your own."""

    guard: Literal["presidio"]
    """Its kind."""
    url: Url
    """The analyzer's address, without `/analyze`."""
    entities: Annotated[list[Entity], Field(min_length=1)] = Field(
        default_factory=lambda: ["PERSON", "LOCATION"]
    )
    """What it looks for, in Presidio's words."""
    language: LanguageCode = "en"
    """The language of the texts."""
    threshold: Share = 0.5
    """How certain it must be."""
    deadline: Duration = 2.0
    """How long it may take for all texts of a call; 2s."""


class ModerationConfig(GuardConfig):
    """Hate, violence, sexual texts and more, by an upstream's moderation endpoint."""

    guard: Literal["moderation"]
    """Its kind."""
    upstream: Name
    """Whose endpoint: an upstream of the dialect openai."""
    model: Model | None = None
    """Its model; the endpoint's own choice where none is said."""
    categories: dict[Category, Share] = Field(default_factory=dict)
    """How certain each category must be; what the endpoint flags where none is said."""
    deadline: Duration = 3.0
    """How long it may take for all texts of a call; 3s."""


Asking = (
    JudgeConfig
    | PolicyViolationConfig
    | BiasConfig
    | WebhookConfig
    | PresidioConfig
    | ModerationConfig
)
Known = Annotated[Own | Asking, Field(discriminator="guard")]
WORDS = frozenset(
    get_args(each.model_fields["guard"].annotation)[0] for each in get_args(Own | Asking)
)
_KNOWN: TypeAdapter[Own | Asking] = TypeAdapter(Known)


def _guard(value: Any) -> Own | Asking | Plugged:
    word = value.get("guard") if isinstance(value, dict) else None
    entry = installed().get(word) if isinstance(word, str) and word not in WORDS else None
    return _KNOWN.validate_python(value) if entry is None else read(entry, value)


AnyGuard = Annotated[Own | Asking | Plugged, PlainValidator(_guard, json_schema_input_type=Known)]
