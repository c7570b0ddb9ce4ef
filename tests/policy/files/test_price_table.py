"""The packaged table of prices: in force where a folder brings none, and found in the package."""

from __future__ import annotations

import tomllib
from decimal import Decimal
from pathlib import Path

import proxy
from proxy.money.usage import Price
from proxy.policy.decide.snapshot import Snapshot
from proxy.policy.files.load import PRICE_TABLE, packaged_prices
from proxy.policy.store import read_folder
from tests.for_each import for_each

TOP = Path(__file__).parents[3]
FOLDER = f"""\
upstreams: {{openai: {{dialect: openai, base_url: 'https://api.example.test'}}}}
keys: {{widget: {{sha256: {"0" * 64}, deployments: [chat]}}}}
deployments: {{chat: {{targets: [{{upstream: openai, model: gpt-4o-mini}}]}}}}
"""


def read(folder: Path, fields: str = "") -> Snapshot:
    (folder / "p.yaml").write_text(FOLDER + fields)
    return read_folder(folder, {})


def prices(snapshot: Snapshot) -> tuple[Price, ...]:
    return snapshot.deployments["chat"].routes.targets[0].prices


def test_a_folder_without_a_table_has_that_of_the_package(tmp_path: Path) -> None:
    loaded = read(tmp_path)

    assert prices(loaded) == (
        Price(Decimal("0.15"), Decimal("0.6"), Decimal("0.075"), web_search=Decimal(10)),
    )
    assert loaded.prices_as_of == packaged_prices().price_table.as_of


@for_each(
    ("own_text", "expected"),
    [
        ("prices: {openai: {gpt-4o-mini: {input: 1, output: 2}}}", [Price(Decimal(1), Decimal(2))]),
        ("prices: {openai: {gpt-4o: {input: 1, output: 2}}}", []),
        ("prices: {}", []),
        ("price_table: {as_of: 2026-01-31}", []),
    ],
)
def test_own_table_replaces_packaged_one(
    own_text: str, expected: list[Price], tmp_path: Path
) -> None:
    assert list(prices(read(tmp_path, own_text))) == expected


def test_a_folder_that_asks_no_table_has_none_that_could_be_old(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text(FOLDER.replace("gpt-4o-mini", "m, price: {input: 1}"))

    assert read_folder(tmp_path, {}).prices_as_of is None


def test_another_table_is_another_revision(tmp_path: Path) -> None:
    brought = PRICE_TABLE.read_text()

    assert read(tmp_path).revision != read(tmp_path, brought).revision


def test_the_table_lies_in_the_package_once_with_its_licence() -> None:
    packed = tomllib.loads((TOP / "pyproject.toml").read_text())["tool"]["hatch"]["build"]
    licences = tomllib.loads((TOP / "pyproject.toml").read_text())["project"]["license-files"]

    assert PRICE_TABLE.parent.is_relative_to(Path(proxy.__file__).parent)
    assert packed["targets"]["wheel"] == {"packages": ["proxy"]}
    assert "proxy/policy/files/table/prices.LICENSE" in licences
    assert [path.parent for path in TOP.glob("p*/**/prices.yaml")] == [PRICE_TABLE.parent]
