"""The one table of request fields.

A row declares a field once. The checks of each dialect, the claim of limits, the cache key, the
texts of guards, the translation between APIs and the pages follow from it. A field that is not here
passes to upstreams that are no gateways, is part of the cache key, and guards read its texts.

Sources: the API references and SDKs that the modules of the dialects name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from types import MappingProxyType
from typing import Any, Literal

from proxy.errors import InvalidField
from proxy.errors.field_problems import NOT_SUPPORTED, STORED_AT_PROVIDER
from proxy.errors.words import MAX_MODELS
from proxy.fields.checks import (
    MAX_TOKENS,
    Fields,
    FieldType,
    anything,
    array,
    boolean,
    choice,
    either,
    integer,
    logit_bias,
    mapping,
    messages,
    must_be_empty,
    number,
    objects,
    prompt,
    required,
    stop,
    string,
    strings,
    tokens,
)
from proxy.runtime.frozen import frozen

APIS = frozenset(
    {"completions", "chat", "responses", "embeddings", "messages", "messages.open"}
    | {"count_tokens", "fireworks", "fireworks.completions", "scale", "scale.completions"}
    | {"conversations", "enkrypt", "multimodel", "any"}
)
"""APIs in which a field has a type.

A vendor's entry lists only its differences from OpenAI. ``messages.open`` is the Messages API of
providers other than Anthropic. A type of ``any`` holds in every API without another one.
"""
Count = Literal["bound", "floor", "budget", "n", "group", "thoughts"]
TextKind = Literal[
    "content", "prompt", "suffix", "prediction", "context", "tool", "schema", "stop", "metadata",
    "user"
]  # fmt: skip
START_OF_DOCUMENT = "<|endoftext|>"  # OpenAI's documented default of ``prompt``
UNBOUNDED = -2  # vLLM and llama.cpp take -1 and -2 as "until the context is full"


@frozen
class RequestField:
    """A request field at the top of the body.

    Attributes:
        types: Type of the value in each API, None where a vendor lacks a field of OpenAI's.
        text: Kind of its texts for guards, ``other`` if None.
        role: Role of its texts for guards.
        cache: ``caller`` omits it from the cache key unless responses are cached by user,
            ``transport`` always: it affects only how a response is sent.
        unknown: If an upstream lacks the field: ``drop`` it with a warning, ``refuse`` the request
            because the response would differ, or ``fulfill`` it in the proxy.
        nothing: Values that mean the same as an absent field, in addition to its default.
        elsewhere: Path of the field in each API that has it under another name. ``to_api`` and
            ``from_api`` rename it.
        also: Other fields with the same meaning.
        allowed: Values that clients may use unless the upstream accepts the field: others may cost
            more than the model's price.
        counts: Effect on the number of output tokens. ``bound`` is an output limit, ``floor`` a
            minimum, ``budget`` a reasoning budget, ``n`` the number of choices. ``group`` is a
            group of options that some servers read as top-level fields, ``thoughts`` such a group
            for reasoning. A number also has a type in ``any``.
        least: Smallest valid output limit or number of choices.
        only_openai: True if only OpenAI itself gets it: Codex names local paths in it.
        is_ambiguous: True if APIs use the name for different things.
    """

    name: str
    types: Mapping[str, FieldType | None]
    text: TextKind | None = None
    role: str | None = None
    cache: Literal["answer", "caller", "transport"] = "answer"
    unknown: Literal["drop", "refuse", "fulfill"] = "drop"
    nothing: tuple[object, ...] = ()
    elsewhere: Mapping[str, str] = field(default_factory=dict)
    also: tuple[str, ...] = ()
    allowed: frozenset[str] = frozenset()
    counts: Count | None = None
    least: int = 0
    only_openai: bool = False
    is_ambiguous: bool = False


def _row(name: str, types: Mapping[str, FieldType | None], **columns: Any) -> RequestField:
    """Return a row whose types are given by one or more APIs, separated by spaces."""
    by_api = {api: field for apis, field in types.items() for api in apis.split()}
    if not APIS.issuperset(by_api):
        raise ValueError(f"{name} has a type for an unknown API: {sorted(by_api.keys() - APIS)}")
    return RequestField(name=name, types=by_api, **columns)


_PENALTY = number(-2, 2, default=0)
_SEED = integer(-(2**63), 2**63 - 1)
_BOUND = integer(UNBOUNDED, MAX_TOKENS)
_SHARE = number(0, 1, default=1)
_TEXT_OR_OBJECTS = either(string(), objects())
_WORD_OR_OBJECT = either(string(), mapping())
_ONE_OR_MORE = array(str, f"an array of 1 to {MAX_MODELS} strings", 1, MAX_MODELS)
_SERVICE_TIERS = frozenset({"auto", "default", "flex", "on_demand", "standard_only"})

ROWS: tuple[RequestField, ...] = (
    _row("model",
         {"completions chat responses embeddings messages count_tokens": required(string()),
         "multimodel": required(either(string(), _ONE_OR_MORE))}),
    _row("access_programs", {"responses": mapping()}),
    _row("audio", {"chat scale": mapping()}, unknown="refuse"),
    _row("background", {"responses": boolean()}, unknown="refuse"),
    _row("best_of", {"completions": integer(0, 20, default=1), "fireworks": None, "any": tokens(0)},
         counts="n"),
    _row("cache_control", {"messages count_tokens": mapping()}),
    _row("client_metadata", {"responses": mapping()}, text="metadata", cache="caller",
         only_openai=True),
    _row("container", {"messages": _WORD_OR_OBJECT}, unknown="refuse"),
    _row("context", {"enkrypt": string()}, text="context"),
    _row("context_length_exceeded_behavior",
         {"fireworks": choice("truncate", "error", default="truncate")}),
    _row("context_management", {"responses": objects(), "messages count_tokens": mapping()},
         is_ambiguous=True),
    _row("conversation", {"responses": _WORD_OR_OBJECT}),
    _row("diagnostics", {"messages": mapping()}),
    _row("dimensions", {"embeddings": integer(1)}),
    _row("echo", {"completions": boolean()}, unknown="refuse"),
    _row("encoding_format", {"embeddings": choice("float", "base64", default="float")}),
    _row("enkrypt_context", {"enkrypt": string()}, text="context", also=("context",)),
    _row("frequency_penalty", {"completions chat multimodel": _PENALTY}),
    _row("function_call", {"chat": _WORD_OR_OBJECT}, text="tool", unknown="refuse",
         nothing=("none", "auto")),
    _row("functions", {"chat": objects()}, text="tool", unknown="refuse", nothing=([],)),
    _row("guided_choice", {"scale": strings()}, text="schema", unknown="refuse"),
    _row("guided_grammar", {"scale": string()}, text="schema", unknown="refuse"),
    _row("guided_json", {"scale": mapping()}, text="schema", unknown="refuse"),
    _row("guided_regex", {"scale": string()}, text="schema", unknown="refuse"),
    _row("ignore_eos", {"fireworks": boolean()}),
    _row("image", {"responses": mapping()}),
    _row("images", {"fireworks.completions": strings()}, unknown="refuse"),
    _row("include", {"responses": strings()}),
    _row("include_stop_str_in_output", {"scale": boolean()}),
    _row("inference_extra_headers", {"scale": mapping()}, text="metadata"),
    _row("inference_extra_params", {"scale": mapping(), "any": anything()}, counts="group"),
    _row("inference_geo", {"messages": string()}, unknown="refuse", allowed=frozenset({"global"})),
    _row("inference_timeout", {"scale any": number(0)}, cache="transport", unknown="fulfill"),
    _row("input", {"responses": _TEXT_OR_OBJECTS, "embeddings": required(prompt())}, text="prompt",
         role="user"),
    _row("instructions", {"responses": string()}, text="content", role="system"),
    _row("items", {"conversations": objects()}),
    _row("logit_bias", {"completions chat": logit_bias()}, nothing=({},)),
    _row("logprobs", {"completions": integer(0, 5), "chat scale": boolean(),
         "fireworks": either(integer(0, 5), boolean()),
         "scale.completions": either(boolean(), integer(0, 5))}),
    _row("max_tokens", {"completions scale": tokens(0),
         "chat enkrypt fireworks multimodel": tokens(1),
         "messages messages.open": required(tokens(0)), "any": _BOUND}, counts="bound"),
    _row("max_completion_tokens", {"chat fireworks scale": tokens(1), "any": _BOUND},
         counts="bound"),
    _row("max_new_tokens", {"scale multimodel": tokens(1), "any": _BOUND}, counts="bound"),
    _row("max_output_tokens", {"responses": tokens(1), "any": _BOUND}, counts="bound"),
    _row("max_tool_calls", {"responses": integer(0)}),
    _row("mcp_servers", {"messages count_tokens": objects()}, unknown="refuse"),
    _row("messages", {"chat messages count_tokens": required(messages())}, text="content"),
    _row("metadata", {"chat responses messages conversations": mapping()}, text="metadata",
         cache="caller"),
    _row("min_p", {"fireworks": number(0, 1)}),
    _row("mirostat_lr", {"fireworks": number(default=0.1)}),
    _row("mirostat_target", {"fireworks": number(default=1.5)}),
    _row("modalities", {"chat": strings(), "scale": strings("text", "audio")}, unknown="refuse",
         nothing=(["text"],)),
    _row("moderation", {"responses": mapping()}),
    _row("n", {"completions chat enkrypt": integer(1, 128, 1), "scale": integer(1, MAX_TOKENS, 1),
         "any": tokens(1)}, unknown="refuse", counts="n", least=1),
    _row("output_config", {"messages count_tokens": mapping()}),
    _row("parallel_tool_calls", {"chat responses scale": boolean(default=True)},
         also=("tool_choice",)),
    _row("perf_metrics_in_response", {"fireworks": boolean()}),
    _row("prediction", {"chat scale": mapping(), "fireworks": either(mapping(), string())},
         text="prediction"),
    _row("presence_penalty", {"completions chat multimodel": _PENALTY}),
    _row("previous_response_id", {"responses": string()}),
    _row("prompt", {"completions": prompt(START_OF_DOCUMENT),
         "fireworks.completions scale.completions": required(prompt()),
         "multimodel": required(string()),
         "responses": must_be_empty(mapping(), STORED_AT_PROVIDER)},
         text="prompt", role="user", also=("messages", "input")),
    _row("prompt_cache_isolation_key", {"fireworks": string()}, text="user"),
    _row("prompt_cache_key", {"chat responses fireworks": string()}, text="user"),
    _row("prompt_cache_options", {"responses": mapping()}),
    _row("prompt_cache_retention", {"responses": string()}),
    _row("raw_output", {"fireworks": boolean()}),
    _row("reasoning", {"responses": mapping(), "any": anything()}, counts="thoughts"),
    _row("reasoning_effort", {"chat": string(),
         "fireworks": either(string(), integer(), boolean())},
         elsewhere={"messages": "output_config.effort", "responses": "reasoning.effort"},
         also=("thinking",)),
    _row("repetition_penalty", {"fireworks": number(0, 2, default=1)}),
    _row("response_format", {"chat fireworks scale": mapping()}, text="schema", unknown="refuse",
         nothing=({"type": "text"},),
         elsewhere={"messages": "output_config.format", "responses": "text.format"}),
    _row("return_token_ids", {"fireworks": boolean()}),
    _row("return_token_log_probs", {"scale": boolean()}),
    _row("safety_identifier", {"chat responses": string()}, text="user", cache="caller"),
    _row("seed", {"completions chat scale": _SEED}),
    _row("service_tier", {"chat responses messages fireworks": string()}, allowed=_SERVICE_TIERS),
    _row("speed", {"messages count_tokens": string()}, allowed=frozenset({"standard"})),
    _row("stop", {"completions chat": stop(), "multimodel": strings()}, text="stop",
         unknown="refuse", nothing=([],), elsewhere={"messages": "stop_sequences"}),
    _row("stop_sequences", {"messages scale": strings()}, text="stop"),
    _row("store", {"chat": boolean(), "responses": boolean(default=True)}),
    _row("stream", {"completions chat responses messages any": boolean()}, cache="transport"),
    _row("stream_options", {"completions chat responses any": mapping()}, cache="transport"),
    _row("suffix", {"completions": string(), "fireworks": None}, text="suffix", role="user",
         unknown="refuse", nothing=("",)),
    _row("system", {"messages count_tokens": _TEXT_OR_OBJECTS}, text="content", role="system"),
    _row("temperature", {"completions chat responses": number(0, 2, default=1), "messages": _SHARE,
         "messages.open scale": number(0, default=1), "multimodel": number(0, 1), "any": number()}),
    _row("text", {"responses": mapping()}, text="schema"),
    _row("thinking", {"messages count_tokens": mapping(), "any": anything()}, counts="thoughts"),
    _row("thread", {"messages": must_be_empty(mapping(), STORED_AT_PROVIDER)}),
    _row("tool_choice", {"chat responses": _WORD_OR_OBJECT, "messages count_tokens": mapping(),
         "scale": either(choice("none", "auto", "required"), mapping())}, text="tool",
         unknown="refuse", nothing=("none", "auto")),
    _row("tools", {"chat responses messages count_tokens scale": objects()}, text="tool",
         unknown="refuse", nothing=([],)),
    _row("top_k", {"fireworks": integer(1, 128), "messages messages.open": integer(0),
         "scale": integer(-1, default=-1)}, nothing=(-1, 0)),
    _row("top_logprobs", {"chat responses scale": integer(0, 20), "fireworks": integer(0, 5)},
         also=("logprobs", "return_token_log_probs")),
    _row("top_p", {"completions chat responses messages multimodel": _SHARE,
         "messages.open": number(0, default=1), "any": number()}),
    _row("truncation", {"responses": string()}, nothing=("disabled",)),
    _row("typical_p", {"fireworks": number(0, 1)}),
    _row("user", {"completions chat responses embeddings any": string()}, text="user",
         cache="caller", elsewhere={"messages": "metadata.user_id"}),
    _row("verbosity", {"chat": string()}, elsewhere={"responses": "text.verbosity"}),
    _row("web_search_options", {"chat": mapping()}, text="tool", unknown="refuse"),
)  # fmt: skip

_BOUNDS = (
    *("max_length", "max_tokens_to_sample", "max_tokens_to_generate", "max_token_count"),
    *("max_gen_len", "max_decode_tokens", "n_predict", "request_output_len"),
)
_FLOORS = ("min_tokens", "min_new_tokens", "min_length")
_BUDGETS = (
    *("budget_tokens", "max_reasoning_tokens", "max_thinking_tokens", "reasoning_budget"),
    *("reasoning_budget_tokens", "thinking_budget", "thinking_budget_tokens"),
    *("thinking_token_budget", "token_budget"),
)
_CHOICES = ("candidate_count", "n_cmpl", "num_generations", "num_results", "num_return_sequences")
_GROUPS = (
    *("additional_model_request_fields", "chat_template_kwargs", "custom_params", "extra_body"),
    *("generation_config", "google", "inference_config", "model_kwargs", "nvext", "options"),
    *("parameters", "sampling_params", "text_generation_config", "vllm_xargs"),
)
OF_SERVERS: tuple[RequestField, ...] = (
    *(_row(name, {"any": _BOUND}, counts="bound") for name in _BOUNDS),
    _row("num_predict", {"any": _BOUND}, counts="bound", least=1),
    *(_row(name, {"any": tokens(0)}, counts="floor") for name in _FLOORS),
    *(_row(name, {"any": _BOUND}, counts="budget") for name in _BUDGETS),
    *(_row(name, {"any": tokens(1)}, counts="n", least=1) for name in _CHOICES),
    *(_row(name, {"any": anything()}, counts="group") for name in _GROUPS),
    _row("reasoning_config", {"any": anything()}, counts="thoughts"),
    _row("thinking_config", {"any": anything()}, counts="thoughts"),
)
"""Fields of other servers that bound the tokens of a response."""

FIELDS: Mapping[str, RequestField] = MappingProxyType(
    {row.name: row for row in (*ROWS, *OF_SERVERS)}
)
UNDECLARED = RequestField(name="", types={})
SAME_FIELD: tuple[tuple[str, ...], ...] = (
    *(
        (row.name, *(path.partition(".")[0] for path in row.elsewhere.values()), *row.also)
        for row in ROWS
        if row.elsewhere or row.also
    ),
    tuple(row.name for row in FIELDS.values() if row.counts == "bound"),
)
"""Names of the same field in several APIs. Errors name the first one that the request has."""
ALIKE = frozenset(name for names in SAME_FIELD for name in names)
LIMITED = frozenset(row.name for row in ROWS if row.allowed)
"""Fields for which clients may use only listed values."""


def fields_of(*apis: str) -> Fields:
    """Return the fields of an API, required ones first.

    A later API replaces the types of an earlier one.
    """
    fields: dict[str, FieldType] = {}
    for row in FIELDS.values():
        for api in apis:
            field = row.types.get(api, fields.get(row.name))
            if field is not None:
                fields[row.name] = field
            else:
                fields.pop(row.name, None)
    return dict(sorted(fields.items(), key=lambda item: not item[1].required))


Json = dict[str, Any]
Conversions = Mapping[str, Callable[[Any], Any]]
"""Functions that return a value as the other API has it, by the chat's name of the field. None
leaves the field out."""
PATHS: Mapping[str, tuple[tuple[str, str, str], ...]] = {
    api: tuple(
        (row.name, *row.elsewhere[api].partition(".")[::2]) for row in ROWS if api in row.elsewhere
    )
    for api in ("messages", "responses")
}
"""For each API: names of chat fields, and the field and member to which they correspond."""


def to_api(body: Json, api: str, conversions: Conversions) -> Json:
    """Return a copy of a chat request with its fields renamed for another API.

    Raises ``InvalidField``.
    """
    renamed = dict(body)
    for name, api_field, member in PATHS[api]:
        value = renamed.pop(name, None)
        if value is not None and name in conversions:
            value = conversions[name](value)
        if value is None:
            continue
        group = renamed.get(api_field) if member else None
        if not isinstance(group, dict | None):
            raise InvalidField(api_field, NOT_SUPPORTED)
        renamed[api_field] = {**(group or {}), member: value} if member else value
    return renamed


def from_api(body: Json, api: str, conversions: Conversions) -> tuple[Json, set[str]]:
    """Return the chat fields of a request of another API, and the fields with removed members."""
    chat: Json = {}
    members_by_field: dict[str, set[str]] = {}
    for name, api_field, member in PATHS[api]:
        value = body.get(api_field)
        if member:
            members_by_field.setdefault(api_field, set()).add(member)
            value = value.get(member) if isinstance(value, dict) else None
        if value is not None and name in conversions:
            value = conversions[name](value)
        if value is not None:
            chat[name] = value
    return chat, {
        api_field
        for api_field, members in members_by_field.items()
        if has_other(body.get(api_field), members)
    }


def has_other(value: Any, members: set[str]) -> bool:
    """Return True if an object has values outside ``members``."""
    other_members = value.keys() - members if isinstance(value, dict) else ()
    return any(value[name] not in (None, [], {}) for name in other_members)
