"""One round of ``check`` tells all: what is wrong in one place hides nothing in another."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from proxy.policy.files.load import read
from proxy.policy.files.source import Problem, path_text
from proxy.policy.review.check import check_folder
from tests.for_each import for_each
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
UPSTREAM = {'deployments.zz.targets[0].upstream: upstream "nowhere" does not exist'}
TOLD_OF_NOWHERE = UPSTREAM | {
    'deployments.zz.policy: policy "nowhere" does not exist',
    'deployments.zz.tags.nobodys: tag "nobodys" does not exist',
    'keys.zz.deployments[0]: deployment "nowhere" does not exist',
    'policies.zz.extends[0]: policy "nowhere" does not exist',
}
KeyPath = tuple[str | int, ...]


def problems(folder: Path) -> tuple[Problem, ...]:
    return check_folder(folder, {"OPENAI_API_KEY": "sk-1"}).errors


def messages_of(folder: Path) -> set[str]:
    result = {f"{item.path}: {item.message}" for item in problems(folder)}
    return {
        re.sub(r"\. (Did you mean|Available:|Allowed:|Add it under) .*", "", item)
        for item in result
    }


def told_of(folder: Path, text: str) -> list[str]:
    (folder / "a.yaml").write_text(text)
    return [f"{item.line} {item.path}" for item in problems(folder)]


@for_each("file", WRONG, ids=lambda file: file.stem)
def test_no_file_hides_what_is_wrong_in_another(file: Path, tmp_path: Path) -> None:
    (tmp_path / file.name).write_text(file.read_text())
    alone = messages_of(tmp_path)

    (tmp_path / "zz.yaml").write_text(NOWHERE)

    unknown = UPSTREAM if file.stem == "section-that-is-a-list" else set()
    assert messages_of(tmp_path) >= TOLD_OF_NOWHERE - unknown
    assert messages_of(tmp_path) >= alone


@for_each(
    ("content", "expected"),
    [
        (
            b"policies: {nowhere: {limits: [{name: nowhere",
            [("half.yaml", ""), ("zz.yaml", "deployments.zz.tags.nobodys")],
        ),
        (b"policies: {nowhere: {description: \xe9}}", [("half.yaml", "")]),
    ],
)
def test_unread_part_may_have_any_name(
    content: bytes, expected: list[tuple[str, str]], tmp_path: Path
) -> None:
    (tmp_path / "half.yaml").write_bytes(content)
    (tmp_path / "zz.yaml").write_text(NOWHERE)

    assert [(item.file, item.path) for item in problems(tmp_path)] == expected


def test_a_wrong_deployment_is_looked_at_to_its_end(tmp_path: Path) -> None:
    assert told_of(
        tmp_path,
        """\
upstreams: {local: {dialect: openai, base_url: 'http://127.0.0.1:1', timeouts: {connects: 1s}}}
deployments:
  a:
    sticky: usr
    policy: publik
    tags: {team: searching, taem: search}
    targets:
      - {upstream: local}
      - {upstream: locl, model: m}
      - {upstream: local, model: m, weights: 1, price: {input: free}}
  b: {policy: publik}
  c: {policy: publik, sticky: user, targets: [{upstream: local, model: m}]}
  d: {policy: publik, targets: [{model: m}]}
tags: {team: [search]}
policies: {public: {limits: [{name: l, requests: 1 per day}]}}
""",
    ) == [
        "1 upstreams.local.timeouts.connects",
        "4 deployments.a.sticky",
        "5 deployments.a.policy",
        "6 deployments.a.tags.team",
        "6 deployments.a.tags.taem",
        "8 deployments.a.targets[0]",
        "9 deployments.a.targets[1].upstream",
        "10 deployments.a.targets[2].weights",
        "10 deployments.a.targets[2].price.input",
        "11 deployments.b",
        "11 deployments.b.policy",
        "12 deployments.c",
        "12 deployments.c.policy",
        "13 deployments.d.policy",
        "13 deployments.d.targets[0]",
    ]


def test_a_policy_is_judged_as_a_whole_though_a_condition_in_it_is_wrong(tmp_path: Path) -> None:
    rules = "[{name: a, when: {engine: m}, cap: {n: 1}}, {name: a, cap: {n: 2}}]"

    assert told_of(tmp_path, f"policies: {{public: {{rules: {rules}}}}}\n") == [
        "1 policies.public",
        "1 policies.public",
        "1 policies.public.rules[0].when.engine",
    ]


@pytest.mark.parametrize(
    "policy",
    [
        "match: some, rules: [{name: a, cap: {n: 1}}, {name: b, cap: {n: 2}}]",
        "limits: [{name: l, requests: none}]",
        "rules: [{name: a, cap: {n: 1}}, {title: a, cap: {n: 2}}]",
    ],
)
def test_a_policy_is_not_judged_by_what_is_left_of_it(policy: str, tmp_path: Path) -> None:
    result = told_of(tmp_path, f"policies: {{public: {{{policy}}}}}\n")

    assert result
    assert [item for item in result if item.endswith(" policies.public")] == []


@for_each("digest", ["", "sha256: abc, ", "sha256: [], ", "sha256: [{until: x}], "])
def test_a_key_without_a_good_digest_is_looked_at_to_its_end(digest: str, tmp_path: Path) -> None:
    text = f"""
tags: {{team: [support]}}
keys:
  k: {{{digest}deployments: [nowhere], tags: {{team: search}}, may: [fly]}}
  l: {{{digest}deployments: [nowhere]}}
"""
    told_paths = {item.split()[1] for item in told_of(tmp_path, text)}

    assert told_paths >= {
        *("keys.k.deployments[0]", "keys.k.tags.team", "keys.k.may[0]", "keys.l.deployments[0]")
    }
    assert not any("same key" in item for item in messages_of(tmp_path))


@pytest.mark.parametrize("address", ["", "base_url: 'ftp://x', ", "base_url: 5, "])
def test_checks_upstream_with_bad_address(address: str, tmp_path: Path) -> None:
    text = f"upstreams: {{u: {{dialect: openai, {address}api_key: '${{MISSING}}', drop: 5}}}}\n"

    told_paths = {item.split()[1] for item in told_of(tmp_path, text)}

    assert told_paths >= {"upstreams.u.api_key", "upstreams.u.drop"}


def test_a_wrong_policy_is_looked_at_to_its_end(tmp_path: Path) -> None:
    assert told_of(
        tmp_path,
        f"""\
policies:
  public:
    extends: houze
    match: all
    limits:
      - {{name: a, requests: many}}
      - {{name: b, usd: 1 per day, per: tag.taem}}
    input: [{{guard: keywords, word: [x]}}, {{guard: grounded, threshold: 0.5}}]
    rules:
      - {{name: r, when: {{models: m}}, targets: [{{upstream: nowhere, model: m}}]}}
      - {{name: s, when: {{key: nobody}}, without: {{limits: [a, c]}}}}
      - {{name: s, when: {{dialect: opnai}}, refuse: {{message: No., status: 200}}}}
keys: {{k: {{sha256: '{DIGEST}', may: [fly], tags: {{taem: x}}, deployments: [nowhere]}}}}
""",
    ) == [
        "3 policies.public.extends[0]",
        "6 policies.public.limits[0].requests",
        "7 policies.public.limits[1].per[0]",
        "8 policies.public.input[0].word",
        "8 policies.public.input[1]",
        "10 policies.public.rules[0].when.models",
        "10 policies.public.rules[0].targets[0].upstream",
        "11 policies.public.rules[1].when.key",
        "11 policies.public.rules[1].without.limits[1]",
        "12 policies.public.rules[2].when.dialect",
        "12 policies.public.rules[2].refuse.status",
        "13 keys.k.may[0]",
        "13 keys.k.tags.taem",
        "13 keys.k.deployments[0]",
    ]


def parts(value: Any, path: KeyPath = ()) -> Iterator[KeyPath]:
    if path:
        yield path
    listed = dict(enumerate(value)) if isinstance(value, list) else value
    for key, item in listed.items() if isinstance(listed, dict) else ():
        yield from parts(item, (*path, key))


def value_at(data: Any, path: KeyPath) -> Any:
    for part in path:
        data = data[part]
    return data


@for_each("example", EXAMPLES, ids=lambda text: text.splitlines()[0])
def test_a_part_of_a_wrong_type_is_all_that_is_told(example: str, tmp_path: Path) -> None:
    """But for what refers to something that was said there and is no more."""
    file = tmp_path / "a.yaml"
    file.write_text(example)
    data = read(tmp_path).document.data
    for path in parts(data):
        changed = deepcopy(data)
        value_at(changed, path[:-1])[path[-1]] = [[7]]
        file.write_text(json.dumps(changed))
        local, removed = path_text(path), json.dumps(value_at(data, path))
        for item in problems(tmp_path):
            nearby = item.path.startswith(local) or local.startswith(item.path)
            names = re.findall(r"['\"](.*?)['\"]", item.message)
            assert nearby or any(f'"{name}"' in removed for name in names), (local, str(item))
