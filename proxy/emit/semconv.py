"""Names of span attributes: OpenTelemetry's conventions for GenAI and HTTP, and our own.

The GenAI conventions are in development and their Python constants marked deprecated, so the names
are kept here, in one place, and nowhere else.
"""

from __future__ import annotations

OPERATION = "gen_ai.operation.name"
PROVIDER = "gen_ai.provider.name"
REQUEST_MODEL = "gen_ai.request.model"
REQUEST_STREAM = "gen_ai.request.stream"
RESPONSE_FINISH_REASONS = "gen_ai.response.finish_reasons"
RESPONSE_FIRST_CHUNK = "gen_ai.response.time_to_first_chunk"
INPUT_TOKENS = "gen_ai.usage.input_tokens"  # includes cached
OUTPUT_TOKENS = "gen_ai.usage.output_tokens"  # includes reasoning
CACHE_READ = "gen_ai.usage.cache_read.input_tokens"
CACHE_WRITE = "gen_ai.usage.cache_write.input_tokens"
CACHE_CREATION = "gen_ai.usage.cache_creation.input_tokens"  # the older name of cache_write
REASONING_TOKENS = "gen_ai.usage.reasoning.output_tokens"

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
POLICY = "headrace.policy.revision"
DIALECT = "headrace.dialect"
CACHE_STATUS = "headrace.cache.status"
COST_USD = "headrace.cost.usd"
COST_SOURCE = "headrace.cost.source"
USAGE_ESTIMATED = "headrace.usage.estimated"
ATTEMPTS = "headrace.attempt.count"
OUTCOME = "headrace.outcome"
OVERHEAD_MS = "headrace.overhead_ms"
UPSTREAM = "headrace.upstream"
RULES = "headrace.policy.rules"
WOULD = "headrace.policy.would"
WHY = "headrace.attempt.why"
LOST = "headrace.attempt.lost"

OPERATIONS = {"completions": "text_completion", "chat": "chat", "embeddings": "embeddings"}
