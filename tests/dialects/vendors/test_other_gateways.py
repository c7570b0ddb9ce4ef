"""Headers of other gateways: applied, recorded as properties, or reported as ignored."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession

from proxy.dialects import DIALECTS, RequestContext, parse_request_head, read_call
from proxy.dialects.vendors.other_gateways import (
    HEADER_MEANINGS,
    INFO_PATHS,
    PROPERTY_NAMES,
    make_model_list_for_path,
)
from proxy.errors.words import MAX_NAME, MAX_WORDS
from proxy.types import Call, RequestHead
from tests.conftest import KEY as OWN
from tests.dialects.refused import refused_param
from tests.for_each import for_each

PATH = "/v1/chat/completions"
KEY = {"authorization": "Bearer hr-key-of-the-caller"}


def read_head(path: str = PATH, **headers: str) -> RequestHead:
    by_name = {name.replace("_", "-"): value for name, value in headers.items()}
    return parse_request_head("POST", path, KEY | by_name, RequestContext("req_1"))


HONOURED: dict[str, tuple[str, str, object]] = {
    "x-litellm-end-user-id": ("u1", "user", "u1"),
    "x-litellm-customer-id": ("u1", "user", "u1"),
    "x-litellm-tags":
        ("team:support, env=eu,beta", "tags", (("team", "support"), ("env", "eu"), ("beta", None))),
    "x-litellm-timeout": ("2.5", "timeout_s", 2.5),
    "x-litellm-session-id": ("s1", "session", "s1"),
    "x-litellm-spend-logs-metadata": ('{"job": 7}', "properties", (("job", "7"),)),
    "helicone-user-id": ("u1", "user", "u1"),
    "helicone-session-id": ("s1", "session", "s1"),
    "helicone-session-name": ("trip", "properties", (("session-name", "trip"),)),
    "helicone-session-path": ("/a/b", "properties", (("session-path", "/a/b"),)),
    "helicone-property-app": ("mobile", "properties", (("app", "mobile"),)),
    "cf-aig-metadata": ('{"team": "a", "paid": true, "n": 1.5, "deep": {}, "": "x", " ": "x"}',
        "properties", (("team", "a"), ("paid", "true"), ("n", "1.5"))),
    "cf-aig-request-timeout": ("1500", "timeout_s", 1.5),
    "http-referer":
        ("https://app.example", "properties", (("http-referer", "https://app.example"),)),
    "x-title": ("App", "properties", (("x-title", "App"),)),
    "x-openrouter-title": ("App", "properties", (("x-title", "App"),)),
    "x-headrace-properties": ("run=7, night", "properties", (("run", "7"), ("night", ""))),
}  # fmt: skip


@for_each("name", HONOURED)
def test_supported_header_is_applied(name: str) -> None:
    value, field, expected = HONOURED[name]

    head = read_head(**{name: value})

    assert (getattr(head, field), head.warnings) == (expected, ())


def test_every_supported_header_is_documented_and_has_a_case() -> None:
    page = (Path(__file__).parents[3] / "docs/dialects.md").read_text().lower()
    section = page.partition("## headers of other gateways")[2].partition("\n## ")[0]
    supported = HEADER_MEANINGS | PROPERTY_NAMES

    assert [name for name in supported if name not in section] == []
    assert {name for name in supported if supported[name] != "cache"} <= HONOURED.keys()


@for_each(
    "name",
    [
        *("x-litellm-num-retries", "x-litellm-api-base", "helicone-target-url", "helicone-auth"),
        *("cf-aig-cache-ttl", "cf-aig-custom-cost"),
    ],
)
def test_ignored_header_is_named_once(name: str) -> None:
    [warning] = read_head(**{name: "1"}).warnings
    assert warning == f"headers ignored because the policy decides: {name}"


def test_ignored_headers_share_a_bounded_warning() -> None:
    head = read_head(**{f"helicone-{n}-{'x' * 200}": "1" for n in range(50)})

    (warning,) = head.warnings
    assert len(warning) < 1000
    assert "and 42 more" in warning
    assert read_head(helicone_cache_enabled="true", cf_aig_skip_cache="true").warnings == ()


@for_each(
    ("name", "value"),
    [
        *(("x-litellm-timeout", t) for t in ("0", "-1", "1e9", "nan", "x", "86401", "\u0663")),
        *(("cf-aig-request-timeout", t) for t in ("0", "86400001", "inf")),
        ("helicone-user-id", "a\udcff"),
        ("x-litellm-end-user-id", "u" * (MAX_NAME + 1)),
        ("x-litellm-tags", ",".join(f"t{n}" for n in range(MAX_WORDS + 1))),
        ("x-litellm-tags", "a:" + "b" * (MAX_NAME + 1)),
    ],
)
def test_malformed_routing_value_is_refused(name: str, value: str) -> None:
    assert refused_param(read_head, **{name: value}) == name


@for_each("value", ["", "{", "[1]", "null", '"x"', "[" * 5000, "{}", '{"a": [1]}'])
def test_unreadable_metadata_is_ignored(value: str) -> None:
    assert read_head(cf_aig_metadata=value).properties == ()


def test_properties_are_bounded_and_printable() -> None:
    long = {"x-title": "a\x01\udcff" + "b" * 1000}
    head = read_head(**{f"helicone-property-{n}": "v" for n in range(100)}, **long)

    assert len(head.properties) == MAX_WORDS
    assert "".join(dict(head.properties).values()).isprintable()
    assert read_head(**long).properties == (("x-title", "a??" + "b" * (MAX_NAME - 3)),)


@for_each(
    ("name", "value"),
    [
        ("helicone-property-key", "Bearer hr-key-of-the-caller"),
        ("x-title", "hr-key-of-the-caller"),
        ("x-headrace-properties", "app=mobile, key=hr-key-of-the-caller"),
        ("x-litellm-spend-logs-metadata", '{"key": "hr-key-of-the-caller"}'),
        ("x-litellm-session-id", "hr-key-of-the-caller"),
        ("helicone-user-id", "hr-key-of-the-caller"),
    ],
)
def test_property_containing_the_key_is_dropped(name: str, value: str) -> None:
    head = read_head(**{name: value})

    assert (head.properties, head.session, head.user, head.warnings) == ((), None, None, ())


def test_property_may_have_the_name_of_another_header() -> None:
    head = read_head(helicone_property_max_tokens="7", helicone_auth="Bearer sk-1")

    assert head.properties == (("max-tokens", "7"),)
    assert head.warnings == ("headers ignored because the policy decides: helicone-auth",)


def test_headrace_and_dialect_headers_take_precedence() -> None:
    portkey = {"x-portkey-metadata": '{"_user": "p"}', "x-portkey-request-timeout": "1000"}
    foreign = {"helicone-user-id": "h", "x-litellm-timeout": "9", "x-litellm-tags": "b:2"}

    head = read_head(**portkey, **foreign, **{"x-headrace-tags": "a=1"})

    assert (head.user, head.timeout_s) == ("p", 1.0)
    assert head.tags == (("a", "1"), ("b", "2"))


@for_each("dialect", DIALECTS)
def test_gateway_headers_apply_in_every_dialect(dialect: str) -> None:
    (method, path), _ = next(iter(DIALECTS[dialect].client.routes.items()))
    headers = {"x-portkey-api-key": "k"} if dialect == "portkey" else KEY

    head = parse_request_head(method, path, headers | {"x-title": "App"}, RequestContext("r"))

    assert head.properties == (("x-title", "App"),)


def chat(metadata: object) -> dict[str, Any]:
    return {"model": "m", "messages": [{"role": "user", "content": "x"}], "metadata": metadata}


def test_tags_in_metadata_are_not_forwarded() -> None:
    call = read_call(read_head(), chat({"tags": ["team:support", "beta"], "job": "7"}))

    assert call.head.tags == (("team", "support"), ("beta", None))
    assert call.body["metadata"] == {"job": "7"}
    assert "metadata" not in read_call(read_head(), chat({"tags": []})).body

    too_many_tags = chat({"tags": ["t"] * (MAX_WORDS + 1)})
    assert refused_param(read_call, read_head(), too_many_tags) == "metadata.tags"


@for_each("metadata", [{"tags": "a"}, {"tags": [1]}, {"job": "7"}, None, {}])
def test_other_metadata_is_unchanged(metadata: object) -> None:
    call = read_call(read_head(), chat(metadata))

    assert (call.head.tags, call.body["metadata"]) == ((), metadata)


MODEL = {"id": "gpt-4o", "object": "model", "created": 0, "owned_by": "openai"}


@pytest.mark.parametrize("route", INFO_PATHS)
def test_model_entry_has_name_and_owner(route: str) -> None:
    call = Call(RequestHead("openai", "models", route, "req_1"), {})

    answer = make_model_list_for_path(call, {0: {"object": "list", "data": [MODEL]}})

    info = {"id": "gpt-4o", "db_model": False, "litellm_provider": "openai"}
    model = {"model_name": "gpt-4o", "litellm_params": {"model": "gpt-4o"}, "model_info": info}
    assert answer == {"data": [model]}


@pytest.mark.parametrize("parts", [{"object": "list", "data": [MODEL]}, MODEL])
def test_models_on_other_paths_are_unchanged(parts: dict[str, object]) -> None:
    call = Call(RequestHead("openai", "models", "/v1/models", "req_1"), {})

    assert make_model_list_for_path(call, {0: parts}) is parts


@pytest.mark.parametrize("path", INFO_PATHS)
async def test_key_info_lists_usable_models(path: str, client: ClientSession) -> None:
    headers = {"authorization": f"Bearer {OWN}"}
    async with client.get(path, headers=headers) as response:
        event = await response.json()
    async with client.get("/v1/models", headers=headers) as response:
        listed = await response.json()

    names = [item["model_name"] for item in event["data"]]
    assert names == [item["id"] for item in listed["data"]] != []
    assert "127.0.0.1" not in str(event)
