"""Compilation of upstreams, targets and keys from schema to snapshot."""

from __future__ import annotations

import gc
import hashlib
import re
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from proxy.policy.compile import compile_policies
from proxy.policy.decide.snapshot import Snapshot
from proxy.policy.files import load
from proxy.policy.files.load import LoadedFolder
from proxy.policy.files.source import PolicyError
from proxy.policy.review.check import list_warnings
from proxy.policy.store import read_folder
from tests.for_each import for_each
from tests.policy.decisions import read_text

POLICIES = """
upstreams:
  openai:
    dialect: openai
    base_url: https://api.example.test/v1
    api_key: ${OPENAI_KEY}
    headers: {x-team: support, x-secret: 'Team ${TEAM_SECRET}'}
    timeouts: {connect: 1s, total: 2m}
    accepts: [top_k]
    max_answer_bytes: 1MiB
    propagate_trace: true
  local: {dialect: openai, base_url: 'http://127.0.0.1:1', provider: nobody}
  gateway: {dialect: scale, base_url: 'https://scale.example.test'}
prices:
  openai:
    gpt-4o-mini: {input: 0.15, output: 0.6}
    gpt-4o-*: [{from: 2026-01-01, input: 2, output: 8}, {input: 1, output: 4}]
    broken: {input: free}
keys:
  support-widget: {sha256: '%s', deployments: [support-chat], may: [refresh]}
deployments:
  support-chat:
    targets:
      - {upstream: openai, model: gpt-4o-mini}
      - {upstream: openai, model: gpt-4o-large, endpoint: chat}
      - {upstream: openai, model: own, price: {input: 3, output: 5}}
      - {upstream: local, model: gpt-4o-mini}
      - {upstream: gateway, model: gpt-4o-mini}
""" % hashlib.sha256(b"k").hexdigest()  # noqa: UP031  # braces are YAML's here
ENVIRON = {"OPENAI_KEY": "sk-1", "TEAM_SECRET": "t-1"}


@pytest.fixture
def snapshot(tmp_path: Path) -> Snapshot:
    return read_text(tmp_path, POLICIES, ENVIRON)


def test_upstream_has_secrets_and_timeouts(snapshot: Snapshot) -> None:
    [key] = snapshot.keys.values()
    upstream = key.deployments["support-chat"].deployment.routes.targets[0].upstream

    assert upstream.api_key is not None
    assert upstream.api_key.reveal() == "sk-1"
    headers = {name: value.reveal() for name, value in upstream.headers}
    assert headers == {"x-team": "support", "x-secret": "Team t-1"}
    timeouts = upstream.timeouts
    assert (timeouts.connect, timeouts.idle, timeouts.total) == (1, 600, 120)
    assert (upstream.accepts, upstream.max_answer_bytes) == (frozenset({"top_k"}), 2**20)
    assert upstream.propagate_trace
    assert "sk-1" not in repr(snapshot)


def test_price_comes_from_target_or_table_or_is_unknown(snapshot: Snapshot) -> None:
    [key] = snapshot.keys.values()
    exact, prefix, own_target, nobody, gateway = key.deployments[
        "support-chat"
    ].deployment.routes.targets

    assert [price.input for price in exact.prices] == [Decimal("0.15")]
    assert [price.input for price in prefix.prices] == [2, 1]
    assert [price.input for price in own_target.prices] == [3]
    assert nobody.prices == gateway.prices == ()


def test_invalid_price_is_an_error_only_if_used(tmp_path: Path) -> None:
    used = POLICIES.replace("model: own, price: {input: 3, output: 5}", "model: broken")

    with pytest.raises(PolicyError, match=r"prices\.openai\.broken\.input: must be"):
        read_text(tmp_path, used, ENVIRON)


def test_secret_invalid_in_a_header_is_reported(tmp_path: Path) -> None:

    with pytest.raises(PolicyError, match="printable ASCII characters"):
        read_text(tmp_path, POLICIES, {**ENVIRON, "OPENAI_KEY": "sk\n1"})


SIMILAR_KEYS = """\
upstreams: {one: {dialect: openai, base_url: 'https://one.test'}}
tags: {team: [support, search]}
keys:
  first: {sha256: 1111, deployments: [chat, told], tags: {team: support}}
  second: {sha256: 2222, deployments: [chat], tags: {team: support}}
  third: {sha256: 3333, deployments: [chat], tags: {team: support}}
  search: {sha256: 4444, deployments: [chat], tags: {team: search}}
  fifth: {sha256: 5555, deployments: [told], tags: {team: support}}
  sixth: {sha256: 6666, deployments: [told], tags: {team: support}}
  may: {sha256: 7777, deployments: [chat], tags: {team: support}, may: [refresh]}
policies:
  house: {match: all, rules: [{name: s, when: {tag: {team: search}}, set: {seed: 1}}]}
  told: {match: all, rules: [{name: k, when: {any: [{key: fifth}]}, set: {seed: 2}}]}
deployments:
  chat: {policy: house, targets: [{upstream: one, model: m}]}
  told: {policy: told, targets: [{upstream: one, model: t}]}
"""
SIMILAR_KEYS = re.sub(r"(\d)\1{3}", lambda digits: f"'{digits[1] * 64}'", SIMILAR_KEYS)


def test_equal_keys_share_deployments(tmp_path: Path) -> None:
    keys = read_text(tmp_path, SIMILAR_KEYS).keys

    assert [*keys] == ["first", "second", "third", "search", "fifth", "sixth", "may"]
    assert keys["second"].deployments is keys["third"].deployments
    assert keys["second"].deployments is not keys["first"].deployments
    assert (keys["second"].may_refresh, keys["may"].may_refresh) == (False, True)
    chains = {name: key.deployments["chat"].chain for name, key in list(keys.items())[:4]}
    assert [name for name, chain in chains.items() if chain is not None] == ["search"]
    config = {name: keys[name].deployments["told"].chain for name in ("first", "fifth", "sixth")}
    assert [name for name, chain in config.items() if chain is not None] == ["fifth"]


@pytest.mark.parametrize("policies", ["shipped", "own"])
def test_compiling_leaves_no_reference_cycles(policies: str, tmp_path: Path) -> None:
    if policies == "own":
        (tmp_path / "policies.yaml").write_text(SIMILAR_KEYS)
    folder = Path("policies") if policies == "shipped" else tmp_path
    read_folder(folder, {})  # fill caches of the process
    gc.collect()
    gc.disable()
    try:
        snapshot = read_folder(folder, {})
        remaining = gc.collect()
        del snapshot
        final = gc.collect()
    finally:
        gc.enable()

    assert (remaining, final) == (0, 0)


UNEXPECTED_ERRORS_POLICIES = """\
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
    """A part of the policies that raises an unexpected error when it is read."""

    action, guard, restore = "block", "keywords", False

    def __getattr__(self, name: str) -> Any:
        raise LookupError("sk-secret")


def broken_at(part: Any, path: list[str]) -> Any:
    """Return a copy of a part of the policies whose item at a path raises when read."""
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


def loaded(folder: Path) -> LoadedFolder:
    (folder / "p.yaml").write_text(UNEXPECTED_ERRORS_POLICIES)
    return load.load_policies(folder)


@for_each(("path", "line"), PARTS.items())
def test_unexpected_error_names_file_and_line(path: str, line: int, tmp_path: Path) -> None:
    read = loaded(tmp_path)
    broken = replace(read, policies=broken_at(read.policies, path.split(".")))

    with pytest.raises(PolicyError) as caught:
        compile_policies(broken, {"KEY": "sk-secret"})

    [problem] = caught.value.problems
    assert problem.location[:2] == ("p.yaml", line)
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
    (tmp_path / "p.yaml").write_text(UNEXPECTED_ERRORS_POLICIES)
    (tmp_path / "q.yaml").write_text(f"policies:\n{policies}  p3000: {{extends: p0}}\n")

    with pytest.raises(
        PolicyError,
        match=r"^q\.yaml:\d+:3: policies\.p\d+: cannot be read: unexpected RecursionError",
    ):
        compile_policies(load.load_policies_with_problems(tmp_path), {"KEY": "sk"})


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
        list_warnings(read, snapshot, datetime(2026, 1, 1, tzinfo=UTC))

    [problem] = caught.value.problems
    assert problem.location[:2] == ("p.yaml", line)
    assert "cannot be read: unexpected " in problem.message
    assert "sk-secret" not in str(caught.value)
