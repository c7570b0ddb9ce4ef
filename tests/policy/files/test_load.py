"""Loading of policy folders: exact messages of invalid files, revisions, secrets, prices."""

from __future__ import annotations

import shutil
import tomllib
from collections.abc import Callable, Iterable
from decimal import Decimal
from pathlib import Path
from typing import Any, get_args, get_origin

import pytest
import yaml
from pydantic import BaseModel
from pydantic.fields import FieldInfo

import proxy
from proxy.config.scalars import list_referring_keys
from proxy.guards.kinds import KINDS
from proxy.money.usage import Price
from proxy.policy import schema
from proxy.policy.decide.snapshot import Snapshot
from proxy.policy.files.load import (
    MAX_TEXT_BYTES,
    PRICE_TABLE,
    TEXT_KEYS,
    iter_text_file_names,
    load_policies,
    read_packaged_prices,
    read_secret,
    read_text_files,
)
from proxy.policy.files.source import KeyPath, PolicyError
from proxy.policy.schema.guards import GuardConfig, get_guard_model
from proxy.policy.store import read_folder
from tests.for_each import for_each
from tests.policy.decisions import read_text

WRONG = sorted(Path(__file__).parents[1].joinpath("wrong").glob("*.yaml"))


@for_each("file", WRONG, ids=lambda file: file.stem)
def test_invalid_policy_has_exact_messages(file: Path, tmp_path: Path) -> None:
    shutil.copy(file, tmp_path)
    expected = [line[2:] for line in file.read_text().splitlines() if line.startswith("# ")]

    with pytest.raises(PolicyError) as refused:
        read_folder(tmp_path, {})

    assert str(refused.value).splitlines() == expected


def test_duplicate_name_reports_both_locations(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.yaml").write_text("tags:\n  team: [support]\n")

    with pytest.raises(PolicyError, match=r"b\.yaml:2:3: tags\.team: .* defined at a\.yaml:2:3"):
        load_policies(tmp_path)


def link_to_nothing(folder: Path) -> None:
    (folder / "tags.yaml").write_text("tags: {team: [support]}\n")
    (folder / "keys.yaml").symlink_to("..data/keys.yaml")


@for_each(
    ("prepare", "message"),
    [
        (lambda folder: (folder / "a.yaml").write_text(""), r"^a\.yaml:1:1: is empty\. Remove"),
        (lambda folder: (folder / "a.yaml").write_text("\n\n"), r"^a\.yaml:1:1: is empty\. Remove"),
        (lambda folder: None, r"contains no \.yaml file"),
        (Path.rmdir, r"^policies:1:1: cannot be read: No such file"),
        (link_to_nothing, r"keys\.yaml:1:1: cannot be read: No such file"),
    ],
)
def test_incomplete_folder_is_refused(
    prepare: Callable[[Path], object], message: str, tmp_path: Path
) -> None:
    folder = tmp_path / "policies"
    folder.mkdir()
    prepare(folder)

    with pytest.raises(PolicyError, match=message):
        load_policies(folder)


def test_mounted_config_map_is_read_once(tmp_path: Path) -> None:
    inside = tmp_path / "..2026_01_31" / "deployments"
    inside.mkdir(parents=True)
    (inside / "tags.yaml").write_text("tags: {team: [support]}\n")
    (tmp_path / "..data").symlink_to("..2026_01_31")
    (tmp_path / "deployments").symlink_to("..data/deployments")
    (tmp_path / "again").symlink_to(".")

    assert list(load_policies(tmp_path).policies.tags) == ["team"]


def test_number_of_files_is_bounded(tmp_path: Path) -> None:
    (tmp_path / "tags.yaml").write_text("tags: {team: [support]}\n")
    for number in range(999):
        (tmp_path / f"{number}.txt").touch()
    load_policies(tmp_path)
    (tmp_path / "999.txt").touch()

    with pytest.raises(PolicyError, match="contains more than 1000 files"):
        load_policies(tmp_path)


def test_tests_and_hidden_files_are_ignored(tmp_path: Path) -> None:
    (tmp_path / "tags.yaml").write_text("tags: {team: [support]}\n")
    for name in ("tests", "..2026_01_01"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "x.yaml").write_text("nonsense: true\n")

    assert list(load_policies(tmp_path).policies.tags) == ["team"]


def test_revision_changes_with_every_byte(tmp_path: Path) -> None:
    file = tmp_path / "tags.yaml"
    file.write_text("tags: {team: [support]}\n")
    revision = load_policies(tmp_path).revision

    file.write_text("tags: {team: [support]} \n")

    assert load_policies(tmp_path).revision != revision


def test_secrets_come_from_environment_or_file(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text("sk-from-file\n")

    assert read_secret("${KEY}", {"KEY": "sk-from-environment"}) == "sk-from-environment"
    assert read_secret(f"file:{file}", {}) == "sk-from-file"
    assert read_secret("Bearer ${KEY}", {"KEY": "sk"}) == "Bearer sk"
    assert read_secret("${KEY}", {"KEY": "${HOME}"}) == "${HOME}"


@pytest.mark.parametrize("content", ["", "\n", "x" * 20_000])
def test_secret_file_has_one_secret(content: str, tmp_path: Path) -> None:
    (tmp_path / "key").write_text(content)

    with pytest.raises(ValueError, match="must contain 1 to 16384 bytes"):
        read_secret(f"file:{tmp_path / 'key'}", {})


def inner_types(kind: Any) -> list[tuple[KeyPath, Any]]:
    """Return the types that a type consists of, each with its path in a folder's data."""
    if kind is GuardConfig:
        return [((), get_guard_model(word)) for word in KINDS]
    if is_model(kind):
        return [((field.alias or name,), field.annotation) for name, field in fields_of(kind)]
    arguments = get_args(kind)
    if get_origin(kind) is dict:
        return [(("x",), arguments[1])]
    if get_origin(kind) is list:
        return [((0,), arguments[0])]
    return [((), argument) for argument in arguments]  # of a union or Annotated


def is_model(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseModel)


def fields_of(kind: type[BaseModel]) -> Iterable[tuple[str, FieldInfo]]:
    return kind.model_fields.items()


def models() -> dict[type[BaseModel], KeyPath]:
    """Return every model of the schema with a path at which it may occur."""
    result: dict[type[BaseModel], KeyPath] = {}
    pending: list[tuple[KeyPath, Any]] = [((), schema.PoliciesConfig)]
    while pending:
        path, kind = pending.pop()
        if kind in result:
            continue
        if is_model(kind) and kind is not GuardConfig:
            result[kind] = path
        pending += [((*path, *step), inner) for step, inner in inner_types(kind)]
    return result


def folder_with(path: KeyPath, value: Any) -> str:
    """Return the YAML of a folder that holds a value at a path."""
    for part in reversed(path):
        value = [value] if isinstance(part, int) else {part: value}
    return yaml.safe_dump(value)


def misspelled(key: str, other_items: list[str]) -> str | None:
    """Return the key with one character left out, unless that is another key."""
    word = key[:2] + key[3:]
    return word if len(key) > len("on") and word not in other_items else None


MODELS = models()


@for_each(("kind", "path"), MODELS.items(), ids=[kind.__name__ for kind in MODELS])
def test_misspelled_key_is_suggested(kind: type[BaseModel], path: KeyPath, tmp_path: Path) -> None:
    keys = [field.alias or name for name, field in fields_of(kind)]
    words = {key: word for key in keys if (word := misspelled(key, keys))}
    names = get_args(kind.model_fields["guard"].annotation) if "guard" in keys else ()
    guard = {"guard": names[0]} if names else {}

    for key, word in words.items():
        (tmp_path / "a.yaml").write_text(folder_with(path, {word: {}} | guard))

        with pytest.raises(PolicyError, match=rf'{word}: unknown key\. Did you mean "{key}"\?'):
            load_policies(tmp_path)


@for_each("word", KINDS)
def test_misspelled_guard_key_is_named(word: str, tmp_path: Path) -> None:
    guard = {"gurd": word, "action": "flag"}
    (tmp_path / "a.yaml").write_text(folder_with(("policies", "public", "input", 0), guard))

    with pytest.raises(PolicyError, match=r'gurd: unknown key\. Did you mean "guard"\?$'):
        load_policies(tmp_path)


TOP = Path(__file__).parents[3]
FOLDER = f"""\
upstreams: {{openai: {{dialect: openai, base_url: 'https://api.example.test'}}}}
keys: {{widget: {{sha256: {"0" * 64}, deployments: [chat]}}}}
deployments: {{chat: {{targets: [{{upstream: openai, model: gpt-4o-mini}}]}}}}
"""


def read(folder: Path, fields: str = "") -> Snapshot:
    return read_text(folder, FOLDER + fields, {})


def prices(snapshot: Snapshot) -> tuple[Price, ...]:
    return snapshot.deployments["chat"].routes.targets[0].prices


def test_packaged_prices_are_the_default(tmp_path: Path) -> None:
    loaded = read(tmp_path)

    assert prices(loaded) == (
        Price(Decimal("0.15"), Decimal("0.6"), Decimal("0.075"), web_search=Decimal(10)),
    )
    assert loaded.prices_as_of == read_packaged_prices().price_table.as_of


@for_each(
    ("own_text", "expected"),
    [
        ("prices: {openai: {gpt-4o-mini: {input: 1, output: 2}}}", [Price(Decimal(1), Decimal(2))]),
        ("prices: {openai: {gpt-4o: {input: 1, output: 2}}}", []),
        ("prices: {}", []),
        ("price_table: {as_of: 2026-01-31}", []),
    ],
)
def test_own_prices_replace_packaged_prices(
    own_text: str, expected: list[Price], tmp_path: Path
) -> None:
    assert list(prices(read(tmp_path, own_text))) == expected


def test_folder_with_own_prices_has_no_table_date(tmp_path: Path) -> None:
    text = FOLDER.replace("gpt-4o-mini", "m, price: {input: 1}")

    assert read_text(tmp_path, text, {}).prices_as_of is None


def test_price_table_is_part_of_the_revision(tmp_path: Path) -> None:
    brought = PRICE_TABLE.read_text()

    assert read(tmp_path).revision != read(tmp_path, brought).revision


def test_package_contains_one_price_table_and_its_license() -> None:
    packed = tomllib.loads((TOP / "pyproject.toml").read_text())["tool"]["hatch"]["build"]
    licences = tomllib.loads((TOP / "pyproject.toml").read_text())["project"]["license-files"]

    assert PRICE_TABLE.parent.is_relative_to(Path(proxy.__file__).parent)
    assert packed["targets"]["wheel"] == {"packages": ["proxy"]}
    assert "proxy/policy/files/table/prices.LICENSE" in licences
    assert [path.parent for path in TOP.glob("p*/**/prices.yaml")] == [PRICE_TABLE.parent]


def test_guard_keys_name_text_files() -> None:
    assert {
        key for kind in KINDS.values() for key in list_referring_keys(kind.Keys, "text")
    } == TEXT_KEYS


def test_text_files_are_found_at_any_depth() -> None:
    data = {"a": [{"words_from": "w.txt"}, {"b": {"texts_from": ["1.txt", "2.txt", 3]}}]}

    assert list(iter_text_file_names(data)) == ["w.txt", "1.txt", "2.txt"]


@for_each(
    ("name", "content", "problem"),
    [
        ("none.txt", None, "cannot be read"),
        (".", None, "cannot be read"),
        ("/etc/hostname", None, "must be a relative path inside the policy folder"),
        ("a/../../w.txt", None, "must be a relative path inside the policy folder"),
        ("w.txt", b"\xff\xfe", "is not UTF-8"),
        ("w.txt", b"x" * (MAX_TEXT_BYTES + 1), "is larger than"),
    ],
)
def test_unreadable_text_file_is_reported(
    name: str, content: bytes | None, problem: str, tmp_path: Path
) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)

    text = read_text_files(tmp_path, {"words_from": name})[name]

    assert problem in str(text)
    assert isinstance(text, ValueError)
