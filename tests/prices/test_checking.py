"""Findings of `headrace prices check` with their locations."""

from __future__ import annotations

from datetime import date
from pathlib import Path

from proxy.prices.checking import check_prices
from tests.for_each import for_each

DAY = date(2026, 6, 1)
GOOD = """\
upstreams: {openai: {dialect: openai, base_url: 'https://api.example.test', provider: openai}}
keys: {widget: {sha256: AAAA, deployments: [support-chat]}}
deployments:
  support-chat:
    targets:
      - {upstream: openai, model: gpt-4o-mini}
    fallback:
      - {upstream: openai, model: own, price: {from: 2026-05-01, input: 1, output: 2}}
price_table: {as_of: 2026-05-20}
prices:
  openai:
    gpt-4o-mini: {input: 0.15, output: 0.6}
    unused: {input: 1, output: 2}
""".replace("AAAA", "0" * 64)


def findings(folder: Path, text: str, days: int | None = 60) -> list[str]:
    (folder / "p.yaml").write_text(text)
    return [
        str(problem).removeprefix("p.yaml:") for problem in check_prices(folder, DAY, days).errors
    ]


def test_valid_prices_have_no_findings(tmp_path: Path) -> None:
    assert findings(tmp_path, GOOD) == []


@for_each(
    ("old", "new", "finding"),
    [
        (
            "model: gpt-4o-mini",
            "model: smol",
            '6:9: deployments.support-chat.targets[0]: model "smol" has no price in force on '
            '2026-06-01. Add "price:" to this target.',
        ),
        (
            "from: 2026-05-01",
            "from: 2026-06-02",
            '8:9: deployments.support-chat.fallback[0]: model "own" has no price in force on '
            '2026-06-01. Add "price:" to this target.',
        ),
        (
            "as_of: 2026-05-20",
            "as_of: 2026-03-01",
            "9:15: price_table.as_of: the prices are 92 days old. Run `headrace prices refresh`.",
        ),
        (
            "price_table: {as_of: 2026-05-20}\n",
            "",
            '9:1: prices: the age of these prices is unknown. Add "price_table: {as_of: '
            'YYYY-MM-DD}".',
        ),
        (
            "from: 2026-05-01",
            "from: 2026-03-01",
            '8:40: deployments.support-chat.fallback[0].price: the price of model "own" is 92 '
            "days old. Check it.",
        ),
        (
            "unused: {input: 1, output: 2}",
            "unused: [{input: 1, output: 2}, {input: 1, output: 3}]",
            "13:37: prices.openai.unused[1]: contradicts another row, which also has no "
            "start day. Remove one of them.",
        ),
        (
            "unused: {input: 1, output: 2}",
            "unused: [{from: 2026-01-01, input: 1}, {from: 2026-01-01, input: 1}]",
            "13:44: prices.openai.unused[1]: repeats another row, which also starts on "
            "2026-01-01. Remove one of them.",
        ),
        (
            "unused: {input: 1, output: 2}",
            "unused: {input: 1, output: 2000}",
            "13:5: prices.openai.unused: output is implausible: 2000 USD per million tokens. "
            "Check the unit.",
        ),
        (
            "unused: {input: 1, output: 2}",
            "unused: {input: 1, output: 2, cached_input: 3}",
            "13:5: prices.openai.unused: cached_input costs more than input. Check both prices.",
        ),
        (
            "unused: {input: 1, output: 2}",
            "unused: {input: 1, tiers: [{above: 9, input: 2}, {above: 9, input: 3}]}",
            "13:5: prices.openai.unused: two tiers start above the same number of tokens. Remove "
            "one of them.",
        ),
        (
            "unused: {input: 1, output: 2}",
            "unused: {input: -1, output: 2}",
            "13:14: prices.openai.unused.input: must be greater than or equal to 0",
        ),
    ],
)
def test_doubtful_prices_are_reported(old: str, new: str, finding: str, tmp_path: Path) -> None:
    assert findings(tmp_path, GOOD.replace(old, new, 1)) == [finding]


def test_age_is_checked_on_request(tmp_path: Path) -> None:
    assert findings(tmp_path, GOOD.replace("2026-05-20", "2020-05-20"), days=None) == []


def test_shipped_prices_are_valid() -> None:
    folder = Path(__file__).parents[2] / "policies"

    assert check_prices(folder, date(2026, 11, 21), 1).errors == ()
