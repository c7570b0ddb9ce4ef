"""Explanations of possible and past calls: each decision with its reason and location."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson
import pytest
from click.testing import CliRunner

from proxy.cli import main
from proxy.policy.decide.snapshot import Snapshot
from proxy.policy.review.decision import CallExplanation, Decision
from proxy.policy.review.explain import explain
from proxy.policy.review.sample_call import build_sample_call, make_chat_body
from proxy.policy.store import read_folder
from tests.for_each import for_each
from tests.policy.decisions import read_text

POSITION = datetime(2026, 11, 20, 12, tzinfo=UTC)
POLICIES = """\
upstreams:
  openai: {dialect: openai, base_url: 'https://api.example.test', provider: openai}
  eu: {dialect: openai, base_url: 'https://eu.example.test'}
tags:
  team: [support]
  env: [prod]
  feature: {pattern: '[a-z]+', caller: true}
keys:
  widget: {sha256: AAAA, deployments: [support-chat, even, drawn], tags: {team: support}}
policies:
  public:
    match: first
    rules:
      - name: europe
        when: {header: {x-region: eu}}
        targets: [{upstream: eu, model: m}]
        cap: {max_tokens: 100}
      - {name: never, when: {stream: true}, refuse: no streams}
      - {name: short, extra: 1}
      - {name: later, model: other}
    extends: house
  house:
    match: all
    rules:
      - {name: calm, set: {temperature: 0}}
      - {name: calmer, set: {temperature: 0.1}, cap: {max_tokens: 200}}
      - {name: would, mode: shadow, when: {tag: {team: support}}, refuse: not you}
deployments:
  support-chat:
    tags: {env: prod}
    policy: public
    targets: [{upstream: openai, model: m, price: {input: 1, output: 2}}]
    fallback: [{upstream: eu, model: spare}]
    passthrough: [/v1/rerank, {path: '/v1/files/{id}', methods: [GET]}]
  even:
    balance: least_loaded
    targets: [{upstream: openai, model: a}, {upstream: eu, model: b}]
  drawn:
    sticky: key
    targets: [{upstream: openai, model: x, weight: 1}, {upstream: eu, model: y, weight: 1}]
""".replace("AAAA", "0" * 64).replace("extra: 1", "cap: {n: 1}")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "p.yaml").write_text(POLICIES)
    return tmp_path


@pytest.fixture
def snapshot(folder: Path) -> Snapshot:
    return read_folder(folder, {})


def explain_call(
    snapshot: Snapshot, deployment: str = "support-chat", **fields: Any
) -> CallExplanation:
    headers = fields.pop("headers", {})
    key = snapshot.keys["widget"]
    return explain(
        snapshot,
        key,
        build_sample_call({**make_chat_body(deployment), **fields}, headers, POSITION),
    )


def decision_on(explanation: CallExplanation, subject: str) -> Decision:
    return next(reason for reason in explanation.decisions if reason.subject == subject)


def test_call_is_explained_from_key_to_targets(snapshot: Snapshot) -> None:
    text = explain_call(
        snapshot, max_tokens=500, headers={"x-headrace-tags": "feature=help,env=dev"}
    ).format_tree()

    assert text.splitlines()[1:] == [
        "├─ key: widget  [p.yaml:9]",
        "├─ deployment: support-chat (requested by its name as the model)  [p.yaml:29]",
        "├─ tags: 3",
        "│  ├─ env=prod (set by the deployment)  [p.yaml:30]",
        "│  ├─ feature=help (set by the client)  [p.yaml:7]",
        "│  ├─ team=support (set by the key)  [p.yaml:9]",
        "│  └─ 'env' dropped (clients may not set this tag; to allow it, add `caller: true` to "
        "the tag)",
        "├─ rules: 3 of 7 apply",
        "│  ├─ public/europe does not apply (header x-region is not set)  [p.yaml:14]",
        "│  ├─ public/never does not apply (the call is not streamed)  [p.yaml:18]",
        "│  ├─ public/short applies (cap n 1)  [p.yaml:19]",
        "│  ├─ public/later does not apply (public/short matched first)  [p.yaml:20]",
        "│  ├─ house/calm applies (set temperature 0.0)  [p.yaml:25]",
        "│  ├─ house/calmer applies (set temperature 0.1 (no effect: house/calm takes precedence); "
        "cap max_tokens 200)  [p.yaml:26]",
        "│  └─ house/would would apply (shadow mode: reject with 403: not you)  [p.yaml:27]",
        "├─ parameters: 2 changed",
        "│  ├─ max_tokens: 200 (without rules: 500)",
        "│  └─ temperature: 0.0 (without rules: not set)",
        "├─ targets: 2",
        "│  ├─ openai/m (the first target for this model; USD per million tokens: "
        "input 1, output 2)  [p.yaml:32]",
        "│  └─ eu/spare (fallback; price unknown)  [p.yaml:33]",
        "├─ guards: 0",
        "├─ limits: 0",
        "├─ cache: off",
        "└─ result: route to openai/m "
        "(tag env ignored: clients may not set it, or not to this value)",
    ]


@pytest.mark.parametrize(
    ("setup", "why"),
    [
        ("nowhere=1", "the policies do not declare this tag"),
        ("env=prod", "clients may not set this tag; to allow it, add `caller: true`"),
        ("feature=HELP", "clients may not set this value, or the key or deployment sets"),
    ],
)
def test_dropped_tag_names_the_gap(setup: str, why: str, snapshot: Snapshot) -> None:
    call = build_sample_call(make_chat_body("even"), {"x-headrace-tags": setup}, POSITION)
    key = snapshot.keys["widget"]

    [dropped] = [
        part for part in decision_on(explain(snapshot, key, call), "tags").parts if part.reason
    ][-1:]

    assert (dropped.reason or "").startswith(why)


FULL_TEXT = "rejected with 429 by limit l (this call alone is larger than the limit"


@for_each(
    ("limit", "fields", "decided"),
    [
        ("usd: 0.0001 per month", "", FULL_TEXT),
        ("tokens: 100 per day", "", FULL_TEXT),
        ("usd: 0.0001 per month", "cache: {ttl: 1h}, ", "; a cached response is still served"),
        ("usd: 0.0001 per month, mode: shadow", "", "route to openai/m"),
        ("usd: 1 per month", "", "route to openai/m"),
        ("tokens: 100 per day", "rules: [{name: n, refuse: No.}], ", "403 by rule own/n"),
    ],
)
def test_impossible_call_is_refused(limit: str, fields: str, decided: str, tmp_path: Path) -> None:
    own_text = f"policies:\n  own: {{{fields}limits: [{{name: l, {limit}}}]}}\n"
    text = POLICIES.replace("policies:\n", own_text, 1).replace("policy: public", "policy: own", 1)
    text = text.replace("fallback: [{upstream: eu, model: spare}]", "fallback: []")
    snapshot = read_text(tmp_path, text, {})

    assert decided in explain_call(snapshot, max_tokens=1000).format_tree().splitlines()[-1]


def test_cap_above_a_lower_cap_is_explained(snapshot: Snapshot) -> None:
    rules = decision_on(explain_call(snapshot, headers={"x-region": "eu"}), "rules")

    assert rules.parts[0].reason == "targets eu/m; cap max_tokens 100"
    assert rules.parts[5].reason is not None
    assert "cap max_tokens 200 (a lower cap applies)" in rules.parts[5].reason


@pytest.mark.parametrize(("mode", "refused"), [("shadow", 0), ("enforce", 1)])
def test_unreadable_part_needs_active_guard(mode: str, refused: int, tmp_path: Path) -> None:
    guard = f"    input: [{{guard: keywords, words: [hippo], mode: {mode}}}]\n"
    text = POLICIES.replace("    extends: house\n", f"    extends: house\n{guard}")
    guards = decision_on(explain_call(read_text(tmp_path, text, {})), "guards")

    texts = [part.result for part in guards.parts]
    assert texts.count("images, audio and files: rejected") == refused


def test_fallback_without_effect_names_the_deciding_rule(tmp_path: Path) -> None:
    calm = "{name: calm, set: {temperature: 0}}"
    later = "{name: calm, fallback: [{upstream: openai, model: spare}]}"
    snapshot = read_text(tmp_path, POLICIES.replace(calm, later), {})
    explained = explain_call(snapshot, headers={"x-region": "eu"})

    assert (
        "fallback openai/spare (no effect: public/europe chooses the targets)"
        in explained.format_tree()
    )
    assert [part.result for part in decision_on(explained, "targets").parts] == ["eu/m"]


def test_condition_order_does_not_change_reason(tmp_path: Path) -> None:
    tags = "when: {tag: {team: support, feature: x}, header: {x-b: '1', x-a: '1'}}"
    turned = "when: {header: {x-a: '1', x-b: '1'}, tag: {feature: x, team: support}}"
    texts = []
    for number, when in enumerate((tags, turned)):
        folder = tmp_path / str(number)
        folder.mkdir()
        text = POLICIES.replace("{name: short, ", f"{{name: short, {when}, ")
        text = text.replace(
            "when: {stream: true}", f"when: {{not: {{all: [{{stream: true}}, {when[6:]}]}}}}"
        )
        texts.append(explain_call(read_text(folder, text, {})).format_tree().splitlines()[1:])

    assert texts[0] == texts[1]


@pytest.mark.parametrize(
    ("deployment", "whys"),
    [
        ("even", ["balanced: the least loaded target is tried first"] * 2),
        (
            "drawn",
            [
                "chosen by weight 1 of 2, the same for all calls of this key",
                "tried next: weight 1 of 2",
            ],
        ),
    ],
)
def test_reason_of_each_target_is_explained(
    deployment: str, whys: list[str], snapshot: Snapshot
) -> None:
    targets = decision_on(explain_call(snapshot, deployment), "targets")

    assert [(part.reason or "").partition(";")[0] for part in targets.parts] == whys


def run(folder: Path, *arguments: str, body: bytes | None = None) -> tuple[int, str]:
    command = ["explain", "--policies", str(folder), "--key", "widget", *arguments]
    result = CliRunner().invoke(main, command, input=body)
    return result.exit_code, result.output


def test_text_and_json_have_the_same_content(folder: Path) -> None:
    texts = ("--deployment", "support-chat", "--at", "2026-11-20T12:00")
    code, text = run(folder, *texts)
    _, data = run(folder, *texts, "--format", "json")

    assert code == 0
    decided = orjson.loads(data)["decisions"][-1]
    assert decided == {"about": "result", "decided": "route to openai/m", "state": "applied"}
    assert text.rstrip().endswith("route to openai/m")
    assert "deployment: support-chat (requested by its name as the model)" in text


def test_command_reads_a_request_and_headers(folder: Path) -> None:
    body = b'{"model": "support-chat", "prompt": "Hi", "max_tokens": 999}'

    code, text = run(folder, "--header", "X-Region: eu", "-", body=body)

    assert code == 0
    assert "route to eu/m" in text
    assert "max_tokens: 100 (without rules: 999)" in text


def test_refused_call_is_explained_with_exit_code_zero(folder: Path) -> None:
    code, text = run(folder, "-", body=b'{"model": "support-chat", "prompt": "Hi", "stream": true}')

    assert code == 0
    assert "rejected with 403 by rule public/never" in text


REMOTE = "explained by the proxy that served them"


@for_each(
    ("arguments", "body", "words"),
    [
        (("--path", "/v1/responses/a/cancel", "--deployment", "c"), None, REMOTE),
        (("--path", "/v1/conversations/conv_a"), b"{}", REMOTE),
        (("-",), b'{"model": "m", "input": "Go on", "previous_response_id": "resp_a"}', REMOTE),
        (("-",), b'{"model": "m", "input": "Go on", "conversation": "conv_a"}', REMOTE),
        (("-",), b'{"model": "m", "input": [{"type": "item_reference", "id": "a"}]}', REMOTE),
        (("--path", "/v1/conversations", "-"), b'{"items": [{"id": "msg_a"}]}', REMOTE),
        (("--path", "/v1/rerank", "--method", "PUT", "--deployment", "c"), None,
            "supports only POST"),
        (("-",), b'{"model": "support-chat", "prompt": "Hi", "n": "5"}', "n: must be an integer"),
        (("-",), b"{", "JSON"),
        (("--path", "/nowhere", "--deployment", "c"), None, "Unknown path."),
        (("--path", "/v1/audio/speech"), None, "Unknown path."),
        (("--path", "/v1/files/a/b"), None, "Unknown path."),
        (("--header", "x-region"), None, "must have the form NAME:VALUE"),
        (("--key", "nobody"), None, 'key "nobody" does not exist. Available: widget'),
    ],
)  # fmt: skip
def test_invalid_arguments_are_reported(
    arguments: tuple[str, ...], body: bytes | None, words: str, folder: Path
) -> None:
    code, text = run(folder, *arguments, body=body)

    assert code != 0
    assert words in text
    assert "Traceback" not in text


PASSING = """\
upstreams: {openai: {dialect: openai, base_url: 'https://api.example.test'}}
keys: {widget: {sha256: AAAA, deployments: [pictures, files]}}
deployments:
  pictures:
    targets: [{upstream: openai, model: dall-e-3}]
    passthrough: [/v1/images/generations]
    policy: guarded
  files:
    targets: [{upstream: openai, model: files}]
    passthrough: [{path: '/v1/files/{id}', methods: [GET]}, /v1/rerank]
policies:
  guarded: {input: [{name: words, guard: keywords, words: [secret], action: block}]}
"""


def test_explanation_states_that_guards_are_not_evaluated(tmp_path: Path) -> None:
    folder = tmp_path / "policies.yaml"
    folder.write_text(PASSING.replace("AAAA", "a" * 64))
    unguarded = run(tmp_path, "--deployment", "files")[1]

    guarded = run(tmp_path, "--deployment", "pictures")[1]

    note = "(guards are listed, not evaluated)"
    assert guarded.rstrip().endswith(f"result: route to openai/dall-e-3 {note}")
    assert "not evaluated" not in unguarded


async def test_past_call_is_explained(proxy: Any) -> None:
    headers = {"authorization": f"Bearer {proxy.key}", "x-request-id": "call-7"}
    texts = {"prompt": "the words of a secret", "user": "someone"}
    await proxy.complete(headers, model="support-chat", **texts)
    await proxy.sink.wait()

    text = await proxy.read("/explain/call-7")
    as_json = {"accept": "application/json"}
    url = f"{proxy.admin}/explain/call-7"
    data = (await proxy.send(url, headers=as_json, method="GET")).json

    assert "├─ key: support-widget" in text
    assert "└─ attempt: openai/gpt-4o-mini returned status 200 (first, " in text
    assert [item["about"] for item in data["decisions"]][-2:] == ["result", "outcome"]
    assert "secret" not in text + str(data)
    assert "someone" not in text + str(data)


def test_missing_arguments_are_an_error(folder: Path) -> None:
    code, text = run(folder)

    assert code == 2
    assert 'give REQUEST_FILE or --deployment; key "widget" may use: ' in text


def test_assumed_path_of_a_body_is_noted(folder: Path) -> None:
    body = b'{"model": "support-chat", "input": "Hi"}'

    code, text = run(folder, "-", body=body)

    assert code == 0, text
    assert "note: explaining a call to /v1/responses; use --path for another path" in text
    assert "explaining a call" not in run(folder, "--path", "/v1/responses", "-", body=body)[1]
