"""Names of span attributes: OpenTelemetry's conventions for GenAI and HTTP, and Headrace's own.

The GenAI conventions are in development and their Python constants are deprecated, so this is the
only module with these names.
"""

from __future__ import annotations

OPERATION = "gen_ai.operation.name"
PROVIDER = "gen_ai.provider.name"
REQUEST_MODEL = "gen_ai.request.model"
REQUEST_STREAM = "gen_ai.request.stream"
CHOICE_COUNT = "gen_ai.request.choice.count"
SEED = "gen_ai.request.seed"
MAX_TOKENS = "gen_ai.request.max_tokens"
TEMPERATURE = "gen_ai.request.temperature"
TOP_P = "gen_ai.request.top_p"
TOP_K = "gen_ai.request.top_k"
FREQUENCY_PENALTY = "gen_ai.request.frequency_penalty"
PRESENCE_PENALTY = "gen_ai.request.presence_penalty"
STOP_SEQUENCES = "gen_ai.request.stop_sequences"
PREVIOUS_RESPONSE_ID = "gen_ai.request.previous_response.id"
REASONING_LEVEL = "gen_ai.request.reasoning.level"
OUTPUT_TYPE = "gen_ai.output.type"
RESPONSE_ID = "gen_ai.response.id"
RESPONSE_MODEL = "gen_ai.response.model"
RESPONSE_FINISH_REASONS = "gen_ai.response.finish_reasons"
RESPONSE_FIRST_CHUNK = "gen_ai.response.time_to_first_chunk"
INPUT_TOKENS = "gen_ai.usage.input_tokens"  # includes cached
OUTPUT_TOKENS = "gen_ai.usage.output_tokens"  # includes reasoning
CACHE_READ = "gen_ai.usage.cache_read.input_tokens"
CACHE_WRITE = "gen_ai.usage.cache_write.input_tokens"
CACHE_CREATION = "gen_ai.usage.cache_creation.input_tokens"  # the older name of cache_write
REASONING_TOKENS = "gen_ai.usage.reasoning.output_tokens"
AUDIO_INPUT_TOKENS = "gen_ai.usage.audio.input_tokens"
AUDIO_OUTPUT_TOKENS = "gen_ai.usage.audio.output_tokens"
IMAGE_INPUT_TOKENS = "gen_ai.usage.image.input_tokens"
IMAGE_OUTPUT_TOKENS = "gen_ai.usage.image.output_tokens"
MODALITY = "gen_ai.token.modality"
INPUT_MESSAGES = "gen_ai.input.messages"
OUTPUT_MESSAGES = "gen_ai.output.messages"

HTTP_METHOD = "http.request.method"
HTTP_ROUTE = "http.route"
HTTP_STATUS = "http.response.status_code"
URL_SCHEME = "url.scheme"
URL_PATH = "url.path"
SERVER_ADDRESS = "server.address"
SERVER_PORT = "server.port"
ERROR_TYPE = "error.type"

REQUEST_ID = "headrace.request.id"
KEY = "headrace.key"
DEPLOYMENT = "headrace.deployment"
TAGS = "headrace.deployment.tags"
PROPERTIES = "headrace.properties"
POLICY = "headrace.policy.revision"
DIALECT = "headrace.dialect"
CACHE_STATUS = "headrace.cache.status"
CACHE_SEMANTIC_MATCH = "headrace.cache.semantic_match"
COST_USD = "headrace.cost.usd"
COST_SOURCE = "headrace.cost.source"
USAGE_ESTIMATED = "headrace.usage.estimated"
ATTEMPTS = "headrace.attempt.count"
OUTCOME = "headrace.outcome"
OVERHEAD_MS = "headrace.overhead_ms"
UPSTREAM = "headrace.upstream"
RULES = "headrace.policy.rules"
SHADOW_RULES = "headrace.policy.shadow_rules"
ERROR_CAUSE = "headrace.upstream.error_cause"
ERROR_TEXT = "headrace.upstream.error_text"
WHY = "headrace.attempt.why"
LOST = "headrace.attempt.lost"
SAVED_TOKENS = "headrace.saved.tokens"
SAVED_USD = "headrace.saved.usd"

GUARD_EVENT = "headrace.guard"
GUARD = "headrace.guard.name"
GUARD_STAGE = "headrace.guard.stage"
GUARD_VERDICT = "headrace.guard.verdict"
GUARD_SHADOW = "headrace.guard.shadow"
GUARD_FINDINGS = "headrace.guard.findings"
GUARD_BYTES = "headrace.guard.bytes"
GUARD_SECONDS = "headrace.guard.duration"
CACHE_EVENT = "headrace.cache"
LIMIT_EVENT = "headrace.limit"
LIMIT = "headrace.limit.name"
SKIP_EVENT = "headrace.upstream.skipped"
SKIP_REASON = "headrace.upstream.skipped.reason"

# Attributes of backends that do not read the conventions: see profiles.
OPENINFERENCE_KIND = "openinference.span.kind"
LLM_MODEL = "llm.model_name"
LLM_PROVIDER = "llm.provider"
LLM_PROMPT = "llm.token_count.prompt"
LLM_COMPLETION = "llm.token_count.completion"
LLM_TOTAL = "llm.token_count.total"
LLM_CACHE_READ = "llm.token_count.prompt_details.cache_read"
LLM_CACHE_WRITE = "llm.token_count.prompt_details.cache_write"
LLM_REASONING = "llm.token_count.completion_details.reasoning"
LLM_COST = "llm.cost.total"
INPUT_VALUE = "input.value"
OUTPUT_VALUE = "output.value"
USAGE_COST = "gen_ai.usage.cost"
SESSION = "session.id"
USER = "user.id"
CONVERSATION = "gen_ai.conversation.id"
LANGFUSE_TAGS = "langfuse.trace.tags"
LANGFUSE_METADATA = "langfuse.trace.metadata."

OPERATIONS = {"completions": "text_completion", "chat": "chat", "embeddings": "embeddings"}
OWN_OPERATIONS = (
    "conversations",
    "count_tokens",
    "passthrough",
    "stored",
)  # not in the conventions
OPERATIONS |= {name: name for name in OWN_OPERATIONS}
