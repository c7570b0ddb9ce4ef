"""The forms in which a verdict is read."""

from __future__ import annotations

import json
from pathlib import Path

from proxy.policy.files.source import Problem
from proxy.policy.review.check import FORMATS, CheckReport, check_folder
from tests.conftest import world
from tests.for_each import for_each

BAD = Problem("a.yaml", 1, 2, "tags.team", "must be a list: 100 %\nof it")
DOUBTFUL = Problem("b.yaml", 3, 4, "tags.env", "is set by nobody")
MATCHES = CheckReport(Path("policies"), "1 errors", (BAD,), (DOUBTFUL,))


def test_text_says_place_and_words() -> None:
    texts = FORMATS["text"](MATCHES)

    assert texts.startswith("a.yaml:1:2: tags.team: must be a list")
    assert "b.yaml:3:4: warning: tags.env: is set by nobody\npolicies: 1 errors" in texts


def test_json_is_one_object() -> None:
    data = json.loads(FORMATS["json"](MATCHES))

    assert data["good"] is False
    assert [problem["severity"] for problem in data["problems"]] == ["error", "warning"]


def test_what_the_folder_lacks_stands_at_the_folder_itself() -> None:
    lacking = Problem("policies", 1, 1, "keys", "there is no key")
    text = FORMATS["github"](CheckReport(Path("deploy/policies"), "1 errors", (lacking,)))

    assert text.startswith("::error file=deploy/policies,line=1,col=1::keys: ")


def test_githubs_commands_stay_on_one_line_each() -> None:
    lines = FORMATS["github"](MATCHES).splitlines()

    assert lines[0] == (
        "::error file=policies/a.yaml,line=1,col=2::tags.team: must be a list: 100 %25%0Aof it"
    )
    assert len(lines) == 3


RESTORING = "{guard: pii, entities: [email], action: mask, restore: true}"


@for_each(
    ("guard", "environ", "is_noted"),
    [
        (RESTORING, {}, True),
        (RESTORING, {"HEADRACE_ID_SECRET": "a secret of replicas"}, False),
        (RESTORING, {"HEADRACE_SECRET": "a secret of replicas"}, False),
        (RESTORING, None, False),
        (RESTORING.replace(", restore: true", ""), {}, False),
    ],
)
def test_placeholders_without_a_shared_secret_are_noted(
    guard: str, environ: dict[str, str] | None, is_noted: bool, tmp_path: Path
) -> None:
    policies = (
        f"{world('http://localhost')}policies:\n  default: {{match: all, input: [{guard}]}}\n"
    )
    (tmp_path / "policies.yaml").write_text(policies)

    report = check_folder(tmp_path, None if environ is None else {"UPSTREAM_KEY": "sk", **environ})

    assert not report.errors
    assert any("Set HEADRACE_SECRET" in note for note in report.notes) is is_noted


@for_each(
    ("settings", "sign"),
    [
        ("base_url: 'https://openrouter.ai/api/v1'", "host openrouter.ai"),
        ("base_url: 'https://llm.example/v1', provider: litellm", "provider: litellm"),
        ("base_url: 'https://llm.example/v1', gateway: true", "gateway: true"),
        ("base_url: 'https://litellm.example/v1', gateway: false", None),
        ("base_url: 'https://llm.example/v1'", None),
    ],
)
def test_gateways_are_noted(settings: str, sign: str | None, tmp_path: Path) -> None:
    upstream = f"upstreams:\n  behind: {{dialect: openai, {settings}}}\n"
    policies = world("http://localhost").replace("upstreams:\n", upstream, 1)
    (tmp_path / "policies.yaml").write_text(policies)

    report = check_folder(tmp_path, None)

    assert not report.errors
    signs = [note.split(")")[0] for note in report.notes if "is a gateway" in note]
    assert signs == ([] if sign is None else [f"upstreams.behind: is a gateway ({sign}"])
