"""Guards as people write them: every kind, whose they are, and what is wrong with them."""

from __future__ import annotations

from pathlib import Path

import pytest

from proxy.guardrails.kinds import KINDS
from proxy.policy.snapshot import Snapshot
from proxy.policy.source import PolicyError
from proxy.policy.store import read_folder

POLICIES = """\
upstreams: {up: {dialect: openai, base_url: 'https://api.example.test'}}
policies:
  house: {input: [{guard: secrets}], opaque: allow}
  public:
    extends: house
    input: INPUT
    output: [{guard: json_schema, schema: {type: object}, action: flag}]
keys: {widget: {sha256: AAAA, deployments: [chat]}}
deployments: {chat: {targets: [{upstream: up, model: m}], policy: public}}
""".replace("AAAA", "0" * 64)
WRITTEN = {
    "keywords": "{guard: keywords, words: [hippo], patterns: ['h[aei]ppo'], whole_words: false}",
    "pii": "{guard: pii, entities: [email, id_DE], regions: [DE], threshold: 0.7, action: mask}",
    "secrets": "{guard: secrets, reach: 2000}",
    "urls": "{guard: urls, allow: ['*.example.com'], deny: [bad.example.com]}",
    "code": "{guard: code, roles: [user], mode: shadow}",
    "length": "{guard: length, characters: 100, lines: 5, tokens: 50}",
    "sponge": "{guard: sponge, on_error: open, deadline: 200ms}",
    "injection": "{guard: injection, threshold: 0.9, by_model: false}",
    "toxicity": "{guard: toxicity, threshold: 0.6}",
    "nsfw": "{guard: nsfw}",
    "topic": "{guard: topic, banned: {stocks: [Which shares should I buy?]}, threshold: 0.3}",
    "json_schema": "{guard: json_schema, schema: {type: array}, fields: [content, reasoning]}",
}


def read(folder: Path, said: str) -> Snapshot:
    (folder / "p.yaml").write_text(POLICIES.replace("INPUT", f"[{said}]"))
    return read_folder(folder, None)


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_every_kind_is_made_as_it_is_written(kind: str, tmp_path: Path) -> None:
    guards = read(tmp_path, WRITTEN[kind]).deployments["chat"].guards

    assert [rule.name for rule in guards.input] == [kind, "secrets"]
    assert [rule.kind for rule in guards.input] == [kind, "secrets"]
    assert [rule.name for rule in guards.output] == ["json_schema"]
    assert guards.opaque
    assert guards.output[0].fields == frozenset({"content"})


def test_what_all_guards_have_in_common_is_read(tmp_path: Path) -> None:
    said = "{guard: sponge, name: slow, action: flag, mode: shadow, on_error: open, deadline: 2s"
    guards = read(tmp_path, f"{said}, roles: [user], message: No.}}").deployments["chat"].guards
    rule = guards.input[0]

    assert (rule.name, rule.action, rule.shadow, rule.on_error) == ("slow", "flag", True, "open")
    assert (rule.deadline_s, rule.roles, rule.message) == (2.0, frozenset({"user"}), "No.")


def test_what_is_said_otherwise_has_another_digest(tmp_path: Path) -> None:
    said = ("{guard: length, lines: 5}", "{guard: length, lines: 6}", "{guard: length, lines: 5}")
    digests = [read(tmp_path, each).deployments["chat"].guards.digest for each in said]

    assert digests[0] == digests[2] != digests[1]


@pytest.mark.parametrize(
    ("said", "problem"),
    [
        ("{guard: keywords}", "p.yaml:6:13: policies.public.input.0: "),
        ("{guard: keywords, patterns: ['(?=x)']}", "policies.public.input.0: "),
        ("{guard: pii, entities: [emial]}", "'emial' is no entity"),
        ("{guard: urls, allow: ['http://x']}", "policies.public.input.0: "),
        ("{guard: length}", "policies.public.input.0: "),
        ("{guard: json_schema, schema: {type: nothing}}", "policies.public.input.0: "),
        ("{guard: pie}", "policies.public.input.0"),
        ("{words: [x]}", "policies.public.input.0"),
        ("{guard: code, words: [x]}", "policies.public.input.0.words: is not known"),
        ("{guard: code, action: drop}", "must be block or mask or flag"),
    ],
)
def test_a_guard_that_is_written_wrongly_is_told(said: str, problem: str, tmp_path: Path) -> None:
    with pytest.raises(PolicyError) as refused:
        read(tmp_path, said)

    assert problem in str(refused.value)
