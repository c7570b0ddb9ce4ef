"""Warnings about valid but doubtful policies, with location and message."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from proxy.policy.review.check import CheckReport, check_folder
from tests.for_each import for_each

GOOD = """\
upstreams:
  openai: {dialect: openai, base_url: 'https://api.example.test', api_key: '${KEY}'}
tags:
  team: [support]
keys:
  widget:
    sha256: '0000000000000000000000000000000000000000000000000000000000000000'
    deployments: [support-chat]
    tags: {team: support}
deployments:
  support-chat:
    targets:
      - {upstream: openai, model: m, price: {input: 1, output: 2}}
"""


def report_of(folder: Path, text: str) -> CheckReport:
    (folder / "p.yaml").write_text(text)
    return check_folder(folder, {"KEY": "sk"})


def test_sound_folder_has_no_warnings(tmp_path: Path) -> None:
    report = report_of(tmp_path, GOOD)

    assert (report.errors, report.warnings) == ((), ())
    assert report.summary.endswith("1 deployment, 1 key)")


@for_each(
    ("old", "new", "finding"),
    [
        ("tags:\n  team", "  spare: {dialect: openai, base_url: 'https://x.test'}\ntags:\n  team",
            "3:3: upstreams.spare: is not used by any deployment or rule. Use it in a target, or "
            "remove it."),
        ("https://api", "http://api",
            "2:29: upstreams.openai.base_url: does not use https: the API key and all prompts are "
            "sent unencrypted"),
        ("https://api.example.test", "https://api.mistral.ai/v1",
            "2:3: upstreams.openai: lacks some features of OpenAI. "
            'To adapt requests, add "provider: mistral".'),
        ("https://api.example.test", "https://api.example.test/v1/chat/completions",
            "2:29: upstreams.openai.base_url: ends with /chat/completions, which Headrace "
            "appends to it. Use https://api.example.test/v1."),
        ("https://api.example.test", "https://api.example.test/v1/completions/",
            "2:29: upstreams.openai.base_url: ends with /completions, which Headrace appends "
            "to it. Use https://api.example.test/v1."),
        ("https://api.example.test", "https://api.example.test/embeddings",
            "2:29: upstreams.openai.base_url: ends with /embeddings, which Headrace appends "
            "to it. Use https://api.example.test."),
        ("dialect: openai", "dialect: enkrypt",
            '2:3: upstreams.openai: has no header "x-enkrypt-deployment" under "headers:". '
            "Enkrypt requires it."),
        ("deployments:\n  support-chat:",
            "deployments:\n  lonely: {targets: [{upstream: openai, model: x, "
            "price: {input: 1, output: 2}}]}\n" "  support-chat:",
            "11:3: deployments.lonely: cannot be called: no key lists it under deployments"),
        (", price: {input: 1, output: 2}", "",
            '13:9: deployments.support-chat.targets[0]: model "m" has no known price, so the cost '
            'of its calls is unknown. Add "price:" here.'),
        ("output: 2}}\n", "output: 2}}\n      - {upstream: openai, model: support-chat, price: "
            "{input: 1, output: 2}}\n",
            "14:9: deployments.support-chat.targets[1]: is used only by calls for "
            "openai/support-chat, because calls for support-chat go to an earlier target. Give all "
            "targets a weight, set balance, or move this one to fallback."),
        ("  team: [support]", "  team: [support]\n  env: [prod]",
            "5:3: tags.env: is never set: no deployment or key sets it, and clients may not set "
            'it. Remove it, or add "caller: true".'),
        ("deployments: [support-chat]", "deployments: [support-chat, other]",
            '8:5: keys.widget.deployments: model "m" is served by deployments other, support-chat. '
            "Calls for it must select one with the header x-headrace-deployment."),
        ("  team: [support]\n",
            "  team: {values: [support], caller: true}\npolicies: {default: {limits: "
            "[{name: l, requests: 9 per day, per: tag.team}]}}\n",
            "5:62: policies.default.limits[0].per: each key has its own counter, because clients "
            'may set tag.team. For one counter, add "across: keys", or remove "caller: true" from '
            "the tag."),
    ],
)  # fmt: skip
def test_doubtful_part_is_reported(tmp_path: Path, old: str, new: str, finding: str) -> None:
    text = GOOD.replace(old, new, 1)
    if "other" in new:
        text += "  other: {targets: [{upstream: openai, model: m, price: {input: 1, output: 2}}]}\n"

    report = report_of(tmp_path, text)

    assert report.errors == ()
    assert [str(problem) for problem in report.warnings] == [f"p.yaml:{finding}"]


@for_each(
    ("provider", "endpoint", "is_told"),
    [
        ("deepseek", "responses", True),
        ("deepseek", "completions", True),
        ("deepseek", "chat", False),
        ("groq", "responses", False),
        ("acme", "responses", False),
    ],
)
def test_endpoint_missing_at_the_provider_is_reported(
    tmp_path: Path, provider: str, endpoint: str, is_told: bool
) -> None:
    text = GOOD.replace("'${KEY}'}", f"'${{KEY}}', provider: {provider}}}")

    report = report_of(tmp_path, text.replace("model: m,", f"model: m, endpoint: {endpoint},"))

    result = [str(problem) for problem in report.warnings]
    assert report.errors == ()
    assert (
        result
        == [
            "p.yaml:13:38: deployments.support-chat.targets[0].endpoint: is not "
            f"available at {provider}. Remove it to have calls translated to chat."
        ]
        * is_told
    )


@pytest.mark.parametrize(
    ("fields", "result"),
    [
        ("", ["deployments.support-chat.hedge"]),
        ("    balance: least_loaded\n", []),
        ("    fallback: [{upstream: openai, model: m, price: {input: 1, output: 2}}]\n", []),
    ],
    ids=["alone", "balanced", "with a fallback"],
)
def test_hedge_without_second_target_is_reported(
    fields: str, result: list[str], tmp_path: Path
) -> None:
    other_item = "      - {upstream: openai, model: o, price: {input: 1, output: 2}}\n"
    hedge = "    hedge: {after: 500ms}\n"

    report = report_of(tmp_path, GOOD + other_item + hedge + fields)

    assert report.errors == ()
    assert [problem.path for problem in report.warnings] == result
    assert all(
        "repeats the request to the same target" in problem.message for problem in report.warnings
    )


def test_missing_secrets_are_ignored_without_environment(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text(GOOD)

    assert check_folder(tmp_path, {}).errors != ()
    report = check_folder(tmp_path, None)
    assert (report.errors, report.warnings) == ((), ())


def test_shipped_policies_have_no_warnings() -> None:
    report = check_folder(Path(__file__).parents[3] / "policies", {})

    assert (report.errors, report.warnings) == ((), ())


CANARY = "targets: [{M, weight: 9}, {LARGER, weight: 1}]"
BY_RULE = "policies: {default: {rules: [{name: c, when: {model: m}, model: support-chat}]}}\n"


@for_each(
    ("deployment", "policies", "warned"),
    [
        (CANARY, "", [1]),
        (CANARY, BY_RULE, []),
        (f"also_known_as: [m], {CANARY}", "", []),
        ("targets: [{M, weight: 1}, {LARGER, weight: 1}]", "", [1]),
        ("targets: [{LARGER, weight: 1}, {M, weight: 9}]", "", [0]),
        ("targets: [{M, weight: 9}, {NAMED, weight: 1}]", "", []),
        ("targets: [{M, weight: 9}, {LARGER, weight: 0}, {M, weight: 1}]", "", []),
    ],
)
def test_weights_apply_to_named_deployment(
    deployment: str, policies: str, warned: list[int], tmp_path: Path
) -> None:
    for name, model in (("M", "m"), ("LARGER", "larger"), ("NAMED", "support-chat")):
        target = f"upstream: openai, model: {model}, price: {{input: 1, output: 2}}"
        deployment = deployment.replace(f"{{{name}", f"{{{target}")
    good = GOOD[: GOOD.index("support-chat:\n")]

    report = report_of(tmp_path, f"{good}support-chat: {{{deployment}}}\n{policies}")

    assert report.errors == ()
    paths = [f"deployments.support-chat.targets[{index}]" for index in warned]
    assert [warning.path for warning in report.warnings] == paths
    for warning in report.warnings:
        assert 'and "larger", but not of calls for' in warning.message
        assert warning.message.endswith('"also_known_as: [m]" to deployment "support-chat".')


def test_default_deployment_takes_calls_that_several_could_serve(tmp_path: Path) -> None:
    text = GOOD.replace("deployments: [support-chat]", "deployments: [support-chat, other]")
    target = "{upstream: openai, model: m, price: {input: 1, output: 2}}"
    other_item = f"  other: {{default: true, targets: [{target}]}}\n"

    assert report_of(tmp_path, text + other_item).warnings == ()


NOW = datetime(2026, 7, 1, tzinfo=UTC)
REMAINDER = """\
upstreams: {up: {dialect: openai, base_url: 'https://api.example.test'}}
deployments: {chat: {targets: [{upstream: up, model: m, price: {input: 1, output: 2}}]}}
"""
FIRST_DIGEST, SECOND_DIGEST = "1" * 64, "2" * 64
OLD = f"sha256: [{{digest: {FIRST_DIGEST}, until: 2026-06-29}}"
REJECTED = "so every call with it is rejected"
EXPIRED = f"keys.old: the key expired at 2026-07-01 00:00 UTC, {REJECTED}"
REVOKED = f"keys.old: the key is revoked, {REJECTED}"
HALF = f"keys.old: the key expired at 2026-06-30 00:00 UTC, {REJECTED}"


def key_warnings(folder: Path, old: str, revoked: str = "") -> list[str]:
    """Return the warnings at NOW about a key `old`, next to a valid key."""
    good = f"fine: {{sha256: {'f' * 64}, deployments: [chat]}}"
    keys = f"keys:\n  {good}\n  old: {{{old}, deployments: [chat]}}\n"
    (folder / "p.yaml").write_text(f"{REMAINDER}{keys}{revoked}")
    report = check_folder(folder, {}, NOW)
    assert not report.errors
    return [f"{problem.path}: {problem.message}" for problem in report.warnings]


@for_each(
    ("old", "revoked", "text"),
    [
        (f"sha256: {FIRST_DIGEST}", "", []),
        (f"sha256: {FIRST_DIGEST}, expires: 2026-07-01", "", []),
        (f"sha256: {FIRST_DIGEST}, expires: 2026-06-30", "", [EXPIRED]),
        (f"{OLD}]", "", [HALF]),
        (f"{OLD}, {SECOND_DIGEST}]", "", []),
        (f"sha256: {FIRST_DIGEST}", "revoked: [old]", [REVOKED]),
        (f"sha256: {FIRST_DIGEST}", f"revoked: [{FIRST_DIGEST}]", [REVOKED]),
        (f"sha256: [{FIRST_DIGEST}, {SECOND_DIGEST}]", f"revoked: [{FIRST_DIGEST}]", []),
        (f"{OLD}]", f"revoked: [{FIRST_DIGEST}]", [REVOKED]),
        (f"sha256: {FIRST_DIGEST}, expires: 2026-06-30", "revoked: [old]", [REVOKED]),
        (f"{OLD}, {SECOND_DIGEST}]", f"revoked: [{SECOND_DIGEST}]", [HALF]),
        (f"sha256: [{FIRST_DIGEST}, {SECOND_DIGEST}], expires: 2026-06-30",
            f"revoked: [{FIRST_DIGEST}]", [EXPIRED]),
        (f"sha256: {FIRST_DIGEST}", "revoked: [ol]",
            ['revoked[0]: virtual key "ol" does not exist. This entry has no effect. '
             'Did you mean "old"?']),
        (f"sha256: {FIRST_DIGEST}", "revoked: [of-another-time]", []),
        (f"sha256: {FIRST_DIGEST}", f"revoked: [{'1' * 63}e]", []),
    ],
)  # fmt: skip
def test_unusable_key_is_reported(old: str, revoked: str, text: list[str], tmp_path: Path) -> None:
    assert key_warnings(tmp_path, old, revoked) == text


NO_KEYS = "there are no keys, so every call is rejected"
IGNORED = 'A running proxy keeps its previous policies unless you write "keys: {}".'


@pytest.mark.parametrize(
    ("keys", "text"),
    [("keys: {}\n", NO_KEYS), ("keys:\n", f"{NO_KEYS}. {IGNORED}"), ("", f"{NO_KEYS}. {IGNORED}")],
    ids=["none at all", "half written", "not there"],
)
def test_folder_without_keys_is_reported(keys: str, text: str, tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text(f"{REMAINDER}{keys}")

    report = check_folder(tmp_path, {}, NOW)

    assert not report.errors
    assert f"keys: {text}" in [f"{warning.path}: {warning.message}" for warning in report.warnings]
    assert {warning.location.file for warning in report.warnings} <= {"p.yaml", tmp_path.name}
