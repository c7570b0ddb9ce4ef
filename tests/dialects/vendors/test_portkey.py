"""Portkey headers: applied, ignored with a warning, or refused. Results of guards as hooks."""

from __future__ import annotations

from hashlib import sha256
from json import dumps
from typing import Any

import pytest

from proxy.dialects import RequestContext, find_dialect, parse_request_head
from proxy.dialects.vendors.portkey import (
    HOOK_DENIED,
    HOOK_FAILED,
    choose_success_status,
    make_hook_results,
)
from proxy.types import Json, RequestHead
from proxy.types.guard import Action, GuardResult, Stage
from tests.conftest import KEY as OWN
from tests.conftest import Proxy
from tests.dialects.refused import refused_param
from tests.doubles import ScriptedUpstream, chat, respond
from tests.for_each import for_each

KEY = {"x-portkey-api-key": "pk"}
PAIR = [{"virtual_key": "a"}, {"virtual_key": "b"}]


def read_head(call_id: str = "", **headers: str) -> RequestHead:
    by_name = KEY | {name.replace("_", "-"): value for name, value in headers.items()}
    context = RequestContext("req_1", call_id=call_id)
    return parse_request_head("POST", "/v1/completions", by_name, context)


def test_saved_config_precedes_virtual_key() -> None:
    assert read_head(x_portkey_virtual_key="vk").deployment == "vk"
    assert read_head(x_portkey_virtual_key="vk", x_portkey_config="pc").deployment == "pc"
    assert read_head(x_portkey_config="pc", x_headrace_deployment="own").deployment == "own"


def test_harmless_inline_config_is_ignored_with_warning() -> None:
    head = read_head(x_portkey_config='{"cache": {"mode": "simple"}, "retry": {"attempts": 2}}')

    assert head.deployment is None
    assert "ignored" in head.warnings[0]


@pytest.mark.parametrize("strategy", [{}, {"strategy": {"mode": "single"}}])
def test_inline_config_may_name_one_deployment(strategy: Json) -> None:
    target = {"virtual_key": "vk"}
    for config in (target, {**strategy, "targets": [target]}):
        head = read_head(x_portkey_config=dumps(config))
        assert (head.deployment, head.warnings) == ("vk", ())


def test_load_balance_draws_by_weight_with_alternatives() -> None:
    targets = [{"virtual_key": "a", "weight": 0.25}, {"virtual_key": "b", "weight": 0.75}]
    heads = [read_head(f"n-{number}", **balanced(targets)) for number in range(400)]

    assert {frozenset((head.deployment, *head.alternatives)) for head in heads} == {frozenset("ab")}
    assert 70 <= sum(head.deployment == "a" for head in heads) <= 130
    head = read_head(**balanced(targets), x_headrace_deployment="own")
    assert (head.deployment, head.alternatives) == ("own", ())


@for_each(("headers", "key"), [(KEY, b"pk"), ({"x-portkey-provider": "openai"}, b"own")])
def test_bearer_applies_only_without_a_portkey_key(headers: dict[str, str], key: bytes) -> None:
    headers = {"authorization": "Bearer own", **headers}

    head = parse_request_head("POST", "/v1/chat/completions", headers, RequestContext("req_1"))

    assert (head.dialect, head.digest) == ("portkey", sha256(key).digest())
    assert find_dialect("/v1/completions", {"authorization": "Bearer x"}).name == "openai"
    assert find_dialect("/v4/beta/completions", {"x-portkey-trace-id": "t"}).name == "scale"


def test_numbers_in_metadata_become_tags() -> None:
    head = read_head(x_portkey_metadata='{"_user": 7, "retries": 2, "share": 0.5, "beta": true}')

    assert (head.user, head.tags) == ("7", (("retries", "2"), ("share", "0.5"), ("beta", "true")))


def balanced(targets: list[Any], mode: str = "loadbalance", **fields: str) -> dict[str, str]:
    config = {"strategy": {"mode": mode}, "targets": targets, **fields}
    return {"x_portkey_config": dumps(config)}


@for_each(
    "headers",
    [
        {"x_portkey_metadata": dumps({"_user": "u" * 257})},
        {"x_portkey_config": '{"provider": "openai", "api_key": "sk"}'},
        {"x_portkey_config": '{"targets": []}'},
        {"x_portkey_config": "{broken"},
        {"x_portkey_custom_host": "http://10.0.0.1"},
        {"x_portkey_metadata": "[]"},
        {"x_portkey_metadata": '{"a": [1]}'},
        {"x_portkey_metadata": '{"a": null}'},
        {"x_portkey_config": '{"virtual_key": 1}'},
        {"x_portkey_config": '{"targets": [{"virtual_key": "a"}, {"virtual_key": "b"}]}'},
        balanced(PAIR, mode="fallback"),
        balanced(PAIR, mode="conditional"),
        balanced(PAIR, api_key="sk"),
        balanced([PAIR[0], {"provider": "openai"}]),
        balanced([PAIR[0], "b"]),
        balanced([*PAIR, {"virtual_key": "c", "custom_host": "http://x"}]),
        balanced([{"virtual_key": "a", "weight": 0}] * 2),
        *[balanced([PAIR[1], {"virtual_key": "a", "weight": odd}]) for odd in (-1, True, "1")],
        balanced([PAIR[0]] * 33),
        {"x_portkey_config": '{"strategy": 1, "targets": [{"virtual_key": "a"}, {}]}'},
        {"x_portkey_config": '{"targets": [{"virtual_key": "a", "api_key": "sk"}]}'},
        {"x_portkey_config": '{"targets": [{"custom_host": "http://10.0.0.1"}]}'},
        {"x_portkey_request_timeout": "soon"},
        {"x_portkey_request_timeout": "0"},
    ],
)
def test_malformed_routing_headers_are_refused(headers: dict[str, str]) -> None:
    assert refused_param(read_head, **headers) == next(iter(headers)).replace("_", "-")


@for_each(
    ("text", "echoed"), [("tr-1", "tr-1"), ("", "req_1"), ("\u00e9", "req_1"), ("a\x01", "req_1")]
)
def test_response_always_has_a_trace_id(text: str, echoed: str) -> None:
    assert read_head(x_portkey_trace_id=text).echo == (("x-portkey-trace-id", echoed),)


def test_timeout_header_is_in_milliseconds() -> None:
    assert read_head(x_portkey_request_timeout="1500").timeout_s == 1.5


@pytest.mark.parametrize(
    ("targets", "status"),
    [
        (("support-chat", "search-answers"), 200),
        (("support-chat", "nobody-has-it"), 400),
        (("nobody-has-it", "support-chat"), 400),
    ],
)
async def test_key_must_have_access_to_all_balanced_deployments(
    targets: tuple[str, ...], status: int, proxy: Proxy, upstream: ScriptedUpstream
) -> None:
    weights = [{"virtual_key": name, "weight": 1 - index} for index, name in enumerate(targets)]
    config = balanced(weights)["x_portkey_config"]
    headers = {"x-portkey-api-key": OWN, "x-portkey-config": config}
    upstream.answer_with(respond(chat()))
    body = {"model": "gpt-4o-mini", "messages": [{"role": "user", "content": "Hi"}]}

    response = await proxy.send("/v1/chat/completions", body, headers)

    if status == 200:
        assert response.headers["x-headrace-deployment"] == "support-chat"
    else:
        assert (response.status, response.json["error"]["param"]) == (status, "deployment")
        assert "nobody-has-it" in response.json["error"]["message"]


def hook_verdict(
    verdict: Any, action: Action = "flag", stage: Stage = "input", error: str | None = None
) -> tuple[Stage, GuardResult]:
    findings = {} if verdict in ("passed", "failed", "not_applicable") else {"email": 1}
    counts = findings, 0.5, 9, 1, 0.002
    return stage, GuardResult("mails", verdict, False, *counts, error, "pii", action)


def test_guard_is_a_hook_with_one_check() -> None:
    passed = hook_verdict("passed", "block", "output")
    results = make_hook_results([hook_verdict("flagged"), hook_verdict("masked", "mask"), passed])

    failed, masked = results["before_request_hooks"]
    [pending] = results["after_request_hooks"]
    assert (masked["verdict"], masked["transformed"]) == (True, True)
    assert (failed["id"], failed["verdict"], failed["deny"]) == ("mails", False, False)
    assert (pending["verdict"], pending["deny"], pending["transformed"]) == (True, True, False)
    data = {"findings": {"email": 1}, "score": 0.5}
    check = {"id": "headrace.pii", "verdict": False, "data": data, "transformed": False}
    assert failed["checks"] == [{**check, "execution_time": 2.0}]


def test_failed_check_fails_no_hook() -> None:
    results = make_hook_results([hook_verdict("failed", error="ZeroDivisionError")])

    [hook] = results["before_request_hooks"]
    [check] = hook["checks"]
    assert (hook["verdict"], check["verdict"]) == (True, False)
    assert "ZeroDivisionError" not in str(check)


@for_each(
    ("verdicts", "code"),
    [
        ([], 200),
        ([hook_verdict("passed"), hook_verdict("not_applicable"), hook_verdict("failed"),
            hook_verdict("masked", "mask")], 200),
        ([hook_verdict("passed"), hook_verdict("flagged")], HOOK_FAILED),
        ([hook_verdict("flagged", stage="output")], HOOK_FAILED),
        ([hook_verdict("blocked", "block", "output")], 200),  # it ends a started stream
    ],
)  # fmt: skip
def test_failed_hook_has_its_own_status(verdicts: Any, code: int) -> None:
    assert choose_success_status(verdicts, is_flagged=False) == code
    assert choose_success_status(verdicts, is_flagged=True) == HOOK_FAILED
    assert HOOK_DENIED == 446
