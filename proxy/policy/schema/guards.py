"""Guards, under ``input`` and ``output`` of policies, deployments and rules: a class for each kind.

The keys of a class, beside those that all have, are those of its detector.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, StringConstraints, WithJsonSchema

from proxy.config.scalars import Duration, Name, PositiveUsd, Section
from proxy.config.shapes import (
    Requirement,
    equals,
    filled,
    has,
    names,
    needs,
    no,
    one,
    some,
)
from proxy.policy.schema.deployments import TargetConfig

Words = Annotated[list[Annotated[str, StringConstraints(min_length=1, max_length=500)]], Field()]
Role = Literal["system", "developer", "user", "assistant", "tool", "function"]
Kind = Literal[
    "arguments", "content", "context", "logprobs", "metadata", "name", "other", "prediction",
    "prompt", "reasoning", "refusal", "schema", "stop", "suffix", "tool", "user",
]  # fmt: skip
Does = Literal["block", "mask", "flag", "route", "retry"]
Share = Annotated[float, Field(ge=0, le=1)]
Most = Annotated[int, Field(ge=1)]
Certain = Annotated[float, Field(gt=0, le=1)]
Label = Annotated[str, StringConstraints(min_length=1, max_length=64)]
FileName = Annotated[str, StringConstraints(min_length=1, max_length=200)]


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
    action: Does = "block"
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
    """What the client reads of a block."""
    restore: bool = False
    """Whether what is masked in a question is put back into its answer: the upstream sees
    placeholders, the client its own values."""
    restore_hosts: Annotated[list[Label], Field(max_length=100)] | None = None
    """Hosts whose links and pictures may hold what is put back: `example.com` is that host alone,
    `*.example.com` all below it. In all other addresses placeholders stay."""


class KeywordsConfig(GuardConfig):
    """Words and patterns that must not be there."""

    guard: Literal["keywords"]
    """Its kind."""
    words: Words = Field(default_factory=list)
    """Words, whole and in any case."""
    patterns: Words = Field(default_factory=list)
    """Patterns in RE2's language, each of them checked for its speed."""
    words_from: FileName | None = None
    """A file in the folder of the policies: a word a line; one that begins with `#` is none."""
    whole_words: bool = True
    """Whether a word counts only where it stands by itself."""


class PiiConfig(GuardConfig):
    """Personal identifiers."""

    guard: Literal["pii"]
    """Its kind."""
    entities: Words = Field(default_factory=lambda: ["email", "phone", "card", "iban", "ssn"])
    """email, phone, card, iban, ssn, ip, or id_XX for the number of a country."""
    regions: Words = Field(default_factory=lambda: ["US", "GB", "DE", "FR", "ES", "IT"])
    """Whose national phone numbers are known."""
    threshold: Share = 0.5
    """How certain it must be."""


class SecretsConfig(GuardConfig):
    """Credentials, by the rules of gitleaks."""

    guard: Literal["secrets"]
    """Its kind."""
    reach: Annotated[int, Field(ge=1200, le=65536)] = 4096
    """The longest credential that is found in a stream, in characters, which are held back."""


class UrlsConfig(GuardConfig):
    """Addresses, by their hosts."""

    guard: Literal["urls"]
    """Its kind."""
    allow: Words = Field(default_factory=list)
    """Hosts that may be there, `*.example.com` with all below; others must not."""
    deny: Words = Field(default_factory=list)
    """Hosts that must not be there."""


class CodeConfig(GuardConfig):
    """Program code."""

    guard: Literal["code"]
    """Its kind."""


class LengthConfig(GuardConfig):
    """Texts that are too long."""

    REQUIREMENTS = (
        Requirement(
            some(has("characters"), has("lines"), has("tokens")),
            "must say characters, lines or tokens",
        ),
    )

    guard: Literal["length"]
    """Its kind."""
    characters: Most | None = None
    """The most characters of one text."""
    lines: Most | None = None
    """The most lines."""
    tokens: Most | None = None
    """The most tokens, by estimate."""


class SpongeConfig(GuardConfig):
    """Texts that repeat themselves to cost time."""

    guard: Literal["sponge"]
    """Its kind."""


class JsonSchemaConfig(GuardConfig):
    """Answers that must be JSON of a schema."""

    guard: Literal["json_schema"]
    """Its kind."""
    json_schema: Annotated[
        dict[str, Any] | Literal[True],
        Field(alias="schema"),
        WithJsonSchema({"anyOf": [{"type": "object"}, {"const": True}]}),
    ] = True
    """The schema; any JSON where none is said."""


class InjectionConfig(GuardConfig):
    """Attempts to give the model other orders, by rules and by a small model."""

    guard: Literal["injection"]
    """Its kind."""
    action: Does = "flag"
    """What its findings lead to; `flag` where it is not said, as it errs."""
    threshold: Share = 0.95
    """How certain it must be."""
    by_rules: bool = True
    """Whether the rules are asked."""
    by_model: bool = True
    """Whether the model is asked."""


class ToxicityConfig(GuardConfig):
    """Insults, profanity, slurs and threats, by a list of words."""

    guard: Literal["toxicity"]
    """Its kind."""
    threshold: Share = 0.4
    """How severe a word must be."""


class NsfwConfig(GuardConfig):
    """Sexual texts, by a list of words."""

    guard: Literal["nsfw"]
    """Its kind."""
    threshold: Share = 0.4
    """How severe a word must be."""


class TopicConfig(GuardConfig):
    """What a text is about, told by the words of examples."""

    guard: Literal["topic"]
    """Its kind."""
    allowed: dict[Name, Words] = Field(default_factory=dict)
    """Topics by examples; a text must be like one of them."""
    banned: dict[Name, Words] = Field(default_factory=dict)
    """Topics by examples; a text must be like none of them."""
    threshold: Share = 0.2
    """How like an example it must be."""


class LanguageConfig(GuardConfig):
    """Languages that may be there, or not, judged in parts of some 80 letters (extra `lang`)."""

    guard: Literal["language"]
    """Its kind."""
    action: Does = "flag"
    """What its findings lead to; `flag` where it is not said, as it errs."""
    allowed: Words = Field(default_factory=list)
    """The only languages that may be there, by their codes: en, de."""
    denied: Words = Field(default_factory=list)
    """Languages that must not be there, where none is allowed alone."""
    threshold: Share = 0.6
    """How certain it must be of a part."""


class OnnxConfig(GuardConfig):
    """What a classifier of your own finds: a folder with `model.onnx`, `tokenizer.json` and
    `config.json`, judged window by window in threads (extra `semantic`)."""

    guard: Literal["onnx"]
    """Its kind."""
    folder: Annotated[str, StringConstraints(min_length=1, max_length=1000)]
    """Where its files are, from the root or from where Headrace was started."""
    labels: Annotated[dict[Label, Certain], Field(min_length=1)]
    """Labels of its `id2label` that are findings, each with the least probability."""


class CopyrightConfig(GuardConfig):
    """Protected texts: long passages of them, and answers that are mostly made of them."""

    guard: Literal["copyright"]
    """Its kind."""
    action: Does = "flag"
    """What its findings lead to; `flag` where it is not said, as quoting may be lawful."""
    texts: list[Annotated[str, StringConstraints(min_length=1)]] = Field(default_factory=list)
    """The texts."""
    texts_from: list[FileName] = Field(default_factory=list)
    """Files in the folder of the policies, each of them a text."""
    words: Annotated[int, Field(ge=5, le=100)] = 20
    """Words in a row that make a passage."""
    share: Share | None = 0.5
    """How much of an answer may be made of their sequences of five words; null to look for passages
    alone, which a stream need not wait for."""


class SystemPromptConfig(GuardConfig):
    """The system prompt of the call, told word for word in its answer."""

    guard: Literal["system_prompt"]
    """Its kind."""
    words: Annotated[int, Field(ge=5, le=100)] = 12
    """Words in a row that are too many; a shorter prompt is found as a whole."""


class GroundedConfig(GuardConfig):
    """Sentences of an answer that the call's `context` does not bear: by words, numbers and names,
    or by a model of your own."""

    guard: Literal["grounded"]
    """Its kind."""
    action: Does = "flag"
    """What its findings lead to; `flag` where it is not said, as it errs."""
    threshold: Certain = 0.5
    """How surely a sentence must lack support."""
    nli: Annotated[str, StringConstraints(min_length=1, max_length=1000)] | None = None
    """A folder as that of `onnx`, whose model judges pairs by entailment and contradiction."""


class RelevantConfig(GuardConfig):
    """Answers that share no word with the call's question, or with its `context`."""

    guard: Literal["relevant"]
    """Its kind."""
    action: Does = "flag"
    """What its findings lead to; `flag` where it is not said, as it errs."""
    threshold: Certain = 0.8
    """How irrelevant an answer must be."""


class EconomicsConfig(GuardConfig):
    """Calls that may cost too much, by the estimate that limits claim. It stands under `input`."""

    REQUIREMENTS = (
        Requirement(
            no(some(names("roles"), names("fields"), names("deadline"))),
            "must not say roles, fields or a deadline: it reads no text",
        ),
    )

    guard: Literal["economics"]
    """Its kind."""
    action: Literal["block", "flag"] = "block"
    """What a call that may cost more leads to: `flag` only notes it."""
    max_cost_usd: PositiveUsd
    """The most that a call may cost, in USD."""


Own = (
    KeywordsConfig
    | PiiConfig
    | SecretsConfig
    | UrlsConfig
    | CodeConfig
    | LengthConfig
    | SpongeConfig
    | JsonSchemaConfig
    | InjectionConfig
    | ToxicityConfig
    | NsfwConfig
    | TopicConfig
    | LanguageConfig
    | OnnxConfig
    | CopyrightConfig
    | SystemPromptConfig
    | GroundedConfig
    | RelevantConfig
    | EconomicsConfig
)
"""Those that look by themselves; ``guards_asking`` has the others."""
COMMON = frozenset(GuardConfig.model_fields)
