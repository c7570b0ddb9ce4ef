"""Limits that one call may be too large for are told of, and none that no call is."""

from __future__ import annotations

from pathlib import Path

from tests.for_each import for_each
from tests.policy.review.test_lint_rules import found

TOKENS = "limits: [{name: few, tokens: 800 per minute}]"
MONEY = "limits: [{name: few, usd: 0.001 per month}]"
WARNED = (
    'policies.public.rules[{}].limits[0].{}: is less than one call of deployment "chat" without an '
    "output limit reserves: "
)


@for_each(
    ("rules", "told"),
    [
        ((TOKENS,), WARNED.format(0, "tokens") + "1033 tokens."),
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
def test_a_limit_is_told_of_where_it_is_less_than_a_call_claims(
    rules: tuple[str, ...], told: str | None, tmp_path: Path
) -> None:
    warnings = found(tmp_path, *rules)

    if told is None:
        assert warnings == []
    else:
        assert told in "\n".join(warnings)
        assert len(warnings) == 1
