"""Warnings about rules that have no effect or are likely mistakes."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.policy.decide.conditions import ALWAYS, Facts
from proxy.policy.decide.snapshot import Snapshot
from proxy.policy.review import lint_rules
from proxy.policy.review.check import check_folder
from proxy.policy.review.lint_rules import covers
from proxy.policytest.cases import DEFAULT_TIME
from tests.for_each import for_each
from tests.guards.growth import lines
from tests.policy.decisions import compile_condition, read_text
from tests.policy.test_properties import WHEN

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


def warnings_of(folder: Path, *rules: str, match: str = "all") -> list[str]:
    lines = "\n".join(f"      - {{name: r{i}, {rule}}}" for i, rule in enumerate(rules))
    text = POLICIES.replace("MATCH", match).replace("RULES", lines)
    (folder / "p.yaml").write_text(text)
    verdict = check_folder(folder, None)
    assert verdict.errors == ()
    warned = (f"{warning.path}: {warning.message}" for warning in verdict.warnings)
    return [text for text in warned if "is never set" not in text]


def test_effective_rules_have_no_warnings(tmp_path: Path) -> None:
    assert (
        warnings_of(
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
        ("first", ("when: {key: [widget, other]}, cap: {n: 1}", "when: {key: widget}, refuse: No."),
            f"{SECOND} never applies, because rule public/r0 matches all of its calls first"),
        ("first", ("cap: {n: 1}", "when: {stream: true}, refuse: No."),
            f"{SECOND} never applies, because rule public/r0 matches all of its calls first"),
        ("all",
            ("when: {stream: true}, refuse: No.", "when: {stream: true, key: widget}, cap: {n: 1}"),
            f"{SECOND} has no effect, because rule public/r0 rejects all of its calls"),
        ("all", (f"when: {{stream: true}}, {TARGET}", f"when: {{stream: true}}, {TARGET}"),
            f"{SECOND} its targets have no effect: rule public/r0 sets targets for the same calls"),
        ("all", ("model: m", "when: {stream: true}, model: m"),
            f"{SECOND} its model has no effect: rule public/r0 sets a model for the same calls"),
        ("all", ("when: {tag: {team: search}}, cap: {n: 1}",),
            "policies.public.rules[0]: never applies: no key or tag that reaches it matches its "
            "condition"),
        ("all", ("model: large",),
            'policies.public.rules[0].model: no deployment of this policy serves model "large"'),
        ("all", (TARGET,),
            "deployments.chat.targets: are never used, because rule public/r0 sets the targets of "
            "every call"),
        ("all", ("when: {stream: true}, targets: [{upstream: one, model: n}]",),
            'policies.public.rules[0].targets[0]: model "n" has no known price, so the cost of its '
            'calls is unknown. Add "price:" here.'),
    ],
)  # fmt: skip
def test_likely_mistake_is_reported(
    match: str, rules: tuple[str, ...], finding: str, tmp_path: Path
) -> None:
    assert warnings_of(tmp_path, *rules, match=match) == [finding]


def test_shadow_rule_makes_no_later_rule_unreachable(tmp_path: Path) -> None:
    rules = ("mode: shadow, refuse: No.", "when: {stream: true}, cap: {n: 1}")

    assert warnings_of(tmp_path, *rules) == warnings_of(tmp_path, *rules, match="first") == []


def test_unused_policy_is_reported(tmp_path: Path) -> None:
    lonely = "policies: {lonely: {rules: [{name: r, cap: {n: 1}}]}}\n"
    (tmp_path / "more.yaml").write_text(lonely)

    [warning] = warnings_of(tmp_path, "cap: {n: 1}")

    assert warning.startswith("policies.lonely: is not used by any deployment")


TOKENS = "limits: [{name: few, tokens: 800 per minute}]"
MONEY = "limits: [{name: few, usd: 0.001 per month}]"
WARNED = (
    'policies.public.rules[{}].limits[0].{}: is too low: a call of deployment "chat" without '
    "max_tokens reserves "
)


@for_each(
    ("rules", "result"),
    [
        ((TOKENS,), WARNED.format(0, "tokens") + "1033 tokens. Raise the limit"),
        ((MONEY,), WARNED.format(0, "usd") + "0.001033 USD."),
        ((MONEY.replace("0.001", "0.0011"),), None),
        (("limits: [{name: few, tokens: 2000 per minute, burst: 1000}]",), "1033 tokens"),
        (("limits: [{name: few, requests: 1 per minute}, {name: one, concurrency: 1}]",), None),
        (("cap: {max_tokens: 500}", TOKENS), None),
        (("cap: {max_tokens: 500}", MONEY), None),
        (("when: {stream: true}, cap: {max_tokens: 500}", TOKENS), "1033 tokens"),
        (("when: {stream: true}, cap: {max_tokens: 500}, " + TOKENS,), None),
        (("when: {stream: true}, " + MONEY,), "0.001033 USD"),
        (("set: {max_tokens: 900}", TOKENS), "909 tokens"),
        (("mode: shadow, cap: {max_tokens: 500}", TOKENS), "1033 tokens"),
        (
            ("when: {stream: true}, targets: [{upstream: one, model: n, price: "
             "{input: 1, output: 9}}]", MONEY.replace("0.001", "0.005")),
            "0.009225 USD",
        ),
    ],
)  # fmt: skip
def test_limit_below_one_call_is_reported(
    rules: tuple[str, ...], result: str | None, tmp_path: Path
) -> None:
    warnings = warnings_of(tmp_path, *rules)

    if result is None:
        assert warnings == []
    else:
        assert result in "\n".join(warnings)
        assert len(warnings) == 1


SIZE, TIMES = 12, 4
RULE = (
    "      - {name: r%d, when: {tag: {team: t%d}}, limits: [{name: l%d, tokens: %d per minute}]}\n"
)
DEPLOYMENT = (
    "  %s: {policy: p, targets: [{upstream: one, model: %s, price: {input: 1, output: %d}}]}\n"
)


def read(path: Path, rules: Iterable[str], deployments: Iterable[str]) -> Snapshot:
    """Return deployments that follow one policy of these rules."""
    path.mkdir()
    parts = [
        "upstreams: {one: {dialect: openai, base_url: 'https://one.example.test'}}\n",
        "tags: {team: {pattern: 't[0-9]+'}}\n",
        "policies:\n  p:\n    match: all\n    rules:\n",
        *rules,
        "deployments:\n",
        *deployments,
    ]
    return read_text(path, "".join(parts))


def large_folder(path: Path, size: int) -> Snapshot:
    """Return as many deployments as rules. The limit of the last rule alone is too small."""
    tokens = [9000] * (size - 1) + [800]
    rules = [RULE % (n, n, n, maximum) for n, maximum in enumerate(tokens)]
    return read(path, rules, [DEPLOYMENT % (f"d{n}", f"m{n}", 1) for n in range(size)])


def findings(snapshot: Snapshot) -> list[str]:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    return [text for _, text in lint_rules.find_exceeded_limits(snapshot, now)]


def test_limits_are_inspected_in_linear_time(tmp_path: Path) -> None:
    small, large = (
        large_folder(tmp_path / "small", SIZE),
        large_folder(tmp_path / "large", SIZE * TIMES),
    )
    assert [text.partition("reserves ")[2][:11] for text in findings(small)] == ["1033 tokens"]

    steps = lines(lambda: findings(small))

    assert lines(lambda: findings(large)) < steps * TIMES * 1.5


CHEAP = "{upstream: one, model: m, price: {input: 1, output: 1}}"
DEAR = "{upstream: one, model: %s, price: {input: 1, output: 9}}"
MONEY_RULE = "      - {name: r, %slimits: [{name: l, usd: 0.002 per month}]}\n"


@for_each(
    ("effect", "first_item", "second"),
    [
        ("", CHEAP, DEAR % "m"),
        ("model: one/dear, ", f"{CHEAP}, {DEAR % 'other'}", f"{CHEAP}, {DEAR % 'dear'}"),
    ],
)
def test_lints_each_claim(effect: str, first_item: str, second: str, tmp_path: Path) -> None:
    targets = {"first": first_item, "second": second}
    deployments = [f"  {name}: {{policy: p, targets: [{t}]}}\n" for name, t in targets.items()]

    found_in = findings(read(tmp_path / str(len(effect)), [MONEY_RULE % effect], deployments))

    assert ['deployment "second"' in text for text in found_in] == [True]


@for_each(
    ("wide", "narrow", "proven"),
    [
        ({"key": "a"}, {"key": "a"}, True),
        ({"key": ["a", "b"]}, {"key": "a"}, True),
        ({"key": "a"}, {"key": ["a", "b"]}, False),
        ({"key": "a"}, {"model": "a"}, False),
        ({"model": {"glob": "gpt*"}}, {"model": ["gpt-4", "gpt-5"]}, True),
        ({"model": {"glob": "gpt*"}}, {"model": ["gpt-4", "o1"]}, False),
        ({"model": {"glob": "*"}}, {"model": {"glob": "gpt*"}}, True),
        ({"model": {"glob": "gpt*"}}, {"model": {"glob": "gpt*"}}, True),
        ({"model": "gpt-4"}, {"model": {"glob": "gpt*"}}, False),
        ({"model": {"glob": "g*"}}, {"model": {"glob": "g*", "in": ["g1"]}}, True),
        ({"model": {"glob": "g*", "in": ["g1"]}}, {"model": "g1"}, True),
        ({"key": "a"}, {"key": "a", "stream": True}, True),
        ({"key": "a", "stream": True}, {"key": "a"}, False),
        ({"any": [{"key": "a"}, {"key": "b"}]}, {"key": "b", "stream": True}, True),
        ({"key": ["a", "b"]}, {"any": [{"key": "a"}, {"key": "b"}]}, True),
        ({"not": {"key": "a"}}, {"not": {"key": ["a", "b"]}}, True),
        ({"not": {"key": ["a", "b"]}}, {"not": {"key": "a"}}, False),
        ({"tag": {"team": ["x", "y"]}}, {"tag": {"team": "x"}}, True),
        ({"tag": {"team": "x"}}, {"tag": {"env": "x"}}, False),
        ({"header": {"x-a": {"glob": "*"}}}, {"header": {"x-a": "1"}}, True),
        ({"header": {"x-a": "1"}}, {"header": {"x-b": "1"}}, False),
    ],
    ids=str,
)
def test_implied_conditions_are_covered(
    wide: dict[str, Any], narrow: dict[str, Any], proven: bool
) -> None:
    assert covers(compile_condition(wide), compile_condition(narrow)) is proven


def test_only_always_covers_everything() -> None:
    assert covers(ALWAYS, compile_condition({"key": "a"}))
    assert not covers(compile_condition({"key": "a"}), ALWAYS)


@given(WHEN, WHEN, st.booleans(), st.sampled_from(["small", "x", "chat"]), st.booleans())
@settings(max_examples=300, deadline=None)
def test_covering_condition_matches_whenever_the_other_does(
    single: dict[str, Any], other_item: dict[str, Any], stream: bool, model: str, region: bool
) -> None:
    wide, narrow = compile_condition(single), compile_condition(other_item)
    facts = Facts(
        "widget",
        "openai",
        "chat",
        frozenset({model, f"up/{model}"}),
        "true" if stream else "false",
        {"team": "support"},
        {"x-region": model} if region else {},
        DEFAULT_TIME,
    )

    if covers(wide, narrow) and narrow.build_matcher()(facts):
        assert wide.build_matcher()(facts)
