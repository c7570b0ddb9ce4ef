"""Limits of money cover only targets whose price is whole, unless they say otherwise."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from proxy.policy.compile.targets import TargetCompiler
from proxy.policy.review.check import CheckReport, check_folder
from proxy.types.guard import NO_GUARDS
from tests.for_each import for_each
from tests.policy.deciding import empty_context

FOLDER = f"""\
upstreams: {{up: {{dialect: openai, base_url: 'https://api.example.test', provider: own}}}}
keys: {{widget: {{sha256: {"0" * 64}, deployments: [chat]}}}}
policies:
  default:
    limits: [{{name: month, usd: 5 per month}}]
    rules: []
deployments:
  chat:
    targets: [{{upstream: up, model: m, price: {{input: 1, output: 2}}}}]
prices: {{}}
"""
SAY = (
    'but limit "month" is in USD. Add "price:" to this target, or set "unpriced: allow" '
    "on the limit."
)


def judged(folder: Path, *changes: tuple[str, str]) -> CheckReport:
    text = FOLDER
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    (folder / "p.yaml").write_text(text)
    return check_folder(folder, {})


PRICE = ", price: {input: 1, output: 2}"
RULE = "rules: [{name: r, RULE}]"


@for_each(
    ("changes", "error"),
    [
        (
            [(PRICE, "")],
            f'9:15: deployments.chat.targets[0]: model "m" has no known price, {SAY}',
        ),
        (
            [(", output: 2", "")],
            f"9:15: deployments.chat.targets[0]: model \"m\" has no price for output, {SAY}",
        ),
        (
            [("{input: 1, output: 2}", "{output: 2}")],
            f"9:15: deployments.chat.targets[0]: model \"m\" has no price for input, {SAY}",
        ),
        (
            [("}]\nprices", "}]\n    fallback: [{upstream: up, model: spare}]\nprices")],
            f"10:16: deployments.chat.fallback[0]: model \"spare\" has no known price, {SAY}",
        ),
        (
            [("rules: []", RULE), ("RULE", "targets: [{upstream: up, model: x}]")],
            f"6:33: policies.default.rules[0].targets[0]: model \"x\" has no known price, {SAY}",
        ),
        (
            [("rules: []", RULE), ("RULE", "targets: [{upstream: up, model: x}]"), ("limits: ["
              "{name: month, usd: 5 per month}]", "limits: []"),
             ("model: x}]", "model: x}], limits: [{name: month, usd: 5 per month}]")],
            f"6:33: policies.default.rules[0].targets[0]: model \"x\" has no known price, {SAY}",
        ),
        (
            [("per month}]", "per month, mode: shadow}]"), (PRICE, "")],
            f"9:15: deployments.chat.targets[0]: model \"m\" has no known price, {SAY}",
        ),
    ],
)  # fmt: skip
def test_budget_needs_price(changes: list[tuple[str, str]], error: str, tmp_path: Path) -> None:
    report = judged(tmp_path, *changes)

    assert [str(problem) for problem in report.errors] == [f"p.yaml:{error}"]


@for_each(
    "changes",
    [
        [],
        [("per month}]", "per month, unpriced: allow}]"), (PRICE, "")],
        [("usd: 5", "tokens: 5k"), ("month}]", "hour}]"), ("per hour", "per minute"), (PRICE, "")],
        [("model: m", "model: text-embedding-m"), (", output: 2", "")],
        [
            ("rules: []", RULE),
            ("RULE", "targets: [{upstream: up, model: x}], without: {limits: [month]}"),
        ],
    ],
    ids=["priced", "allowed", "no money", "embeddings", "without the limit"],
)
def test_unpriced_target_may_be_fine(changes: list[tuple[str, str]], tmp_path: Path) -> None:
    assert judged(tmp_path, *changes).errors == ()


class Counted(dict[Any, Any]):
    """A mapping that knows how often somebody has gone through it."""

    times = 0

    def items(self) -> Any:
        self.times += 1
        return super().items()


def test_all_targets_are_gone_through_once_however_many_deployments_there_are() -> None:
    names = [f"deployment-{number}" for number in range(50)]
    single: Any = SimpleNamespace(guards=NO_GUARDS, limits=(), rules=())
    context = empty_context()
    compiler = TargetCompiler(context)
    compiler.by_path = counted = Counted({("deployments", n, "targets", 0): None for n in names})

    compiler.check_prices(dict.fromkeys(names, single))

    assert context.document.problems == []
    assert counted.times == 1
