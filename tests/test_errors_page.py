"""docs/errors.md against real refusals: code, status and type, in each dialect, over sockets."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import DIGEST, KEY, running_proxy
from tests.doubles import ScriptedUpstream, cut_before_head, hang, respond
from tests.test_pipeline import ROUTES

PAGE = (Path(__file__).parents[1] / "docs/errors.md").read_text()
DIALECTS = ("openai", "portkey", "fireworks", "scale-5", "multimodel", "enkrypt")


def policies(url: str) -> str:
    return f"""
upstreams:
  openai: {{dialect: openai, base_url: '{url}', breaker: off}}
  slow: {{dialect: openai, base_url: '{url}', breaker: off, timeouts: {{total: 200ms}}}}
keys: {{support: {{sha256: {DIGEST}, deployments: [support-chat]}}}}
deployments:
  support-chat: {{targets: [{{upstream: openai, model: gpt-4o-mini}}], policy: cases}}
policies:
  cases:
    match: all
    rules:
      - {{name: refuse, when: {{header: {{x-case: refuse}}}}, refuse: "No."}}
      - {{name: slow, when: {{header: {{x-case: slow}}}}, targets: [{{upstream: slow, model: m}}]}}
      - {{name: rate, when: {{header: {{x-case: rate}}}}, limits: [{{name: r, tokens: 1 per day}}]}}
      - name: budget
        when: {{header: {{x-case: budget}}}}
        targets: [{{upstream: openai, model: m, price: {{input: 1000, output: 1000}}}}]
        limits: [{{name: b, usd: 0.000001 per month}}]
      - name: guard
        when: {{header: {{x-case: guard}}}}
        input: [{{guard: keywords, words: [capital]}}]
"""


def rows_by_code() -> dict[str, tuple[set[int], set[str]]]:
    """Return the documented statuses and types of each code. Status 0: the upstream's."""
    results: dict[str, tuple[set[int], set[str]]] = {}
    table = PAGE.partition("<!-- generated: codes -->")[2].partition("<!-- end")[0]
    for line in table.splitlines():
        columns = line.split("|")
        if len(columns) < 5:
            continue
        for code in re.findall(r"`([a-z_]+)`", columns[1]):
            statuses, types = results.setdefault(code, (set(), set()))
            statuses |= set(map(int, re.findall(r"\d{3}", columns[2])))
            statuses |= {0} if "the upstream's" in columns[2] else set()
            types |= set(re.findall(r"`([a-z_]+)`", columns[3]))
    return results


def error_response_of(status: int) -> Any:
    return respond({"error": {"message": "no", "type": "t" * 80}}, status=status)


CASES: dict[str, tuple[dict[str, Any], Any]] = {
    "bad_request": ({"data": b"{"}, None),
    "invalid_value": ({"more": {"temperature": "hot"}}, None),
    "invalid_api_key": ({"key": "hr-wrong"}, None),
    "refused_by_policy": ({"case": "refuse"}, None),
    "guardrail_blocked": ({"case": "guard"}, None),
    "method_not_allowed": ({"method": "DELETE"}, None),
    "rate_limit_exceeded": ({"case": "rate"}, None),
    "budget_exceeded": ({"case": "budget"}, None),
    "unsupported_media_type": ({"type": "text/plain"}, None),
    "not_found": ({"headers": {"x-headrace-deployment": "nowhere"}}, None),
    "model_not_found": ({"more": {"model": "nobody-has-it"}, "unnamed": True}, None),
    "upstream_refused": ({}, error_response_of(422)),
    "upstream_not_found": ({}, error_response_of(404)),
    "upstream_rejected_key": ({}, error_response_of(401)),
    "upstream_forbids": ({}, error_response_of(403)),
    "upstream_unavailable": ({}, cut_before_head()),
    "upstream_total_timeout": ({"case": "slow"}, hang()),
    "upstream_invalid_response": ({}, respond({"what": 1})),
    "upstream_answer_too_large": ({}, respond({"choices": [[]] * 200_000})),
}
ELSEWHERE = {
    *("internal_error", "client_gone", "stopping", "upstream_stale", "limit_store_unavailable"),
    *("upstream_circuit_open", "upstream_busy", "guard_unavailable", "loop_detected"),
    *("request_timeout", "request_too_large", "http_version_not_supported"),
    *("upstream_connect_timeout", "upstream_first_byte_timeout", "upstream_idle_timeout"),
    *("overloaded", "transfer_encoding_not_supported", "websocket_not_supported"),
}
"""Codes whose own tests provoke them, as it takes a fault, a wait or a line of raw HTTP."""


def test_page_lists_exactly_the_tested_codes() -> None:
    assert CASES.keys() | ELSEWHERE == rows_by_code().keys()


@pytest.mark.parametrize("name", DIALECTS)
async def test_refusals_match_page(name: str, upstream: ScriptedUpstream, tmp_path: Path) -> None:
    route, page = ROUTES[name], rows_by_code()
    async with running_proxy(tmp_path / "p", policies(upstream.url)) as proxy:
        for code, (how, script) in CASES.items():
            if script is not None:
                upstream.answer_with(script)
            headers = {
                "content-type": how.get("type", "application/json"),
                **how.get("headers", {}),
            }
            headers |= {"x-case": how["case"]} if "case" in how else {}
            for header, value in route.credential.items():
                if KEY in value or "unnamed" not in how:
                    headers[header] = value.replace(KEY, how.get("key", KEY))
            body = json.dumps({**route.body(streamed=False), **how.get("more", {})})
            async with proxy.client.request(
                how.get("method", "POST"),
                proxy.url + route.path,
                headers=headers,
                data=how.get("data", body),
            ) as response:
                event = await response.json()
            statuses, types = page[code]
            assert response.headers["x-headrace-error"] == code, (code, event)
            assert response.status in statuses or 0 in statuses, (code, response.status)
            if "error" in event:  # Enkrypt's gateway has another form for invalid keys
                assert event["error"]["type"] in types, (code, event)
                assert event["error"]["code"] == code
