"""Output formats of `headrace check`, and its notes."""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from proxy.guards.guard_kind import NO_CONTEXT
from proxy.guards.kinds import KINDS
from proxy.guards.stream.window import Window
from proxy.guards.text.base64_text import find_open_base64_run
from proxy.policy.files.source import Problem, SourceLocation
from proxy.policy.review.check import FORMATS, CheckReport, check_folder
from proxy.policy.review.lint_guards import iter_stream_delay_notes
from proxy.types.guard import GuardRule, is_detector
from tests.conftest import policies_for
from tests.for_each import for_each
from tests.guards.doubles import pieces, tallies
from tests.guards.growth import lines
from tests.policy.decisions import read_text

BAD = Problem(SourceLocation("a.yaml", 1, 2), "tags.team", "must be a list: 100 %\nof it")
DOUBTFUL = Problem(SourceLocation("b.yaml", 3, 4), "tags.env", "is set by nobody")
MATCHES = CheckReport(Path("policies"), "1 errors", (BAD,), (DOUBTFUL,))


def test_text_format_has_location_and_message() -> None:
    texts = FORMATS["text"](MATCHES)

    assert texts.startswith("a.yaml:1:2: tags.team: must be a list")
    assert "b.yaml:3:4: warning: tags.env: is set by nobody\npolicies: 1 errors" in texts


def test_json_format_is_one_object() -> None:
    data = json.loads(FORMATS["json"](MATCHES))

    assert data["good"] is False
    assert [problem["severity"] for problem in data["problems"]] == ["error", "warning"]


def test_problem_of_the_folder_has_the_folder_as_location() -> None:
    lacking = Problem(SourceLocation("policies", 1, 1), "keys", "there is no key")
    text = FORMATS["github"](CheckReport(Path("deploy/policies"), "1 errors", (lacking,)))

    assert text.startswith("::error file=deploy/policies,line=1,col=1::keys: ")


def test_github_commands_have_one_line_each() -> None:
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
    rules = f"policies:\n  default: {{match: all, input: [{guard}]}}\n"
    policies = policies_for("http://localhost") + rules
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
def test_gateway_upstreams_are_noted(settings: str, sign: str | None, tmp_path: Path) -> None:
    upstream = f"upstreams:\n  behind: {{dialect: openai, {settings}}}\n"
    policies = policies_for("http://localhost").replace("upstreams:\n", upstream, 1)
    (tmp_path / "policies.yaml").write_text(policies)

    report = check_folder(tmp_path, None)

    assert not report.errors
    signs = [note.split(")")[0] for note in report.notes if "is a gateway" in note]
    assert signs == ([] if sign is None else [f"upstreams.behind: is a gateway ({sign}"])


SIZES = {"keys": 60, "deployments": 30, "policies": 15}
TIMES = 4
LINEAR = TIMES * 1.25


def folder(path: Path, *, keys: int, deployments: int, policies: int) -> Path:
    path.mkdir()
    targets = "[{upstream: one, model: m%d, price: {input: 1, output: 1}}]"
    deployment = "  d%d: {policy: p%d, targets: " + targets + "}\n"
    rule = "when: {tag: {team: t%d}}, cap: {n: 1}"
    policy = "  p%d: {match: all, rules: [{name: a, " + rule + "}, {name: b, model: m%d}]}\n"
    key = "  k%d: {sha256: %s, tags: {team: t%d}, deployments: [d%d, d%d, d%d]}\n"
    parts = [
        "upstreams: {one: {dialect: openai, base_url: 'https://one.example.test'}}\n",
        "tags: {team: {pattern: 't[0-9]+'}}\n",
        "policies:\n",
        *(policy % (n, n, n) for n in range(policies)),
        "deployments:\n",
        *(deployment % (n, n % policies, n) for n in range(deployments)),
        "keys:\n",
        *(
            key % (n, sha256(b"%d" % n).hexdigest(), n, *((n + i) % deployments for i in range(3)))
            for n in range(keys)
        ),
    ]
    (path / "policies.yaml").write_text("".join(parts))
    return path


@for_each("part", [*SIZES, "all"])
def test_check_is_linear_in_each_part(part: str, tmp_path: Path) -> None:
    fields = {name: size * TIMES if part in (name, "all") else size for name, size in SIZES.items()}
    small = folder(tmp_path / f"{part}-small", **SIZES)
    large = folder(tmp_path / f"{part}-large", **fields)
    assert not check_folder(small, {}).errors  # import modules before counting

    steps = lines(lambda: check_folder(small, {}))

    assert lines(lambda: check_folder(large, {})) < steps * LINEAR


SHORT_DELAY = "delayed by one or two words, and for longer only where text may become a finding"
CASES = {
    "{guard: keywords, words: [hippo]}":
        ("keywords withholds the last 6 characters of streamed text", SHORT_DELAY),
    "{guard: urls, deny: [mill.example]}":
        ("urls withholds text that may become a finding, up to 2048 characters", SHORT_DELAY),
    "{guard: toxicity, action: block}":
        ("toxicity withholds text that may become a finding, up to 80 characters", SHORT_DELAY),
    "{guard: system_prompt}":
        ("system_prompt withholds text that may become a finding, up to 288 characters",
        SHORT_DELAY),
    "{guard: injection, action: block}":
        ("injection withholds text that may become a finding, up to 480 characters", SHORT_DELAY),
    "{guard: length, characters: 9}":
        ("length withholds streamed responses until they are complete",
        "delayed until they are complete, because of length"),
    "{guard: keywords, words: [hippo], action: retry}":
        ("keywords withholds streamed responses until they are complete",
        "delayed until they are complete, because of keywords"),
    "{guard: relevant, action: block}":
        ("relevant withholds streamed responses until they are complete",
        "delayed until they are complete, because of relevant"),
    "{guard: webhook, name: ours, url: 'http://localhost:1/x', secret: '${UPSTREAM_KEY}'}":
        ("ours withholds streamed responses until they are complete",
        "delayed until they are complete, because of ours"),
    "{guard: keywords, words: [hippo], action: flag}": None,
    "{guard: keywords, words: [hippo], mode: shadow}": None,
}  # fmt: skip


@for_each("guard", CASES)
def test_streaming_delay_of_guards_is_noted(guard: str, tmp_path: Path) -> None:
    policies = (
        f"{policies_for('http://localhost:1')}\npolicies:\n  default: {{output: [{guard}]}}\n"
    )
    snapshot = read_text(tmp_path, policies, {"UPSTREAM_KEY": "x" * 40})

    lines = [
        line for line in iter_stream_delay_notes(snapshot) if line.startswith("search-answers:")
    ]

    events = CASES[guard]
    assert lines == ([f"search-answers: {name}" for name in _notes(*events)] if events else [])


def _notes(holds: str, output: str) -> tuple[str, str]:
    return f"output guard {holds}", f"streamed responses are {output}"


WORDS = st.lists(st.text("abcdefg", min_size=2, max_size=30), max_size=60).map(" ".join)
RESULT: dict[str, dict[str, Any]] = {
    "keywords": {"words": ["hippo"]},
    "pii": {"entities": ["email", "phone", "card", "iban"], "regions": ["US"], "threshold": 0.5},
    "urls": {"allow": [], "deny": ["example.com"]},
    "code": {},
    "injection": {"threshold": 0.95},
    "toxicity": {"threshold": 0.4},
}


def rule_of(kind: str) -> GuardRule:
    keys = KINDS[kind].Keys(**RESULT[kind])
    detector: Any = KINDS[kind].make(keys, NO_CONTEXT)
    return GuardRule(kind, detector, cased=KINDS[kind].cased)


RULES = [*map(rule_of, RESULT)]


@settings(deadline=None)
@example("acaaacaaa", [], RULES[0])  # base64 of two Latin letters
@given(WORDS, st.lists(st.integers(0, 2000), max_size=20), st.sampled_from(RULES))
def test_no_guard_withholds_more_than_noted(text: str, cuts: list[int], rule: GuardRule) -> None:
    assert is_detector(rule.detector)
    reach = rule.detector.lookback
    window = Window(tallies(rule))
    fed = ""

    for piece in pieces(text, cuts):
        window.feed(piece)
        fed += piece
        base64 = len(fed) - find_open_base64_run(
            fed, begins_in_base64=False, max_run=None
        )  # withheld with any lookback
        maximum = max(reach or 0, base64) + 2  # a cut letter may be withheld too
        assert reach is None or window.held_size <= maximum
