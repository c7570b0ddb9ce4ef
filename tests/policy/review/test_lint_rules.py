"""Rules that were hardly meant as they are written: each finding with its place and its words."""

from __future__ import annotations

from pathlib import Path

from proxy.policy.review.check_report import check
from tests.for_each import for_each

POLICIES = """\
upstreams: {one: {dialect: openai, base_url: 'https://one.example.test'}}
tags: {team: [support, search]}
keys:
  widget: {sha256: AAAA, deployments: [chat], tags: {team: support}}
  other: {sha256: BBBB, deployments: [chat], tags: {team: support}}
policies:
  public:
    match: MATCH
    rules:
RULES
deployments:
  chat: {policy: public, targets: [{upstream: one, model: m, price: {input: 1, output: 1}}]}
""".replace("AAAA", "0" * 64).replace("BBBB", "1" * 64)
TARGET = "targets: [{upstream: one, model: n, price: {input: 1, output: 1}}]"


def found(folder: Path, *rules: str, match: str = "all", more: str = "") -> list[str]:
    lines = "\n".join(f"      - {{name: r{i}, {rule}}}" for i, rule in enumerate(rules))
    text = POLICIES.replace("MATCH", match).replace("RULES", lines) + more
    (folder / "p.yaml").write_text(text)
    verdict = check(folder, None)
    assert verdict.errors == ()
    warned = (f"{each.path}: {each.message}" for each in verdict.warnings)
    return [text for text in warned if "is set by no" not in text]


def test_rules_that_all_have_something_to_say_are_not_warned_of(tmp_path: Path) -> None:
    assert (
        found(
            tmp_path,
            "when: {key: widget}, cap: {max_tokens: 9}",
            f"when: {{stream: true}}, {TARGET}",
            "when: {model: x}, model: m",
            "when: {header: {x-a: b}}, refuse: No.",
            "cap: {max_tokens: 100}",
        )
        == []
    )


@for_each(
    ("match", "rules", "finding"),
    [
        (
            "first",
            ("when: {key: [widget, other]}, cap: {n: 1}", "when: {key: widget}, refuse: No."),
            "policies.public.rules[1]: is never reached: public/r0 holds for all of its calls",
        ),
        (
            "first",
            ("cap: {n: 1}", "when: {stream: true}, refuse: No."),
            "policies.public.rules[1]: is never reached: public/r0 holds for all of its calls",
        ),
        (
            "all",
            ("when: {stream: true}, refuse: No.", "when: {stream: true, key: widget}, cap: {n: 1}"),
            "policies.public.rules[1]: is without effect: public/r0 refuses all of its calls",
        ),
        (
            "all",
            (f"when: {{stream: true}}, {TARGET}", f"when: {{stream: true}}, {TARGET}"),
            "policies.public.rules[1]: its targets are never used: "
            "public/r0 picks those of all of its calls",
        ),
        (
            "all",
            ("model: m", "when: {stream: true}, model: m"),
            "policies.public.rules[1]: its model never counts: "
            "public/r0 names that of all of its calls",
        ),
        (
            "all",
            ("when: {tag: {team: search}}, cap: {n: 1}",),
            "policies.public.rules[0]: never holds: no key and tags that reach it are as it says",
        ),
        (
            "all",
            ("model: large",),
            "policies.public.rules[0].model: no deployment that follows it serves large",
        ),
        (
            "all",
            (TARGET,),
            "deployments.chat.targets: are never used: public/r0 picks those of every call",
        ),
        (
            "all",
            ("when: {stream: true}, targets: [{upstream: one, model: n}]",),
            "policies.public.rules[0].targets[0]: n has no known price: "
            "what its calls cost is unknown",
        ),
    ],
)
def test_what_was_hardly_meant_is_told(
    match: str, rules: tuple[str, ...], finding: str, tmp_path: Path
) -> None:
    assert found(tmp_path, *rules, match=match) == [finding]


def test_a_limit_that_one_call_may_be_too_large_for_is_told(tmp_path: Path) -> None:
    rules = ("limits: [{name: few, tokens: 500 per minute}]",)

    assert found(tmp_path, *rules) == [
        "policies.public.rules[0].limits[0].tokens: is smaller than one call of chat that bounds "
        "nothing: 1033 tokens are claimed"
    ]


def test_a_rule_in_shadow_hides_nothing(tmp_path: Path) -> None:
    rules = ("mode: shadow, refuse: No.", "when: {stream: true}, cap: {n: 1}")

    assert found(tmp_path, *rules) == found(tmp_path, *rules, match="first") == []


def test_a_policy_that_nobody_follows_is_told(tmp_path: Path) -> None:
    (tmp_path / "more.yaml").write_text("""
deployments: {spare: {targets: [{upstream: one, model: s}]}}
""")
    text = "  lonely: {rules: [{name: r, cap: {n: 1}}]}\n"
    policies = POLICIES.replace("policies:\n", f"policies:\n{text}", 1)
    (tmp_path / "p.yaml").write_text(
        policies.replace("MATCH", "all").replace("RULES", "      - {name: r, cap: {n: 1}}")
    )

    warned = [f"{each.path}: {each.message}" for each in check(tmp_path, None).warnings]

    assert "policies.lonely: is followed by no deployment" in warned
