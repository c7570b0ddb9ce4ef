"""Limits that one call may be too large for are told of, and none that no call is."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

from proxy.policy.decide.snapshot import Snapshot
from proxy.policy.review import lint_rules
from proxy.policy.store import read_folder
from tests.for_each import for_each
from tests.guards.growth import lines
from tests.policy.review.test_lint_rules import found

TOKENS = "limits: [{name: few, tokens: 800 per minute}]"
MONEY = "limits: [{name: few, usd: 0.001 per month}]"
WARNED = (
    'policies.public.rules[{}].limits[0].{}: is less than one call of deployment "chat" without an '
    "output limit reserves: "
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
def test_warns_of_tight_limit(rules: tuple[str, ...], result: str | None, tmp_path: Path) -> None:
    warnings = found(tmp_path, *rules)

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
    (path / "p.yaml").write_text("".join(parts))
    return read_folder(path, None)


def many(path: Path, size: int) -> Snapshot:
    """Return as many deployments as rules. The limit of the last rule alone is too small."""
    tokens = [9000] * (size - 1) + [800]
    rules = [RULE % (n, n, n, maximum) for n, maximum in enumerate(tokens)]
    return read(path, rules, [DEPLOYMENT % (f"d{n}", f"m{n}", 1) for n in range(size)])


def findings(snapshot: Snapshot) -> list[str]:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    return [text for _, text in lint_rules.exceeded_limits(snapshot, now)]


def test_limits_are_inspected_in_linear_time(tmp_path: Path) -> None:
    small, large = many(tmp_path / "small", SIZE), many(tmp_path / "large", SIZE * TIMES)
    assert [text.partition("reserves: ")[2][:11] for text in findings(small)] == ["1033 tokens"]

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
def test_lints_each_differing_claim(
    effect: str, first_item: str, second: str, tmp_path: Path
) -> None:
    targets = {"first": first_item, "second": second}
    deployments = [f"  {name}: {{policy: p, targets: [{t}]}}\n" for name, t in targets.items()]

    found_in = findings(read(tmp_path / str(len(effect)), [MONEY_RULE % effect], deployments))

    assert ['deployment "second"' in text for text in found_in] == [True]
