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
from typing import Any, Literal, NamedTuple

from proxy.errors import InvalidField
from proxy.errors.field_problems import NOT_SUPPORTED, STORED_AT_PROVIDER
from proxy.errors.words import MAX_MODELS
from proxy.fields.checks import (
    MAX_TOKENS,
    Fields,
    FieldType,
    any_of,
    anything,
    array,
    boolean,
    choice,
    integer,
    logit_bias,
    make_required,
    mapping,
    messages,
    number,
    object_array,
    prompt,
    require_empty,
    stop_sequences,
    string,
    string_array,
    token_count,
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
    """A request field at the top of the body."""

    name: str
    types: Mapping[str, FieldType | None]
    """Type of the value by API, None where a vendor lacks a field of OpenAI's."""

    # Guards and cache
    text: TextKind | None = None
    """Kind of its texts for guards, ``other`` if None."""
    role: str | None = None
    """Role of its texts for guards."""
    cache: Literal["answer", "caller", "transport"] = "answer"
    """``caller`` omits the field from the cache key unless responses are cached by user.

    ``transport`` always omits it, because it affects only how a response is sent.
    """

    # Translation
    unknown: Literal["drop", "refuse", "fulfill"] = "drop"
    """If an upstream lacks the field: drop it with a warning, refuse the request because the
    response would differ, or fulfill it in the proxy."""
    neutral_values: tuple[object, ...] = ()
    """Values that mean the same as an absent field, in addition to its default."""
    path_by_api: Mapping[str, str] = field(default_factory=dict)
    """Path of the field in each API that has it under another name."""
    aliases: tuple[str, ...] = ()
    """Other fields with the same meaning."""
    client_values: frozenset[str] = frozenset()
    """Values that clients may use. Others may cost more than the model's price, so the upstream
    must accept the field."""
    only_openai: bool = False
    """Only OpenAI itself gets the field, because Codex names local paths in it."""
    is_ambiguous: bool = False
    """APIs use the name for different things."""

    # Token bounds
    count_role: Count | None = None
    """Effect on the number of output tokens. A number also has a type in ``any``.

    ``bound`` is an output limit, ``floor`` a minimum, ``budget`` a reasoning budget, ``n`` the
    number of choices. ``group`` is a group of options that some servers read as top-level fields,
    ``thoughts`` such a group for reasoning.
    """
    minimum: int = 0
    """Smallest valid output limit or number of choices."""


def _field(name: str, types: Mapping[str, FieldType | None], **columns: Any) -> RequestField:
    """Return a row whose types are given by one or more APIs, separated by spaces."""
    by_api = {api: field for apis, field in types.items() for api in apis.split()}
    if not APIS.issuperset(by_api):
        raise ValueError(f"{name} has a type for an unknown API: {sorted(by_api.keys() - APIS)}")
    return RequestField(name=name, types=by_api, **columns)


_PENALTY = number(-2, 2, default=0)
_SEED = integer(-(2**63), 2**63 - 1)
_TOKENS = integer(UNBOUNDED, MAX_TOKENS)
_PROBABILITY = number(0, 1, default=1)
_TEXT_OR_OBJECTS = any_of(string(), object_array())
_WORD_OR_OBJECT = any_of(string(), mapping())
_ONE_OR_MORE = array(str, f"an array of 1 to {MAX_MODELS} strings", 1, MAX_MODELS)
_SERVICE_TIERS = frozenset({"auto", "default", "flex", "on_demand", "standard_only"})

ROWS: tuple[RequestField, ...] = (
    _field("model",
         {"completions chat responses embeddings messages count_tokens": make_required(string()),
         "multimodel": make_required(any_of(string(), _ONE_OR_MORE))}),
    _field("access_programs", {"responses": mapping()}),
    _field("audio", {"chat scale": mapping()}, unknown="refuse"),
    _field("background", {"responses": boolean()}, unknown="refuse"),
    _field("best_of", {"completions": integer(0, 20, default=1), "fireworks": None,
           "any": token_count(0)}, count_role="n"),
    _field("cache_control", {"messages count_tokens": mapping()}),
    _field("client_metadata", {"responses": mapping()}, text="metadata", cache="caller",
         only_openai=True),
    _field("container", {"messages": _WORD_OR_OBJECT}, unknown="refuse"),
    _field("context", {"enkrypt": string()}, text="context"),
    _field("context_length_exceeded_behavior",
         {"fireworks": choice("truncate", "error", default="truncate")}),
    _field("context_management", {"responses": object_array(), "messages count_tokens": mapping()},
         is_ambiguous=True),
    _field("conversation", {"responses": _WORD_OR_OBJECT}),
    _field("diagnostics", {"messages": mapping()}),
    _field("dimensions", {"embeddings": integer(1)}),
    _field("echo", {"completions": boolean()}, unknown="refuse"),
    _field("encoding_format", {"embeddings": choice("float", "base64", default="float")}),
    _field("enkrypt_context", {"enkrypt": string()}, text="context", aliases=("context",)),
    _field("frequency_penalty", {"completions chat multimodel": _PENALTY}),
    _field("function_call", {"chat": _WORD_OR_OBJECT}, text="tool", unknown="refuse",
         neutral_values=("none", "auto")),
    _field("functions", {"chat": object_array()}, text="tool", unknown="refuse",
           neutral_values=([],)),
    _field("guided_choice", {"scale": string_array()}, text="schema", unknown="refuse"),
    _field("guided_grammar", {"scale": string()}, text="schema", unknown="refuse"),
    _field("guided_json", {"scale": mapping()}, text="schema", unknown="refuse"),
    _field("guided_regex", {"scale": string()}, text="schema", unknown="refuse"),
    _field("ignore_eos", {"fireworks": boolean()}),
    _field("image", {"responses": mapping()}),
    _field("images", {"fireworks.completions": string_array()}, unknown="refuse"),
    _field("include", {"responses": string_array()}),
    _field("include_stop_str_in_output", {"scale": boolean()}),
    _field("inference_extra_headers", {"scale": mapping()}, text="metadata"),
    _field("inference_extra_params", {"scale": mapping(), "any": anything()}, count_role="group"),
    _field("inference_geo", {"messages": string()}, unknown="refuse",
           client_values=frozenset({"global"})),
    _field("inference_timeout", {"scale any": number(0)}, cache="transport", unknown="fulfill"),
    _field("input", {"responses": _TEXT_OR_OBJECTS, "embeddings": make_required(prompt())},
           text="prompt", role="user"),
    _field("instructions", {"responses": string()}, text="content", role="system"),
    _field("items", {"conversations": object_array()}),
    _field("logit_bias", {"completions chat": logit_bias()}, neutral_values=({},)),
    _field("logprobs", {"completions": integer(0, 5), "chat scale": boolean(),
         "fireworks": any_of(integer(0, 5), boolean()),
         "scale.completions": any_of(boolean(), integer(0, 5))}),
    _field("max_tokens", {"completions scale": token_count(0),
         "chat enkrypt fireworks multimodel": token_count(1),
         "messages messages.open": make_required(token_count(0)), "any": _TOKENS},
         count_role="bound"),
    _field("max_completion_tokens", {"chat fireworks scale": token_count(1), "any": _TOKENS},
         count_role="bound"),
    _field("max_new_tokens", {"scale multimodel": token_count(1), "any": _TOKENS},
           count_role="bound"),
    _field("max_output_tokens", {"responses": token_count(1), "any": _TOKENS}, count_role="bound"),
    _field("max_tool_calls", {"responses": integer(0)}),
    _field("mcp_servers", {"messages count_tokens": object_array()}, unknown="refuse"),
    _field("messages", {"chat messages count_tokens": make_required(messages())}, text="content"),
    _field("metadata", {"chat responses messages conversations": mapping()}, text="metadata",
         cache="caller"),
    _field("min_p", {"fireworks": number(0, 1)}),
    _field("mirostat_lr", {"fireworks": number(default=0.1)}),
    _field("mirostat_target", {"fireworks": number(default=1.5)}),
    _field("modalities", {"chat": string_array(), "scale": string_array("text", "audio")},
           unknown="refuse", neutral_values=(["text"],)),
    _field("moderation", {"responses": mapping()}),
    _field("n", {"completions chat enkrypt": integer(1, 128, 1), "scale": integer(1, MAX_TOKENS, 1),
         "any": token_count(1)}, unknown="refuse", count_role="n", minimum=1),
    _field("output_config", {"messages count_tokens": mapping()}),
    _field("parallel_tool_calls", {"chat responses scale": boolean(default=True)},
         aliases=("tool_choice",)),
    _field("perf_metrics_in_response", {"fireworks": boolean()}),
    _field("prediction", {"chat scale": mapping(), "fireworks": any_of(mapping(), string())},
         text="prediction"),
    _field("presence_penalty", {"completions chat multimodel": _PENALTY}),
    _field("previous_response_id", {"responses": string()}),
    _field("prompt", {"completions": prompt(START_OF_DOCUMENT),
         "fireworks.completions scale.completions": make_required(prompt()),
         "multimodel": make_required(string()),
         "responses": require_empty(mapping(), STORED_AT_PROVIDER)},
         text="prompt", role="user", aliases=("messages", "input")),
    _field("prompt_cache_isolation_key", {"fireworks": string()}, text="user"),
    _field("prompt_cache_key", {"chat responses fireworks": string()}, text="user"),
    _field("prompt_cache_options", {"responses": mapping()}),
    _field("prompt_cache_retention", {"responses": string()}),
    _field("raw_output", {"fireworks": boolean()}),
    _field("reasoning", {"responses": mapping(), "any": anything()}, count_role="thoughts"),
    _field("reasoning_effort", {"chat": string(),
         "fireworks": any_of(string(), integer(), boolean())},
         path_by_api={"messages": "output_config.effort", "responses": "reasoning.effort"},
         aliases=("thinking",)),
    _field("repetition_penalty", {"fireworks": number(0, 2, default=1)}),
    _field("response_format", {"chat fireworks scale": mapping()}, text="schema", unknown="refuse",
         neutral_values=({"type": "text"},),
         path_by_api={"messages": "output_config.format", "responses": "text.format"}),
    _field("return_token_ids", {"fireworks": boolean()}),
    _field("return_token_log_probs", {"scale": boolean()}),
    _field("safety_identifier", {"chat responses": string()}, text="user", cache="caller"),
    _field("seed", {"completions chat scale": _SEED}),
    _field("service_tier", {"chat responses messages fireworks": string()},
           client_values=_SERVICE_TIERS),
    _field("speed", {"messages count_tokens": string()}, client_values=frozenset({"standard"})),
    _field("stop", {"completions chat": stop_sequences(), "multimodel": string_array()},
           text="stop", unknown="refuse", neutral_values=([],),
           path_by_api={"messages": "stop_sequences"}),
    _field("stop_sequences", {"messages scale": string_array()}, text="stop"),
    _field("store", {"chat": boolean(), "responses": boolean(default=True)}),
    _field("stream", {"completions chat responses messages any": boolean()}, cache="transport"),
    _field("stream_options", {"completions chat responses any": mapping()}, cache="transport"),
    _field("suffix", {"completions": string(), "fireworks": None}, text="suffix", role="user",
         unknown="refuse", neutral_values=("",)),
    _field("system", {"messages count_tokens": _TEXT_OR_OBJECTS}, text="content", role="system"),
    _field("temperature", {"completions chat responses": number(0, 2, default=1),
           "messages": _PROBABILITY,
         "messages.open scale": number(0, default=1), "multimodel": number(0, 1), "any": number()}),
    _field("text", {"responses": mapping()}, text="schema"),
    _field("thinking", {"messages count_tokens": mapping(), "any": anything()},
           count_role="thoughts"),
    _field("thread", {"messages": require_empty(mapping(), STORED_AT_PROVIDER)}),
    _field("tool_choice", {"chat responses": _WORD_OR_OBJECT, "messages count_tokens": mapping(),
         "scale": any_of(choice("none", "auto", "required"), mapping())}, text="tool",
         unknown="refuse", neutral_values=("none", "auto")),
    _field("tools", {"chat responses messages count_tokens scale": object_array()}, text="tool",
         unknown="refuse", neutral_values=([],)),
    _field("top_k", {"fireworks": integer(1, 128), "messages messages.open": integer(0),
         "scale": integer(-1, default=-1)}, neutral_values=(-1, 0)),
    _field("top_logprobs", {"chat responses scale": integer(0, 20), "fireworks": integer(0, 5)},
         aliases=("logprobs", "return_token_log_probs")),
    _field("top_p", {"completions chat responses messages multimodel": _PROBABILITY,
         "messages.open": number(0, default=1), "any": number()}),
    _field("truncation", {"responses": string()}, neutral_values=("disabled",)),
    _field("typical_p", {"fireworks": number(0, 1)}),
    _field("user", {"completions chat responses embeddings any": string()}, text="user",
         cache="caller", path_by_api={"messages": "metadata.user_id"}),
    _field("verbosity", {"chat": string()}, path_by_api={"responses": "text.verbosity"}),
    _field("web_search_options", {"chat": mapping()}, text="tool", unknown="refuse"),
)  # fmt: skip

_BOUND_NAMES = (
    *("max_length", "max_tokens_to_sample", "max_tokens_to_generate", "max_token_count"),
    *("max_gen_len", "max_decode_tokens", "n_predict", "request_output_len"),
)
_FLOOR_NAMES = ("min_tokens", "min_new_tokens", "min_length")
_BUDGET_NAMES = (
    *("budget_tokens", "max_reasoning_tokens", "max_thinking_tokens", "reasoning_budget"),
    *("reasoning_budget_tokens", "thinking_budget", "thinking_budget_tokens"),
    *("thinking_token_budget", "token_budget"),
)
_CHOICES = ("candidate_count", "n_cmpl", "num_generations", "num_results", "num_return_sequences")
_GROUP_NAMES = (
    *("additional_model_request_fields", "chat_template_kwargs", "custom_params", "extra_body"),
    *("generation_config", "google", "inference_config", "model_kwargs", "nvext", "options"),
    *("parameters", "sampling_params", "text_generation_config", "vllm_xargs"),
)
SERVER_ROWS: tuple[RequestField, ...] = (
    *(_field(name, {"any": _TOKENS}, count_role="bound") for name in _BOUND_NAMES),
    _field("num_predict", {"any": _TOKENS}, count_role="bound", minimum=1),
    *(_field(name, {"any": token_count(0)}, count_role="floor") for name in _FLOOR_NAMES),
    *(_field(name, {"any": _TOKENS}, count_role="budget") for name in _BUDGET_NAMES),
    *(_field(name, {"any": token_count(1)}, count_role="n", minimum=1) for name in _CHOICES),
    *(_field(name, {"any": anything()}, count_role="group") for name in _GROUP_NAMES),
    _field("reasoning_config", {"any": anything()}, count_role="thoughts"),
    _field("thinking_config", {"any": anything()}, count_role="thoughts"),
)
"""Fields of other servers that bound the tokens of a response."""

FIELDS: Mapping[str, RequestField] = MappingProxyType(
    {row.name: row for row in (*ROWS, *SERVER_ROWS)}
)
UNDECLARED = RequestField(name="", types={})
SYNONYM_GROUPS: tuple[tuple[str, ...], ...] = (
    *(
        (row.name, *(path.partition(".")[0] for path in row.path_by_api.values()), *row.aliases)
        for row in ROWS
        if row.path_by_api or row.aliases
    ),
    tuple(row.name for row in FIELDS.values() if row.count_role == "bound"),
)
"""Names of the same field in several APIs. Errors name the first one that the request has."""
SYNONYMS = frozenset(name for names in SYNONYM_GROUPS for name in names)
RESTRICTED_FIELDS = frozenset(row.name for row in ROWS if row.client_values)
"""Fields for which clients may use only listed values."""


def get_fields(*apis: str) -> Fields:
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
PATHS_BY_API: Mapping[str, tuple[tuple[str, str, str], ...]] = {
    api: tuple(
        (row.name, *row.path_by_api[api].partition(".")[::2])
        for row in ROWS
        if api in row.path_by_api
    )
    for api in ("messages", "responses")
}
"""For each API: names of chat fields, and the field and member to which they correspond."""


def convert_to_api(body: Json, api: str, conversions: Conversions) -> Json:
    """Return a chat request with its fields renamed for another API. Raises ``InvalidField``."""
    renamed = dict(body)
    for name, api_field, member in PATHS_BY_API[api]:
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


class ChatFields(NamedTuple):
    """Fields as in a chat request, and fields of the original that lost members."""

    fields: Json
    fields_with_losses: set[str]


def convert_from_api(body: Json, api: str, conversions: Conversions) -> ChatFields:
    chat: Json = {}
    members_by_field: dict[str, set[str]] = {}
    for name, api_field, member in PATHS_BY_API[api]:
        value = body.get(api_field)
        if member:
            members_by_field.setdefault(api_field, set()).add(member)
            value = value.get(member) if isinstance(value, dict) else None
        if value is not None and name in conversions:
            value = conversions[name](value)
        if value is not None:
            chat[name] = value
    has_losses = (
        api_field
        for api_field, members in members_by_field.items()
        if has_values_outside(body.get(api_field), members)
    )
    return ChatFields(chat, set(has_losses))


def has_values_outside(value: Any, members: set[str]) -> bool:
    """Return True if an object has values outside ``members``."""
    other_members = value.keys() - members if isinstance(value, dict) else ()
    return any(value[name] not in (None, [], {}) for name in other_members)
