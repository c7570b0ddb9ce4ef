"""Rules that were hardly meant as they are written: each finding with its place and its words."""

from __future__ import annotations

from pathlib import Path

from proxy.policy.review.check import check_folder
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
SECOND = "policies.public.rules[1]:"
TARGET = "targets: [{upstream: one, model: n, price: {input: 1, output: 1}}]"


def found(folder: Path, *rules: str, match: str = "all", fields: str = "") -> list[str]:
    lines = "\n".join(f"      - {{name: r{i}, {rule}}}" for i, rule in enumerate(rules))
    text = POLICIES.replace("MATCH", match).replace("RULES", lines) + fields
    (folder / "p.yaml").write_text(text)
    verdict = check_folder(folder, None)
    assert verdict.errors == ()
    warned = (f"{warning.path}: {warning.message}" for warning in verdict.warnings)
    return [text for text in warned if "is never set" not in text]


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
            f"{SECOND} never applies, because rule public/r0 matches all of its calls first",
        ),
        (
            "first",
            ("cap: {n: 1}", "when: {stream: true}, refuse: No."),
            f"{SECOND} never applies, because rule public/r0 matches all of its calls first",
        ),
        (
            "all",
            ("when: {stream: true}, refuse: No.", "when: {stream: true, key: widget}, cap: {n: 1}"),
            f"{SECOND} has no effect, because rule public/r0 rejects all of its calls",
        ),
        (
            "all",
            (f"when: {{stream: true}}, {TARGET}", f"when: {{stream: true}}, {TARGET}"),
            f"{SECOND} its targets have no effect: rule public/r0 sets those of all its calls",
        ),
        (
            "all",
            ("model: m", "when: {stream: true}, model: m"),
            f"{SECOND} its model has no effect: rule public/r0 sets that of all its calls",
        ),
        (
            "all",
            ("when: {tag: {team: search}}, cap: {n: 1}",),
            "policies.public.rules[0]: never applies: no key or tag that reaches it matches its "
            "condition",
        ),
        (
            "all",
            ("model: large",),
            'policies.public.rules[0].model: no deployment of this policy serves model "large"',
        ),
        (
            "all",
            (TARGET,),
            "deployments.chat.targets: are never used, because rule public/r0 sets the targets of "
            "every call",
        ),
        (
            "all",
            ("when: {stream: true}, targets: [{upstream: one, model: n}]",),
            'policies.public.rules[0].targets[0]: model "n" has no known price, so the cost of its '
            'calls is unknown. Add "price:" here.',
        ),
    ],
)
def test_likely_mistake(match: str, rules: tuple[str, ...], finding: str, tmp_path: Path) -> None:
    assert found(tmp_path, *rules, match=match) == [finding]


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

    warned = [
        f"{warning.path}: {warning.message}" for warning in check_folder(tmp_path, None).warnings
    ]

    assert any(
        warning.startswith("policies.lonely: is not used by any deployment") for warning in warned
    )
