"""An error that no check expects is a problem of the folder, with the place of its part."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from proxy.policy.compile import compile_policies
from proxy.policy.files import load
from proxy.policy.files.load import Loaded
from proxy.policy.files.source import PolicyError
from proxy.policy.review.check import warnings
from tests.for_each import for_each

POLICIES = """\
upstreams:
  one: {dialect: openai, base_url: 'https://one.test', api_key: '${KEY}'}
tags:
  team: [search]
policies:
  public:
    input:
      - {guard: keywords, words: [a], action: block}
    rules:
      - {name: short, cap: {max_tokens: 9}}
deployments:
  chat: {policy: public, targets: [{upstream: one, model: m}]}
keys:
  widget: {sha256: AAAA, deployments: [chat]}
""".replace("AAAA", "0" * 64)
PARTS = {
    "upstreams.one": 2,
    "tags.team": 4,
    "policies.public.extends": 6,
    "policies.public.input.0": 8,
    "policies.public.rules.0.when": 10,
    "deployments.chat.targets": 12,
    "keys.widget": 14,
}


class Broken:
    """A part of the policies that nothing can read."""

    action, guard, restore = "block", "keywords", False

    def __getattr__(self, name: str) -> Any:
        raise LookupError("sk-secret")


def broken_at(part: Any, path: list[str]) -> Any:
    """Return a copy of a part of the policies that is broken at a path."""
    if not path:
        return Broken()
    first_item, remainder = path[0], path[1:]
    if isinstance(part, list):
        return [
            broken_at(item, remainder) if str(n) == first_item else item
            for n, item in enumerate(part)
        ]
    if isinstance(part, dict):
        return {**part, first_item: broken_at(part[first_item], remainder)}
    return part.model_copy(update={first_item: broken_at(getattr(part, first_item), remainder)})


def loaded(folder: Path) -> Loaded:
    (folder / "p.yaml").write_text(POLICIES)
    return load.load(folder)


@for_each(("path", "line"), PARTS.items())
def test_unexpected_error_names_file_and_line(path: str, line: int, tmp_path: Path) -> None:
    read = loaded(tmp_path)
    broken = replace(read, policies=broken_at(read.policies, path.split(".")))

    with pytest.raises(PolicyError) as caught:
        compile_policies(broken, {"KEY": "sk-secret"})

    [problem] = caught.value.problems
    assert (problem.file, problem.line) == ("p.yaml", line)
    assert re.sub(r"\.(\d+)", r"[\1]", path).startswith(problem.path)
    assert "cannot be read: unexpected " in problem.message
    assert "sk-secret" not in str(caught.value)


class BrokenEnvironment(dict[str, str]):
    def get(self, key: str, default: object = None) -> Any:
        raise LookupError(key)


def test_error_in_a_secret_names_its_upstream(tmp_path: Path) -> None:
    with pytest.raises(PolicyError, match=r"^p\.yaml:2:3: upstreams\.one: cannot be read"):
        compile_policies(loaded(tmp_path), BrokenEnvironment(KEY="sk"))


def test_chain_that_exhausts_the_stack_is_a_problem_of_its_part(tmp_path: Path) -> None:
    """A chain this long exhausts the stack of the interpreter."""
    policies = "".join(f"  p{n}: {{extends: p{n + 1}}}\n" for n in range(3000))
    (tmp_path / "p.yaml").write_text(POLICIES)
    (tmp_path / "q.yaml").write_text(f"policies:\n{policies}  p3000: {{}}\n")

    with pytest.raises(
        PolicyError,
        match=r"^q\.yaml:\d+:3: policies\.p\d+: cannot be read: unexpected RecursionError",
    ):
        compile_policies(load.read(tmp_path), {"KEY": "sk"})


BROKEN: Any = {"chat": Broken()}


@for_each(("section", "line"), [("upstreams", 1), ("tags", 3), ("deployments", 12)])
def test_failed_lint_names_the_part_it_inspected(section: str, line: int, tmp_path: Path) -> None:
    read = loaded(tmp_path)
    snapshot = compile_policies(read, {"KEY": "sk-secret"})
    if section == "deployments":
        snapshot = replace(snapshot, deployments=BROKEN)
    else:
        read = replace(read, policies=broken_at(read.policies, [section]))

    with pytest.raises(PolicyError) as caught:
        warnings(read, snapshot, datetime(2026, 1, 1, tzinfo=UTC))

    [problem] = caught.value.problems
    assert (problem.file, problem.line) == ("p.yaml", line)
    assert "cannot be read: unexpected " in problem.message
    assert "sk-secret" not in str(caught.value)
