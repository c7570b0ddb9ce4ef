"""Fireworks: OpenAI's API with sampling extras, and usage at the end of every stream.

Source: Fireworks' API reference for ``POST /completions``; newer fields from its Python SDK.
"""

from __future__ import annotations

from proxy.dialects.base import ClientDialect, Dialect, UpstreamDialect
from proxy.dialects.chat import requests
from proxy.dialects.statuses import DEFAULT_STATUSES
from proxy.dialects.vendors import openai
from proxy.dialects.wire.strict_json import as_object, get_int
from proxy.errors import InvalidField
from proxy.errors.field_problems import describe_conflict
from proxy.fields.checks import Fields
from proxy.fields.field_table import get_fields
from proxy.types import Endpoint, Json


def check_single_token_limit(body: Json) -> None:
    if body.get("max_tokens") is not None and body.get("max_completion_tokens") is not None:
        raise InvalidField("max_completion_tokens", describe_conflict("max_tokens"))


def to_chat(endpoint: Endpoint, body: Json) -> Json:
    """Convert log-probabilities, a JSON schema, and a legacy token limit to OpenAI's fields."""
    changed: Json = {}
    is_legacy = endpoint == "completions"
    convert = requests.convert_logprobs_to_count if is_legacy else requests.convert_logprobs_to_chat
    body = convert(body)
    form = as_object(body.get("response_format"))
    if form.get("type") == "json_object" and "schema" in form:
        schema = {"name": "response", "schema": form["schema"]}
        changed["response_format"] = {"type": "json_schema", "json_schema": schema}
    if is_legacy and body.get("max_completion_tokens") is not None:
        changed["max_tokens"] = body["max_completion_tokens"]
        body = {k: v for k, v in body.items() if k != "max_completion_tokens"}
    return body | changed


def from_chat(endpoint: Endpoint, body: Json) -> Json:
    """Convert the JSON schema of a legacy completion to Fireworks' form."""
    form = as_object(body.get("response_format"))
    schema = form.get("json_schema") if form.get("type") == "json_schema" else None
    if endpoint != "completions" or not isinstance(schema, dict):
        return body
    return body | {"response_format": {"type": "json_object", "schema": schema.get("schema")}}


def make_prompt_token_header(
    data: Json | None, attempts: int, cache: str
) -> tuple[tuple[str, str], ...]:
    """Return a header with the number of prompt tokens of a whole response."""
    count = get_int(as_object((data or {}).get("usage")), "prompt_tokens")
    return () if count is None else (("fireworks-prompt-tokens", str(count)),)


FIELDS: dict[Endpoint, Fields] = {
    "completions": get_fields("completions", "fireworks", "fireworks.completions"),
    "chat": get_fields("chat", "fireworks"),
    "embeddings": get_fields("embeddings"),
}

FIREWORKS = Dialect(
    name="fireworks",
    provider="fireworks",
    fields=FIELDS,
    client=ClientDialect(
        routes=openai.make_routes("/inference/v1"),
        make_error_response=openai.make_error_response,
        rules=dict.fromkeys(
            ("completions", "chat"), (openai.check_stream_options, check_single_token_limit)
        ),
        ruled_fields=frozenset({"max_completion_tokens", "stream_options"}),
        to_chat=to_chat,
        make_response_headers=make_prompt_token_header,
        always_sends_usage=True,
    ),
    server=UpstreamDialect(
        prefix="/inference/v1",
        paths={name: path for name, path in openai.PATHS.items() if name != "responses"},
        from_chat=from_chat,
        has_usage_option=False,
        forwarded_response_headers=("fireworks-",),
        # 412: the account is suspended, or a model does not load
        statuses={**DEFAULT_STATUSES, 412: "outage"},
        # by its API document, the text includes the stop string
        default_values={"include_stop_str_in_output": True},
    ),
)
