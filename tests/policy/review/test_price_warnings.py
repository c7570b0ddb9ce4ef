"""Warnings of `headrace check` about prices."""

from __future__ import annotations

from pathlib import Path

from proxy.policy.files.load import PRICE_TABLE
from proxy.policy.review.check import check_folder
from tests.for_each import for_each

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


def warnings(folder: Path, text: str) -> list[str]:
    (folder / "p.yaml").write_text(text)
    report = check_folder(folder, None)
    assert report.errors == ()
    return [str(problem).removeprefix("p.yaml:") for problem in report.warnings]


def test_valid_prices_have_no_warnings(tmp_path: Path) -> None:
    assert warnings(tmp_path, GOOD) == []


@for_each(
    ("old", "new", "finding"),
    [
        (
            "unused: {input: 1, output: 2}",
            "unused: [{input: 1, output: 2}, {input: 1, output: 3}]",
            "13:37: prices.openai.unused[1]: has the same start as another row. "
            "Remove one of them.",
        ),
        (
            "unused: {input: 1, output: 2}",
            "unused: [{from: 2026-01-01, input: 1}, {from: 2026-01-01, input: 1}]",
            "13:44: prices.openai.unused[1]: has the same start as another row. "
            "Remove one of them.",
        ),
        (
            "unused: {input: 1, output: 2}",
            "unused: {input: 1, output: 2000}",
            "13:5: prices.openai.unused: output is implausible: 2000 USD per million tokens. "
            "Check the unit.",
        ),
        ("unused: {input: 1, output: 2}", "unused: {input: 1, output: 2, cached_input: 3}",
            "13:5: prices.openai.unused: cached_input costs more than input. Check both prices."),
        (
            "unused: {input: 1, output: 2}",
            "unused: {input: 1, tiers: [{above: 9, input: 2}, {above: 9, input: 3}]}",
            "13:5: prices.openai.unused: two tiers start above the same number of tokens. Remove "
            "one of them.",
        ),
        (
            "unused: {input: 1, output: 2}",
            "unused: {input: -1, output: 2}",
            "13:5: prices.openai.unused: is not a valid price. Targets of this model will be "
            "rejected.",
        ),
    ],
)  # fmt: skip
def test_doubtful_prices_are_reported(old: str, new: str, finding: str, tmp_path: Path) -> None:
    assert warnings(tmp_path, GOOD.replace(old, new, 1)) == [finding]


def test_packaged_prices_are_plausible(tmp_path: Path) -> None:
    sections, _, _ = GOOD.partition("price_table:")

    assert warnings(tmp_path, sections + PRICE_TABLE.read_text()) == []
