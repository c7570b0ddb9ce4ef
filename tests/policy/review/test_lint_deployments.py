"""Warnings about passthrough paths and about guards that call services."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from proxy.policy.review.check import check_folder
from tests.for_each import for_each

NOW = datetime(2026, 7, 1, tzinfo=UTC)
POLICIES = """\
upstreams:
  up: {dialect: openai, base_url: 'https://api.example.test', gateway: %s}
  up2: {dialect: openai, base_url: 'https://spare.example.test'}
deployments:
  one: {targets: [{upstream: up, model: m, price: {input: 1, output: 2}}], passthrough: [%s]}
  other: {targets: [{upstream: up, model: m2, price: {input: 1, output: 2}}], passthrough: [%s]}
keys:
  mine: {sha256: %s, deployments: [one]}
  yours: {sha256: %s, deployments: [other]}
policies:
  default: {%s}
"""
SHARED = "2 keys can read, use and delete each other's data"
UNREAD = "rejects bodies at /v1/audio/speech that are not JSON, "
QUIET = "match: all, limits: [{name: l, requests: 10 per minute}]"
FILES, ITEM, RERANK = "/v1/files", "'/v1/things/{id}'", "/v1/rerank"


def path_warnings(
    folder: Path, single: str, other_item: str, policy: str = QUIET, gateway: str = "false"
) -> list[str]:
    text = POLICIES % (gateway, single, other_item, "1" * 64, "2" * 64, policy)
    (folder / "p.yaml").write_text(text)
    report = check_folder(folder, {}, NOW)
    assert not report.errors
    return [problem.message for problem in report.warnings if "passthrough" in problem.path]


@for_each(
    ("single", "other_item", "times"),
    [(FILES, ITEM, 2), (FILES, RERANK, 0), (RERANK, RERANK, 0), (f"{FILES}, {ITEM}", FILES, 2)],
)
def test_data_shared_between_keys_is_reported(
    single: str, other_item: str, times: int, tmp_path: Path
) -> None:
    messages = [item for item in path_warnings(tmp_path, single, other_item) if SHARED in item]

    assert len(messages) == times


@for_each(
    ("route", "names"),
    [
        ("/v1/files", "file_id"),
        ("/v1/skills", "skill_id"),
        ("/v1/containers", "container.id, container_id"),
        ("/v1/vector_stores", "vector_store_ids"),
        ("/v1/videos", None),
        (RERANK, None),
    ],
)
def test_reports_ids_of_other_tenants(route: str, names: str | None, tmp_path: Path) -> None:
    messages = [item for item in path_warnings(tmp_path, route, RERANK) if "may not refer" in item]

    assert len(messages) == (names is not None)
    assert all(f'"accepts: [{names}]"' in item for item in messages)


@for_each(
    ("route", "expected"),
    [
        ("/v1/realtime/client_secrets", True),
        ("/v1/realtime/sessions", True),
        ("/v1/realtime/transcription_sessions", True),
        ("/v1/chatkit/sessions", True),
        ("/v1/organization/admin_api_keys", True),
        ("{path: /v1/client_secrets, methods: [GET]}", False),
        ("/v1/tokenize", False),
        ("/v1/count_tokens", False),
        (RERANK, False),
    ],
)
def test_reports_paths_of_credentials(route: str, expected: bool, tmp_path: Path) -> None:
    messages = path_warnings(tmp_path, route, RERANK)

    assert any("may contain credentials" in message for message in messages) is expected


def test_data_split_over_upstreams_is_reported(tmp_path: Path) -> None:
    spare = "price: {input: 1, output: 2}}], fallback: [{upstream: up2, model: m, "
    split = f"{FILES}]}}\n  two: {{targets: [{{upstream: up, model: m3, {spare}"
    split += f"price: {{input: 1, output: 2}}}}], passthrough: [{FILES}, {ITEM}"

    messages = [item for item in path_warnings(tmp_path, split, RERANK) if "up, up2" in item]
    assert len(messages) == 1
    assert (
        "data of /v1/files, /v1/things/{id} is stored at one of the upstreams up, up2"
        in messages[0]
    )


def test_paths_unread_by_guards_are_reported(tmp_path: Path) -> None:
    acting = "match: all, output: [{guard: keywords, words: [a]}]"

    [message] = path_warnings(tmp_path, f"/v1/audio/speech, {RERANK}", RERANK, acting)
    assert UNREAD in message
    assert path_warnings(tmp_path, "/v1/audio/speech", RERANK, f"{acting}, opaque: allow") == []
    assert path_warnings(tmp_path, "/v1/audio/speech", RERANK) == []


BUDGET = "match: all, limits: [{name: day, usd: 5 per day}]"
UNBOUNDED = "has paths without most_usd: /v1/rerank. Concurrent calls may together spend more"


@for_each(
    ("single", "policy", "times"),
    [
        (RERANK, BUDGET, 1),
        (RERANK, QUIET, 0),
        (RERANK, BUDGET.replace("{name: day", "{mode: shadow, name: day"), 0),
        (f"{{path: {RERANK}, most_usd: 0.1}}", BUDGET, 0),
        (f"{{path: {RERANK}, methods: [GET]}}", BUDGET, 0),
        (RERANK, "match: all, rules: [{name: r, limits: [{name: day, usd: 5 per day}]}]", 1),
    ],
)
def test_unbounded_cost_is_reported(single: str, policy: str, times: int, tmp_path: Path) -> None:
    quiet = f"{{path: {RERANK}, most_usd: 1}}"
    messages = path_warnings(tmp_path, single, quiet, policy)

    assert [UNBOUNDED in message for message in messages] == [True] * times


def test_path_always_refused_by_a_limit_is_reported(tmp_path: Path) -> None:
    bound, lower = (f"{{path: {RERANK}, most_usd: {item}}}" for item in (5.01, 5))

    [message] = path_warnings(tmp_path, bound, lower, BUDGET)

    assert message.endswith('most_usd of /v1/rerank exceeds limit "day", so every call is rejected')


def test_free_paths_need_no_cost_bound(tmp_path: Path) -> None:
    text = POLICIES.replace("{input: 1, output: 2}", "{input: 0, output: 0}")
    (tmp_path / "p.yaml").write_text(text % ("false", RERANK, RERANK, "1" * 64, "2" * 64, BUDGET))
    report = [warning.message for warning in check_folder(tmp_path, {}, NOW).warnings]
    assert [
        warning[:11] for warning in report if "most_usd" in warning or "passthrough" in warning
    ] == ["also serves"] * 2

    for item in ("true", "false"):
        result = text.replace("passthrough:", f"only_passthrough: {item}, passthrough:")
        (tmp_path / "p.yaml").write_text(
            result % ("false", RERANK, RERANK, "1" * 64, "2" * 64, BUDGET)
        )
        assert [
            warning
            for warning in check_folder(tmp_path, {}, NOW).warnings
            if "chats" in warning.message
        ] == []


@for_each(
    ("route", "gateway", "expected"),
    [
        (RERANK, "true", True),
        (RERANK, "false", False),
        ("{path: /v1/rerank, fields: [query]}", "true", False),
        ("{path: /v1/rerank, fields: []}", "true", False),
        ("{path: /v1/rerank, methods: [GET]}", "true", False),
    ],
)
def test_warns_without_fields(route: str, gateway: str, expected: bool, tmp_path: Path) -> None:
    messages = path_warnings(tmp_path, route, "{path: /v1/x, fields: []}", gateway=gateway)

    assert any("forwards only the field" in message for message in messages) is expected


GUARD_POLICIES = """\
upstreams:
  openai: {dialect: openai, base_url: 'https://api.example.test'}
  spare: {dialect: openai, base_url: 'https://spare.example.test'}
keys: {widget: {sha256: AAAA, deployments: [support-chat]}}
deployments:
  support-chat: {targets: [{upstream: openai, model: m, price: PRICE}], policy: public}
  judge-smol: {targets: [{upstream: openai, model: s, price: PRICE}], policy: judging}
policies:
  judging: {input: [{guard: secrets}]}
  public:
    input:
      - {guard: judge, deployment: judge-smol, criteria: No hippos.}
      - {guard: moderation, upstream: spare}
    output:
      - {guard: judge, deployment: judge-smol, check: grounded}
      - {guard: webhook, url: 'https://guard.example.test', secret: '${S}'}
      - {guard: presidio, url: 'http://localhost:3000'}
""".replace("AAAA", "0" * 64).replace("PRICE", "{input: 1, output: 2}")
CALLS_ITSELF = "has guards that call the same deployment. Calls made by guards are not inspected."


def warnings_of(folder: Path, *changes: tuple[str, str]) -> list[str]:
    text = GUARD_POLICIES
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    (folder / "p.yaml").write_text(text)
    verdict = check_folder(folder, {"S": "s"})
    assert verdict.errors == ()
    return [str(warning) for warning in verdict.warnings]


def test_deployments_called_by_guards_count_as_used(tmp_path: Path) -> None:
    assert warnings_of(tmp_path) == []


@for_each(
    ("change", "count", "finding"),
    [
        (("policy: judging", "policy: public"), 2,
            f'.public.output[0].deployment: deployment "judge-smol" {CALLS_ITSELF}'),
        (("[{guard: secrets}]", "[{guard: secrets}, {guard: bias, deployment: support-chat}]"), 3,
            f'.judging.input[1].deployment: deployment "support-chat" {CALLS_ITSELF}'),
        (("{input: [{guard: secrets}]}",
            "{match: all, rules: [{name: r, input: [{guard: bias, deployment: judge-smol}]}]}"),
            None, f'.judging.rules[0].input[0].deployment: deployment "judge-smol" {CALLS_ITSELF}'),
    ],
)  # fmt: skip
def test_guards_that_call_themselves_are_reported(
    change: tuple[str, str], count: int | None, finding: str, tmp_path: Path
) -> None:
    text = [item.partition(": policies")[2] for item in warnings_of(tmp_path, change)]
    text = [item for item in text if "judging" not in item or ".judging." in finding]

    assert finding in text
    assert count in (None, len(text))


@pytest.mark.parametrize("kind", ["webhook", "presidio"])
def test_unencrypted_guard_service_is_reported(kind: str, tmp_path: Path) -> None:
    nearby = "https://guard" if kind == "webhook" else "http://localhost:3000"
    [text] = warnings_of(
        tmp_path, (nearby, "http://guard" if kind == "webhook" else "http://p.test")
    )

    assert text.endswith(".url: does not use https: all texts are sent unencrypted")
