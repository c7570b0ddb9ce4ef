"""Policy tests: results, messages, coverage, and simulated time."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml
from click.testing import CliRunner

from proxy.cli import main
from proxy.policy.files.source import PolicyError
from proxy.policy.schema import build_schema
from proxy.policytest import run_cases
from proxy.policytest.cases import Suite, read_cases
from proxy.policytest.harness import run_with_simulated_clock
from proxy.policytest.report import Report
from tests.for_each import for_each

TOP = Path(__file__).parents[2]
POLICIES = """\
upstreams:
  one: {dialect: openai, base_url: 'https://one.example.test', api_key: '${NOT_SET}'}
  two: {dialect: scale, base_url: 'https://two.example.test', api_key: 'file:/not/there'}
tags: {team: [support]}
keys: {widget: {sha256: AAAA, deployments: [chat, sturdy], tags: {team: support}}}
policies:
  public:
    match: all
    rules:
      - {name: short, when: {endpoint: chat}, cap: {max_tokens: 5}}
      - {name: quiet, when: {stream: true}, refuse: No streams.}
deployments:
  chat:
    targets: [{upstream: one, model: m, price: {input: 1, output: 2}}]
    policy: public
    passthrough: [/v1/rerank, {path: '/v1/files/{id}', methods: [GET]}]
  sturdy:
    targets: [{upstream: one, model: m, price: {input: 1, output: 2}}]
    fallback: [{upstream: two, model: s, price: {input: 1, output: 2}}]
    retry: {times: 1, on: [503], wait: 1h, max_wait: 1h}
    hedge: {after: 5m}
""".replace("AAAA", "0" * 64)


def play(folder: Path, setup: dict[str, Any], expect: dict[str, Any]) -> Report:
    """Run one case, with the key of the widget by default."""
    case = {"given": {"key": "widget", **setup}, "expect": expect}
    (folder / "p.yaml").write_text(POLICIES)
    (folder / "tests").mkdir()
    (folder / "tests" / "t.yaml").write_text(yaml.safe_dump({"tests": {"it works": case}}))
    return run_cases(folder)


def chat(**fields: Any) -> dict[str, Any]:
    return {"model": "chat", "messages": [{"role": "user", "content": "Hi"}], **fields}


@for_each(
    ("setup", "expect"),
    [
        ({"deployment": "chat"}, {"status": 200, "error": "none", "rules": ["public/short"]}),
        ({"body": chat(max_tokens=9)}, {"upstream": {"body": {"max_tokens": 5}, "text": "Hi"}}),
        ({"body": chat(stream=True)}, {"status": 403, "error": "refused_by_policy"}),
        ({"body": chat(stream=True)},
            {"client": {"body": {"error": {"message": "No streams."}}}, "targets": []}),
        ({"deployment": "chat", "answers": ["Bonjour."]},
            {"client": {"text": "Bonjour.", "headers": {"x-headrace-cost-usd": "0.00002"}}}),
        ({"deployment": "sturdy", "answers": [{"status": 500}, "Spare."]},
            {"targets": ["one/m", "two/s"], "client": {"text": "Spare."}}),
        ({"deployment": "sturdy"}, {"plan": ["one/m", "two/s"], "targets": ["one/m"]}),
        ({"deployment": "sturdy", "answers": [{"fault": "silent"}]},
            {"targets": ["one/m", "two/s"]}),
        ({"deployment": "sturdy", "answers": [{"fault": "garbled"}]},
            {"targets": ["one/m", "two/s"], "status": 200}),
        ({"deployment": "chat", "answers": [{"fault": "cut"}]},
            {"status": 502, "error": "upstream_invalid_response"}),
        ({"key": "nobody"}, {"status": 401, "error": "invalid_api_key"}),
        ({"path": "/v1/rerank", "body": {"model": "chat", "query": "Hi"}, "answers": ["1"]},
            {"deployment": "chat", "status": 200, "upstream": {"body": {"model": "m"}}}),
        ({"path": "/v1/files/a", "method": "GET", "body": {}},
            {"deployment": "chat", "status": 200, "cost_usd": 0}),
        ({"path": "/v1/files/a", "body": {}}, {"status": 405}),
        ({"body": {"model": "chat", "input": "Hi"}}, {"client": {"body": {"object": "response"}}}),
        ({"path": "/v1/other", "body": {"query": "Hi"}}, {"status": 404, "error": "not_found"}),
        ({"path": "/v1/conversations", "deployment": "chat", "body": {"metadata": {"a": "b"}}},
            {"status": 200, "cost_usd": 0, "client": {"body": {"metadata": {"a": "b"}}}}),
        ({"path": "/v1/conversations/conv_1", "body": {}}, {"status": 404, "error": "not_found"}),
        ({"path": "/v1/responses/resp_1/cancel", "body": {}}, {"status": 404}),
        ({"path": "/v4/beta/chat/completions", "body": {**chat(), "model": "x/y/chat"}},
            {"deployment": "chat", "client": {"text": "Hello."}}),
        ({"body": {"model": "sturdy", "input": "x"}, "path": "/v1/embeddings"},
            {"status": 200, "rules": [], "upstream": {"text": "x"}}),
        ({"deployment": "chat"}, {"tags": {"team": "support"}, "cost_usd": 0.00002}),
    ],
)  # fmt: skip
def test_expectations_are_met(
    setup: dict[str, Any], expect: dict[str, Any], tmp_path: Path
) -> None:
    report = play(tmp_path, setup, expect)

    assert [result.differences for result in report.results] == [()]


@for_each(
    ("expect", "difference"),
    [
        ({"status": 403}, "status: expected 403, got 200"),
        ({"error": "x"}, "error: expected x, got none"),
        ({"deployment": "sturdy"}, "deployment: expected sturdy, got chat"),
        ({"tags": {}}, 'tags: expected {}, got {"team":"support"}'),
        ({"rules": []}, 'rules: expected [], got ["public/short"]'),
        ({"targets": ["two/s"]}, 'targets: expected ["two/s"], got ["one/m"]'),
        ({"upstream": {"body": {"max_tokens": 9}}}, "upstream.body.max_tokens: expected 9, got 5"),
        ({"upstream": {"body": {"n": 1}}}, "upstream.body.n: expected 1, got nothing"),
        ({"upstream": {"text": "Ho"}}, "upstream.text: expected Ho, got Hello"),
        ({"client": {"text": "Ho"}}, "client.text: expected Ho, got Hello."),
        ({"cost_usd": 1}, "cost_usd: expected 1, got 0.00002"),
    ],
)
def test_failure_is_one_sentence(expect: dict[str, Any], difference: str, tmp_path: Path) -> None:
    [result] = play(tmp_path, {"deployment": "chat"}, expect).results

    assert result.differences == (difference,)
    assert (result.name, result.location) == ("it works", "tests/t.yaml:2")


def test_uncovered_rules_have_a_location(tmp_path: Path) -> None:
    report = play(tmp_path, {"deployment": "chat"}, {"status": 200})

    assert [(part.kind, part.name, part.location) for part in report.parts if not part.covered] == [
        ("deployment", "sturdy", "p.yaml:17"),
        ("rule", "public/quiet", "p.yaml:11"),
    ]
    assert report.coverage_percent == 50


def test_invalid_test_has_a_location(tmp_path: Path) -> None:
    with pytest.raises(PolicyError) as refused:
        play(tmp_path, {"answer": ["x"]}, {})

    assert str(refused.value).splitlines() == [
        "tests/t.yaml:3:5: tests.it works.expect: must have at least one expectation",
        'tests/t.yaml:5:7: tests.it works.given.answer: unknown key. Did you mean "answers"?',
    ]


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(main, ["test", *arguments])
    return result.exit_code, result.output


def test_command_fails_with_a_test(tmp_path: Path) -> None:
    play(tmp_path, {"deployment": "chat"}, {"status": 403})

    code, text = run(str(tmp_path))
    _, document = run(str(tmp_path), "--format", "json")

    assert code == 1
    assert "FAILED tests/t.yaml:2: it works\n    status: expected 403, got 200\n" in text
    assert text.endswith("0 passed, 1 failed\n")
    data = orjson.loads(document)
    assert (data["failed"], data["coverage_percent"]) == (1, 50)
    assert data["tests"][0]["differences"] == ["status: expected 403, got 200"]


def test_command_fails_with_low_coverage(tmp_path: Path) -> None:
    play(tmp_path, {"deployment": "chat"}, {"status": 200})

    assert run(str(tmp_path))[0] == 0
    assert run(str(tmp_path), "--fail-under", "50")[0] == 0
    assert run(str(tmp_path), "--fail-under", "51")[0] == 1


def test_example_policies_are_covered() -> None:
    code, text = run(str(TOP / "policies"), "--fail-under", "100")

    assert code == 0, text


def test_committed_schema_is_current() -> None:
    committed = (TOP / "policies" / "tests" / "schema.json").read_bytes()

    assert orjson.loads(committed) == build_schema(Suite, "Headrace policy tests")


def test_played_call_sends_nothing(tmp_path: Path) -> None:
    guard = "{guard: bias, deployment: sturdy}"
    (tmp_path / "guards.yaml").write_text(
        f"policies: {{default: {{input: [{guard}, {{guard: sponge}}], output: [{guard}]}}}}"
    )

    report = play(tmp_path, {"deployment": "sturdy"}, {"guards": {"input.sponge": "passed"}})

    assert [result.differences for result in report.results] == [()]


@for_each("key", ["widget", "ended"])
def test_revoked_or_expired_key_is_refused(key: str, tmp_path: Path) -> None:
    ended = f"ended: {{sha256: {'2' * 64}, expires: 2026-01-04, deployments: [chat]}}"
    (tmp_path / "keys.yaml").write_text(f"keys: {{{ended}}}\nrevoked: [widget]\n")
    expected = {"status": 401, "error": "invalid_api_key"}

    report = play(tmp_path, {"key": key, "deployment": "chat"}, expected)

    assert not report.failed_count, report


def test_unknown_name_lists_known_names(tmp_path: Path) -> None:
    expect = {"guards": {"input.pii": "passed"}, "charged": {"no-such": 1}}

    [result] = play(tmp_path, {"deployment": "chat"}, expect).results

    assert result.differences[0].startswith("guards.input.pii: expected passed, got nothing")
    assert "charged.no-such: expected 1, got nothing" in result.differences[1]


def test_folder_without_tests_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(PolicyError, match=r"^tests:1:1: does not exist"):
        read_cases(tmp_path)


def test_sleeps_are_virtual_and_ordered() -> None:
    ended: list[str] = []

    async def wait(seconds: float, name: str) -> None:
        await asyncio.sleep(seconds)
        ended.append(name)

    async def wait_twice() -> float:
        await asyncio.gather(wait(7200, "long"), wait(3600, "short"))
        return asyncio.get_running_loop().time()

    elapsed = run_with_simulated_clock(wait_twice())

    assert ended == ["short", "long"]
    assert elapsed == pytest.approx(7200, abs=1)


def test_endless_wait_raises() -> None:
    async def hang(timeout_s: float | None) -> None:
        async with asyncio.timeout(timeout_s):
            await asyncio.Event().wait()

    with pytest.raises(TimeoutError):
        run_with_simulated_clock(hang(600))
    with pytest.raises(RuntimeError, match="no timer or scripted response"):
        run_with_simulated_clock(hang(None))
