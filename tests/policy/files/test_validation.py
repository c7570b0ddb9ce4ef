"""``check`` reports all schema errors of a folder, and then all wrong references."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from proxy.policy.files.load import load_policies_with_problems
from proxy.policy.files.source import Problem, format_path
from proxy.policy.review.check import check_folder
from tests.for_each import for_each
from tests.golden.events import value_at
from tests.test_docs import EXAMPLES

DIGEST = "0" * 64
WRONG = sorted((Path(__file__).parents[1] / "wrong").glob("*.yaml"))
NOWHERE = f"""
deployments:
  zz:
    policy: nowhere
    tags: {{nobodys: x}}
    targets: [{{upstream: nowhere, model: m, price: {{input: 1, output: 1}}}}]
keys: {{zz: {{sha256: '{DIGEST}', deployments: [nowhere]}}}}
policies: {{zz: {{extends: nowhere}}}}
"""
KeyPath = tuple[str | int, ...]


def problems(folder: Path) -> tuple[Problem, ...]:
    return check_folder(folder, {"OPENAI_API_KEY": "sk-1"}).errors


def messages_of(folder: Path) -> set[str]:
    result = {f"{item.path}: {item.message}" for item in problems(folder)}
    return {
        re.sub(r"\. (Did you mean|Available:|Allowed:|Add it under) .*", "", item)
        for item in result
    }


def problem_places(folder: Path, text: str) -> list[str]:
    (folder / "a.yaml").write_text(text)
    return [f"{item.location.line} {item.path}" for item in problems(folder)]


@for_each("file", WRONG, ids=lambda file: file.stem)
def test_schema_errors_of_all_files_are_reported(file: Path, tmp_path: Path) -> None:
    (tmp_path / file.name).write_text(file.read_text())
    alone = (
        messages_of(tmp_path) if load_policies_with_problems(tmp_path).document.problems else set()
    )

    (tmp_path / "zz.yaml").write_text("tags: {zz: 5}\n")

    assert messages_of(tmp_path) >= alone | {"tags.zz: must be a mapping"}


@for_each(
    "content", ["policies: {nowhere: {limits: [{name: nowhere", "tags: {team: 5}\n", "tags: []\n"]
)
def test_references_are_checked_after_schema_errors(content: str, tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(content)
    (tmp_path / "zz.yaml").write_text(NOWHERE)
    files_before = {item.location.file for item in problems(tmp_path)}

    (tmp_path / "a.yaml").unlink()

    assert files_before == {"a.yaml"}
    assert messages_of(tmp_path) == {
        'deployments.zz.targets[0].upstream: upstream "nowhere" does not exist',
        'deployments.zz.policy: policy "nowhere" does not exist',
        'deployments.zz.tags.nobodys: tag "nobodys" does not exist',
        'keys.zz.deployments[0]: deployment "nowhere" does not exist',
        'policies.zz.extends[0]: policy "nowhere" does not exist',
    }


@pytest.mark.parametrize(
    "policy",
    [
        "match: some, rules: [{name: a, cap: {n: 1}}, {name: b, cap: {n: 2}}]",
        "limits: [{name: l, requests: none}]",
        "rules: [{name: a, cap: {n: 1}}, {title: a, cap: {n: 2}}]",
    ],
)
def test_invalid_policy_gets_no_follow_up_problems(policy: str, tmp_path: Path) -> None:
    result = problem_places(tmp_path, f"policies: {{public: {{{policy}}}}}\n")

    assert result
    assert [item for item in result if item.endswith(" policies.public")] == []


def parts(value: Any, path: KeyPath = ()) -> Iterator[KeyPath]:
    if path:
        yield path
    listed = dict(enumerate(value)) if isinstance(value, list) else value
    for key, item in listed.items() if isinstance(listed, dict) else ():
        yield from parts(item, (*path, key))


@for_each("example", EXAMPLES, ids=lambda text: text.splitlines()[0])
def test_part_of_wrong_type_is_the_only_problem(example: str, tmp_path: Path) -> None:
    """References to the replaced part may be reported too."""
    file = tmp_path / "a.yaml"
    file.write_text(example)
    data = load_policies_with_problems(tmp_path).document.data
    for path in parts(data):
        changed = deepcopy(data)
        value_at(changed, path[:-1])[path[-1]] = [[7]]
        file.write_text(json.dumps(changed))
        local, removed = format_path(path), json.dumps(value_at(data, path))
        for item in problems(tmp_path):
            nearby = item.path.startswith(local) or local.startswith(item.path)
            names = re.findall(r"['\"](.*?)['\"]", item.message)
            assert nearby or any(f'"{name}"' in removed for name in names), (local, str(item))
