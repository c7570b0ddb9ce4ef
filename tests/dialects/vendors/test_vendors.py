"""Own fields, ids and errors of providers that differ from OpenAI in few places."""

from __future__ import annotations

from hashlib import sha256
from typing import Any

from proxy.dialects import DIALECTS, RequestContext, parse_request_head, read_call
from proxy.dialects.vendors import fireworks, multimodel, openai, scale
from proxy.dialects.vendors.anthropic import check_page_size, convert_model_list
from proxy.errors import InvalidField, Unauthorized, UpstreamRejected, UpstreamUnavailable
from proxy.errors.wire import MethodNotAllowed
from proxy.types import Call, Json, RequestHead
from tests.dialects.refused import refused_param
from tests.doubles import legacy_completion
from tests.for_each import for_each

BODIES: dict[str, Json] = {
    "completions": {"model": "m", "prompt": "p"},
    "chat": {"model": "m", "messages": [{"role": "user", "content": "hi"}]},
}
EXTRA_HEADERS: Json = dict.fromkeys(("Authorization", "x-api-key", "Host", "X-Forwarded-For"), "x")
EXTRA_HEADERS |= {"x-team": "support", "bad": "a\r\nb", "number": 5}
SCHEMA = {"type": "object"}
FIREWORKS_FORMAT = {"type": "json_object", "schema": SCHEMA}
OPENAI_FORMAT = {"type": "json_schema", "json_schema": {"name": "response", "schema": SCHEMA}}


def read_for(dialect: str, endpoint: Any = "completions", **fields: Any) -> Call:
    head = RequestHead(dialect, endpoint, "/", "req_1")
    return read_call(head, {**BODIES[endpoint], **fields})


@for_each(
    ("dialect", "endpoint", "fields", "converted"),
    [
        ("scale", "completions", {"max_new_tokens": 7, "max_tokens": 9}, {"max_tokens": 9}),
        ("scale", "completions", {"logprobs": True, "top_logprobs": 3}, {"logprobs": 3}),
        ("scale", "completions", {"inference_extra_headers": EXTRA_HEADERS},
            {"inference_extra_headers": {"x-team": "support"}}),
        ("fireworks", "completions", {"response_format": FIREWORKS_FORMAT},
            {"response_format": OPENAI_FORMAT}),
        ("fireworks", "completions", {"max_completion_tokens": 7}, {"max_tokens": 7}),
        ("fireworks", "chat", {"logprobs": 2}, {"logprobs": True, "top_logprobs": 2}),
        ("multimodel", "completions", {"max_new_tokens": 9}, {"max_tokens": 9}),
        ("enkrypt", "completions", {"context": "c", "prompt": None},
            {"enkrypt_context": "c", "prompt": "<|endoftext|>"}),
    ],
)  # fmt: skip
def test_fields_of_clients_become_those_of_openai(
    dialect: str, endpoint: str, fields: Json, converted: Json
) -> None:
    assert read_for(dialect, endpoint, **fields).body == {**BODIES[endpoint], **converted}


@for_each(
    ("convert", "fields", "sent"),
    [
        (scale.from_chat, {"logprobs": 3}, {"logprobs": True, "top_logprobs": 3}),
        (fireworks.from_chat, {"response_format": OPENAI_FORMAT},
            {"response_format": FIREWORKS_FORMAT}),
    ],
)  # fmt: skip
def test_fields_of_openai_become_those_of_upstreams(convert: Any, fields: Json, sent: Json) -> None:
    assert convert("completions", fields) == sent


@for_each(
    ("dialect", "fields", "name"),
    [
        ("scale", {"guided_json": {}, "guided_regex": "a"}, "guided_regex"),
        ("fireworks", {"max_tokens": 1, "max_completion_tokens": 1}, "max_completion_tokens"),
        ("multimodel", {"stream": True}, "stream"),
        ("multimodel", {"n": 2}, "n"),
        ("multimodel", {"model": ["m", "m"]}, "model"),
        ("multimodel", {"model": ["m"] * 17}, "model"),
    ],
)
def test_fields_unsupported_by_a_vendor_are_refused(dialect: str, fields: Json, name: str) -> None:
    assert refused_param(read_for, dialect, **fields) == name


def test_timeout_field_bounds_the_call() -> None:
    assert read_for("scale", inference_timeout=2.5).timeout_s == 2.5


def test_field_named_by_an_upstream_is_in_the_detail() -> None:
    refused = UpstreamRejected("a.0: too long", upstream_status=422, param="a.0")

    response = DIALECTS["scale"].client.make_error_response(refused, "req_1")

    [detail] = response.body["detail"]
    assert (response.status, detail["loc"], detail["msg"]) == (422, ["body", "a", "0"], "too long")


def test_detail_has_only_the_problem_of_a_long_field() -> None:
    refused = InvalidField("a" * 5000, "too long")

    response = DIALECTS["scale"].client.make_error_response(refused, "req_1")

    assert response.body["detail"][0]["msg"] == "too long"


HEADERS = {
    "apikey": "ek",
    "authorization": "Bearer idle",
    "x-enkrypt-deployment": "support-chat",
    "x-enkrypt-tags": "a,b",
    "x-enkrypt-refresh-cache": "true",
}
refuse_for_enkrypt = DIALECTS["enkrypt"].client.make_error_response


def test_enkrypt_headers_are_read() -> None:
    head = parse_request_head("POST", "/ai-proxy/completions", HEADERS, RequestContext("req_1"))

    assert head.digest == sha256(b"ek").digest()
    assert (head.deployment, head.bypass_cache) == ("support-chat", True)
    assert head.tags == (("a", None), ("b", None))
    assert head.echo == (("x-enkrypt-correlation-id", "req_1"),)


def test_errors_of_keys_have_the_form_of_enkrypt_and_others_keep_the_detections() -> None:
    unknown = refuse_for_enkrypt(Unauthorized(), "req_1")
    refusal = refuse_for_enkrypt(InvalidField("n", "must be an integer"), "req_1")

    assert unknown.body == {"message": "Unauthorized", "request_id": "req_1"}
    assert "message" not in refusal.body
    assert refusal.body["error"]["param"] == "n"
    assert "enkrypt_policy_detections" in refusal.body


def test_prompt_tokens_are_in_a_header_when_known() -> None:
    make = fireworks.make_prompt_token_header

    assert make({"usage": {"prompt_tokens": 5}}, 1, "") == (("fireworks-prompt-tokens", "5"),)
    assert make(None, 1, "") == ()


def test_unknown_count_makes_the_total_unknown() -> None:
    call = read_for("multimodel", model=["a", "b"])
    silent = {k: v for k, v in legacy_completion().items() if k != "usage"}

    fields = multimodel.compose_response(call, {0: legacy_completion(), 1: silent})

    assert fields["usage"]["total_tokens"] is None


def test_multimodel_response_is_read_as_completion() -> None:
    call = read_for("multimodel", model=["a", "b"])

    answer = multimodel.convert_to_legacy_completion(
        multimodel.compose_response(call, {0: legacy_completion(" x"), 1: legacy_completion(" y")})
    )

    assert [(c["index"], c["text"]) for c in answer["choices"]] == [(0, " x"), (1, " y")]
    assert (answer["object"], type(answer["created"])) == ("text_completion", int)


@for_each(
    ("rule", "body", "param"),
    [
        (openai.check_stream_options, {"stream_options": {}}, "stream_options"),
        (openai.check_best_of, {"best_of": 1, "n": 2}, "best_of"),
        (openai.check_best_of, {"best_of": 2, "stream": True}, "best_of"),
        (openai.check_top_logprobs, {"top_logprobs": 2}, "top_logprobs"),
    ],
)
def test_conflicting_fields_are_refused(rule: Any, body: dict[str, Any], param: str) -> None:
    assert refused_param(rule, body) == param


@for_each(
    ("headers", "key"),
    [
        ({"authorization": "Bearer hr-1"}, "hr-1"),
        ({"api-key": "hr-1"}, "hr-1"),
        ({"api-key": "hr-2", "authorization": "Bearer hr-1"}, "hr-1"),
        ({"api-key": "hr-1", "authorization": "Basic eDp5"}, "hr-1"),
    ],
)
def test_bearer_precedes_api_key(headers: dict[str, str], key: str) -> None:
    head = parse_request_head("POST", "/v1/chat/completions", headers, RequestContext("r"))

    assert head.digest == sha256(key.encode()).digest()


def test_retry_after_is_in_seconds_and_milliseconds() -> None:
    error = UpstreamUnavailable("busy", status=429)
    error.retry_after_s = 1.25

    assert openai.make_retry_headers(error) == (("retry-after", "2"), ("retry-after-ms", "1250"))


def test_wrong_method_error_names_the_allowed_one() -> None:
    assert openai.make_error_response(MethodNotAllowed("POST"), "r").headers == (("allow", "POST"),)


NAMES = list("fgabcde")  # deployments precede models
LIST: Json = {"object": "list", "data": [{"id": name, "created": 0} for name in NAMES]}


def models_head(**parameters: object) -> RequestHead:
    pairs = tuple((name, str(value)) for name, value in parameters.items())
    return RequestHead("anthropic", "models", "/v1/models", "req_1", parameters=pairs)


@for_each("limit", range(1, 9))
@for_each(("cursor", "end"), [("after_id", "last_id"), ("before_id", "first_id")])
def test_pages_have_each_model_once(limit: int, cursor: str, end: str) -> None:
    observed: list[str] = []
    options: dict[str, object] = {} if cursor == "after_id" else {"before_id": "z"}
    while True:
        page = convert_model_list(models_head(limit=limit, **options), LIST)
        names = [model["id"] for model in page["data"]]
        observed = [*observed, *names] if cursor == "after_id" else [*names, *observed]
        if not page["has_more"]:
            break
        options = {cursor: page[end]}

    assert observed == NAMES


def test_page_after_a_model_not_listed_has_later_names() -> None:
    page = convert_model_list(models_head(after_id="bb"), LIST)
    empty = convert_model_list(models_head(after_id="z"), LIST)

    assert [model["id"] for model in page["data"]] == ["f", "g", "c", "d", "e"]
    assert empty == {"data": [], "has_more": False, "first_id": None, "last_id": None}


def test_model_has_its_creation_date() -> None:
    model = convert_model_list(models_head(), {"id": "a/b", "object": "model", "created": 86_400})

    names = {"id": "a/b", "display_name": "a/b"}
    dated = {"created_at": "1970-01-02T00:00:00Z", "lifecycle": "active"}
    assert model == {"type": "model", **names, **dated}


@for_each("limit", ["", "0", "1001", "-1", "many", "\N{ARABIC-INDIC DIGIT THREE}"])
def test_invalid_page_size_is_refused(limit: str) -> None:
    for valid in ("1", "1000", "00020"):
        check_page_size(models_head(limit=valid))

    assert refused_param(check_page_size, models_head(limit=limit)) == "limit"
