"""Where calls may go: providers, and the models they have; and the secrets that they take."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import field
from datetime import date
from hashlib import sha256

from proxy.fields.rules import FieldRules, Verdict, field_rules
from proxy.frozen import frozen, memo
from proxy.types.providers import OPENAI, Provider
from proxy.types.way import Endpoint, TargetEndpoint, Way
from proxy.usage import Price, in_force

NO_PRICE = "no known price"
CREDENTIAL_WORDS = ("auth", "api-?key", "token", "secret", "password", "cookie")
"""Patterns of which one is in the name of each header that carries a credential."""


class Secret:
    """A credential. Shows as stars wherever it is printed; ``reveal`` is for the wire alone."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def reveal(self) -> str:
        return self._value

    @property
    def digest(self) -> bytes:
        """Its SHA-256, by which it is known again."""
        return sha256(self._value.encode("utf-8", "surrogateescape")).digest()

    def __repr__(self) -> str:
        return "Secret(***)"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._value == self._value

    def __hash__(self) -> int:
        return hash(self._value)


@frozen
class Timeouts:
    """How long an upstream may take, in seconds, phase by phase and in all.

    ``first_byte`` and ``idle`` are for streams: models think before they say the first word, and
    between two. A whole answer comes when it is ready, so ``total`` alone bounds it.
    """

    connect: float = 5.0
    first_byte: float = 600.0
    idle: float = 600.0
    total: float = 600.0

    def within(self, seconds: float, *, streamed: bool) -> Timeouts:
        """Return those of one request, which may take no longer than so many seconds."""
        total = min(self.total, seconds)
        if streamed:
            return Timeouts(
                connect=self.connect, first_byte=self.first_byte, idle=self.idle, total=total
            )
        return Timeouts(connect=self.connect, first_byte=total, idle=total, total=total)


@frozen
class Breaker:
    """A target is left alone for ``rest`` seconds after so many ``failures`` in a row."""

    failures: int = 5
    rest: float = 10.0


MODELS = frozenset(
    {"adapter_id", "adapter_source", "adapters", "compound_custom", "content_policy_fallbacks"}
    | {"context_window_fallback_dict", "context_window_fallbacks", "custom_llm_provider"}
    | {"default_fallbacks", "deployment", "deployment_id", "engine", "hf_model_name"}
    | {"fallback_models", "fallbacks", "kv_transfer_params", "litellm_params", "lora"}
    | {"lora_adapter", "lora_adapters", "lora_id", "lora_name", "lora_path", "lora_request"}
    | {"merged_adapters", "model_id", "model_list", "model_name", "models", "plugins", "preset"}
    | {"provider", "region_name", "route", "safety_model", "specific_deployment", "user_config"}
)
"""What chooses a model, or who has it: LiteLLM, OpenRouter, SGLang, LoRAX, llama.cpp, Portkey,
Groq, Together."""

ADDRESSES = frozenset(
    {"api_base", "api_type", "api_version", "aws_bedrock_runtime_endpoint", "aws_region_name"}
    | {"aws_sts_endpoint", "azure_endpoint", "base_url", "bootstrap_host", "bootstrap_port"}
    | {"bootstrap_room", "callback", "callbacks", "connectors", "data_sources", "extra_headers"}
    | {"extra_query", "failure_callback", "gcs_bucket_name", "headers", "langfuse_host"}
    | {"langsmith_base_url"}
    | {"mcp_servers", "posthog_host", "success_callback", "vertex_ai_location", "vertex_ai_project"}
    | {"vertex_location", "vertex_project", "webhook_url"}
)
"""What chooses where a request, its texts or its answer go, or the head of a request."""

KEYS = frozenset(
    {"access_token", "api_key", "api_token", "arize_api_key", "aws_access_key_id"}
    | {"aws_external_id", "aws_profile_name", "aws_role_name", "aws_secret_access_key"}
    | {"aws_session_name", "aws_session_token", "aws_web_identity_token", "azure_ad_token"}
    | {"azure_password", "azure_username", "client_secret", "gcs_path_service_account"}
    | {"humanloop_api_key", "langfuse_public_key", "langfuse_secret", "langfuse_secret_key"}
    | {"langsmith_api_key", "litellm_credential_name", "organization", "posthog_api_key"}
    | {"vertex_ai_credentials", "vertex_credentials"}
)
"""What chooses whose key is used, at the model's server or at one that gets its logs."""

UNREAD = frozenset(
    {"cached_content", "chat_template", "config_id", "config_ids", "conversation"}
    | {"custom_logit_processor", "custom_prompt_dict", "guardrail_config", "guardrail_identifier"}
    | {"guardrails", "input_embeds", "inputs_embeds", "logits_processors", "mock_response"}
    | {"mock_timeout", "mock_tool_calls", "previous_response_id", "prompt_embeds", "prompt_id"}
    | {"session_params", "thread"}
)
"""What brings a text that no guard has read, runs what the client says, or turns a guard off."""

ACCOUNT_IDS = frozenset(
    {"audio.id", "comparison_response_id", "container.id", "container_id", "file_id", "file_ids"}
    | {"previous_message_id", "prompt.id", "skill_id", "vector_store_id", "vector_store_ids"}
    | {"fallback_credit_token", "user_profile_id", "voice.id", "workspace_id"}
)
"""Ids of data and of credits that belong to the account of the upstream's key."""

WITHIN = frozenset(
    {"authorization", "connector_id", "domain_secrets", "model", "network_policy.allowed_domains"}
    | {"search_parameters.sources[].links", "server_url", "skills[].source", "tools[].retrieval"}
    | {"tunnel_id"}
)
"""Fields of tools, items and searches that choose an address, a secret, a model or a text that no
guard reads: OpenAI, Anthropic, xAI, Mistral, Z.AI, Gemini, OpenRouter. ``model`` at the top of a
request is replaced by the target's."""

FREE_FORM = frozenset(
    {"attributes", "documents", "files[].attributes", "**.metadata", "action.env"}
    | {"tool_calls[].function.arguments", "function_call.arguments", "input[].arguments"}
    | {"content[].input", "tools[].input_examples", "definition.input_examples"}
    | {"content[].annotations", "messages[].annotations", "input[].results", "input[].svg_usage"}
    | {"content[].citations", "messages[].citations", "system[].citations"}
    | {"content[].from", "content[].to"}
)
"""Ends of paths to JSON whose names the client defines: data, arguments of a tool call, or a
quotation of a response. A name without a dot applies at the top of a request and in groups of
options."""

SCHEMAS = frozenset({"guided_json", "json", "parameters", "value"})
"""Fields that are JSON schemas, as are all whose names end in ``schema``."""

SCHEMA_MAPS = frozenset(
    {"$defs", "const", "default", "definitions", "dependent_schemas", "enum", "examples"}
    | {"pattern_properties", "properties"}
)
"""Members of a JSON schema whose names the client defines."""

NOT_THE_CLIENTS = (
    MODELS | ADDRESSES | KEYS | UNREAD | ACCOUNT_IDS | WITHIN | {"auto_max_new_tokens"}
)
"""Request fields that are the policy's to choose, at any depth. The last has text-generation-webui
answer as long as there is room, whatever the bound."""

USUAL: Mapping[str, frozenset[str]] = {
    "inference_geo": frozenset({"global"}),
    "service_tier": frozenset({"auto", "default", "flex", "on_demand", "standard_only"}),
    "speed": frozenset({"standard"}),
}
"""Request fields of which other words than these make a call cost more than the price of its model
says: no client may say such a word, unless an upstream accepts the field."""


@frozen
class Upstream:
    """A provider endpoint. ``accepts`` are request fields it takes beyond its dialect's own;
    ``most`` has the largest number that it takes for some of them, or the most entries. Of all
    others those that it ``drops`` are left out of a request, and those that it ``refuses`` refuse
    it: ``rules`` has these, the accepted ones and those of ``USUAL``.
    With ``open_ranges`` it judges by itself how large a value
    may be, and only types are checked. An upstream that ``is_gateway`` gets
    declared and accepted fields only. Without ``asks_usage`` no stream of it is asked to tell its
    usage. A ``base_url`` may have a place for ``{model}``; ``query`` is added to each URL, and
    ``key_header`` carries the key in place of the dialect's own.

    One of its answers has ``max_answer_values`` at the most, and ``max_answer_bytes``, or what
    suits its endpoint where that is None. ``traits`` say how it differs from OpenAI where it speaks
    OpenAI's dialect. Without a ``breaker`` its targets are tried however often
    they have failed; without ``max_concurrency`` it gets as many requests at once as there are
    calls. ``ways`` are those that requests have gone, by the client's dialect and endpoint and the
    only endpoint of the target.
    """

    name: str
    dialect: str
    base_url: str
    api_key: Secret | None = None
    headers: tuple[tuple[str, Secret], ...] = ()
    query: str = ""
    key_header: str | None = None
    timeouts: Timeouts = field(default_factory=Timeouts)
    provider: str | None = None
    accepts: frozenset[str] = frozenset()
    most: tuple[tuple[str, float], ...] = ()
    asks_usage: bool = True
    traits: Provider = OPENAI
    is_gateway: bool = False
    drops: frozenset[str] = frozenset()
    refuses: frozenset[str] = NOT_THE_CLIENTS
    open_ranges: bool = False
    max_answer_bytes: int | None = None
    max_answer_values: int = 100_000
    propagate_trace: bool = False
    max_concurrency: int | None = None
    breaker: Breaker | None = field(default_factory=Breaker)
    rules: FieldRules = field(init=False, repr=False, compare=False)
    ways: dict[tuple[str, Endpoint, Endpoint | None], Way] = memo(dict)

    def __post_init__(self) -> None:
        """Prepare the rules for request fields, once per revision."""
        names: Mapping[Verdict, Collection[str]] = {
            "drop": self.drops,
            "accept": self.accepts - {"model"},
            "refuse": self.refuses,
            "limit": USUAL.keys(),
        }
        anywhere = NOT_THE_CLIENTS | USUAL.keys()
        object.__setattr__(self, "rules", field_rules(names, anywhere))


@frozen
class Target:
    """An upstream and the model a deployment uses there.

    ``endpoint`` is set when the target speaks only one of legacy completions, chat and Responses;
    the others are then translated. ``prices`` are dated; that of the call's day counts.
    ``names`` are those by which a client may ask for it: its model, and that with the upstream or
    its provider before it.
    """

    upstream: Upstream
    model: str
    endpoint: TargetEndpoint | None = None
    prices: tuple[Price, ...] = ()
    always_priced: bool = field(init=False, repr=False, compare=False)
    names: frozenset[str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Note, once a revision, its names, and that no day and no endpoint leaves it without a
        whole price."""
        only = self.prices[0] if len(self.prices) == 1 else None
        always = only is not None and only.since is None
        whole = only is not None and only.input is not None and only.output is not None
        object.__setattr__(self, "always_priced", always and whole)
        prefixes = filter(None, (self.upstream.name, self.upstream.provider))
        names = frozenset({self.model, *(f"{prefix}/{self.model}" for prefix in prefixes)})
        object.__setattr__(self, "names", names)

    @property
    def is_free(self) -> bool:
        """True if each of its prices is 0."""
        return bool(self.prices) and all(price.is_free for price in self.prices)

    @property
    def title(self) -> str:
        """Its name for people, and in what is told of a call."""
        return f"{self.upstream.name}/{self.model}"

    def lack_of_price(self, on: date | None = None) -> str | None:
        """Return what its price lacks, in words; None where it is whole.

        Without a day any price that it has may count. Embeddings are what a model's name calls so.
        """
        prices = self.prices
        if on is not None:
            price = in_force(prices, on)
            if price is None:
                return f"no price in force on {on}"
            prices = (price,)
        embeds = "embed" in self.model.lower()
        return min((lack(price, embeds) or "" for price in prices), default=NO_PRICE) or None


@frozen
class Pin:
    """Target that keeps the state of a call. ``target`` is a target's title; for a conversation it
    is an upstream's name, because all targets of that upstream share conversations.

    ``id`` is the provider's id, empty if only the place is pinned. ``sealed`` is the client's id,
    sent in the field ``param`` (None for the id of a response).
    """

    sealed: str
    deployment: str
    target: str
    id: str = field(repr=False)
    param: str | None = None
    is_conversation: bool = False

    def reaches(self, target: Target) -> bool:
        """True if a target of the deployment has the state."""
        return self.target == (target.upstream.name if self.is_conversation else target.title)

    def is_beside(self, other: Pin) -> bool:
        """True if a target has this state and that of another pin."""
        if self.deployment != other.deployment:
            return False
        if self.is_conversation == other.is_conversation:
            return self.target == other.target
        wide, narrow = (self, other) if self.is_conversation else (other, self)
        return narrow.target.startswith(f"{wide.target}/")


def titles(targets: Iterable[Target]) -> str:
    return ", ".join([target.title for target in targets])


def lack(price: Price, embeds: bool) -> str | None:
    """Return what is missing of all that a call surely uses: the prompt, and the answer, unless the
    model only ``embeds``. None for a price that is whole."""
    if price.input is None:
        return "no price for input"
    return None if embeds or price.output is not None else "no price for output"
