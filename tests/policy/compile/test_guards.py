"""Guards in policy files: every kind, their stages and upstreams, and errors."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from proxy.cli import main
from proxy.guards.guard_kind import PromptDetectorFactory
from proxy.guards.kinds import KINDS
from proxy.guards.kinds.injection import load_rule_book
from proxy.guards.services.judge import Judge
from proxy.guards.services.moderation import Moderation
from proxy.guards.services.webhook import Webhook
from proxy.policy.decide.snapshot import Snapshot
from proxy.policy.files.source import PolicyError
from proxy.policy.store import read_folder
from proxy.types.guard import AnyDetector, PromptContext, is_detector
from tests.for_each import for_each
from tests.guards.networks import classifier

POLICIES = """\
upstreams:
  up: {dialect: openai, base_url: 'https://api.example.test'}
  other: {dialect: scale, base_url: 'https://api.example.test'}
policies:
  house: {input: [{guard: secrets}], opaque: allow}
  public:
    extends: house
    input: INPUT
    output: OUTPUT[{guard: json_schema, schema: {type: object}, action: flag}]
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
    "injection": "{guard: injection, threshold: 0.9}",
    "toxicity": "{guard: toxicity, threshold: 0.6}",
    "nsfw": "{guard: nsfw}",
    "topic": "{guard: topic, banned: {stocks: [Which shares should I buy?]}, threshold: 0.3}",
    "language": "{guard: language, allowed: [en, de], threshold: 0.7}",
    "onnx": "{guard: onnx, folder: FOLDER, labels: {rival: 0.9}}",
    "copyright": "{guard: copyright, texts: [a b c d e], texts_from: [song.txt], words: 5}",
    "system_prompt": "{guard: system_prompt, words: 10}",
    "grounded": "{guard: grounded, threshold: 0.6}",
    "relevant": "{guard: relevant, threshold: 0.9}",
    "json_schema": "{guard: json_schema, schema: {type: array}, fields: [content, reasoning]}",
    "economics": "{guard: economics, max_cost_usd: 0.5}",
    "judge": "{guard: judge, deployment: chat, criteria: No refunds., threshold: 0.7}",
    "policy_violation": "{guard: policy_violation, deployment: chat, policy: No refunds.}",
    "bias": "{guard: bias, deployment: chat, longest: 1000, action: mask}",
    "webhook": "{guard: webhook, url: 'https://g.test/x', secret: '${S}', kinds: [name]}",
    "presidio": "{guard: presidio, url: 'http://p.test:3000/', entities: [PERSON], language: de}",
    "moderation": "{guard: moderation, upstream: up, model: omni, categories: {self-harm: 0.2}}",
}


def test_guard_data_is_loaded_with_the_policy(tmp_path: Path) -> None:
    load_rule_book.cache_clear()

    read(tmp_path, "{guard: injection, action: block}")

    assert load_rule_book.cache_info().currsize == 1


SONG = "When the river bends below the mill and the evening is slow to go"


def read(folder: Path, texts: str, *, answers: bool = False) -> Snapshot:
    text = POLICIES.replace("INPUT", "[{guard: code}]" if answers else f"[{texts}]")
    text = text.replace("OUTPUT[", f"[{texts}, " if answers else "[")
    if "FOLDER" in text:
        neighbor = folder.parent / f"{folder.name}-model"
        model = classifier(neighbor, {"?": (1.0, 2.0)}, ["a", "rival"])
        text = text.replace("FOLDER", model)
    (folder / "p.yaml").write_text(text)
    (folder / "song.txt").write_text(SONG)
    return read_folder(folder, None)


@for_each("kind", sorted(KINDS))
def test_every_kind_is_compiled_from_its_config(kind: str, tmp_path: Path) -> None:
    answers = KINDS[kind].is_output_only
    guards = read(tmp_path, WRITTEN[kind], answers=answers).deployments["chat"].guards

    rules = guards.output if answers else guards.input
    first_item = guards.cost_caps[0] if guards.cost_caps else rules[0]
    last_item = guards.output[-1]
    assert (first_item.name, first_item.kind) == (kind, kind)
    assert guards.input[-1].name == "secrets"
    assert guards.allows_opaque
    assert (last_item.name, last_item.fields) == ("json_schema", frozenset({"content"}))


def test_common_guard_keys_are_read(tmp_path: Path) -> None:
    text = "{guard: sponge, name: slow, action: flag, mode: shadow, on_error: open, deadline: 2s"
    guards = read(tmp_path, f"{text}, roles: [user], message: No.}}").deployments["chat"].guards
    rule = guards.input[0]

    assert (rule.name, rule.action, rule.shadow, rule.on_error) == ("slow", "flag", True, "open")
    assert (rule.deadline_s, rule.roles, rule.message) == (2.0, frozenset({"user"}), "No.")


def test_injection_skips_application_text_by_default(tmp_path: Path) -> None:
    loaded, second = (
        read(tmp_path, f"{{guard: injection{roles}}}").deployments["chat"].guards.input[0]
        for roles in ("", ", roles: [system, user]")
    )

    assert (loaded.roles, loaded.excluded_roles) == (None, frozenset({"system", "developer"}))
    assert (second.roles, second.excluded_roles) == (frozenset({"system", "user"}), frozenset())
    assert not loaded.applies_to("developer", "content")
    assert loaded.applies_to(None, "prompt")


def test_changed_guard_changes_the_digest(tmp_path: Path) -> None:
    text = ("{guard: length, lines: 5}", "{guard: length, lines: 6}", "{guard: length, lines: 5}")
    digests = [read(tmp_path, item).deployments["chat"].guards.digest for item in text]

    assert digests[0] == digests[2] != digests[1]


@for_each(
    ("text", "problem"),
    [
        ("{guard: urls, allow: ['http://x']}", "policies.public.input[0]: "),
        ("{guard: json_schema, schema: {type: nothing}}", "policies.public.input[0]: "),
        ("{guard: language, allowed: [eng]}", "'eng' is not a supported language"),
        ("{guard: copyright}", "must have texts or texts_from"),
        ("{guard: copyright, texts_from: [none.txt]}", '"none.txt" cannot be read: No such file'),
        ("{guard: copyright, texts_from: [../x.txt]}", "must be a relative path inside"),
        ("{guard: keywords, words_from: none.txt}", '"none.txt" cannot be read'),
        ("{guard: grounded}", "grounded is allowed under output"),
        ("{guard: system_prompt}", "system_prompt is allowed under output"),
    ],
)
def test_invalid_guard_is_reported(text: str, problem: str, tmp_path: Path) -> None:
    with pytest.raises(PolicyError) as refused:
        read(tmp_path, text)

    assert problem in str(refused.value)


def test_word_files_are_part_of_the_revision(tmp_path: Path) -> None:
    text = "{guard: keywords, words_from: words.txt}, {guard: copyright, texts_from: [song.txt]}"
    result = []
    for words in ("\ufeff# rivals\n\nhippo\nlion\n", "hippo\n"):
        (tmp_path / "words.txt").write_text(words)
        (tmp_path / "song.txt").write_text("it is overwritten when it is read")
        snapshot = read(tmp_path, text.replace("]}", "], words: 5}"))
        guards = snapshot.deployments["chat"].guards
        look = guards.input[0].detector
        assert is_detector(look)
        result.append((len(look.find("hippo, lion, rival")), guards.digest, snapshot.revision))

    assert [item[0] for item in result] == [2, 1]
    assert result[0][1] != result[1][1]
    assert result[0][2] != result[1][2]


@for_each("group", ["(", "(?:", "(?i:", "(a|"])
def test_nested_pattern_is_accepted_or_refused_with_its_place(group: str, tmp_path: Path) -> None:
    """No depth that fits into a pattern of 500 characters overflows the stack."""
    deepest = (500 - 1) // (len(group) + 1)
    for depth in sorted({1, 64, 65, min(244, deepest), deepest}):
        pattern = group * depth + "b" + ")" * depth
        tags = f"tags: {{team: {{pattern: '{pattern}'}}}}\n"
        (tmp_path / "tags.yaml").write_text(tags)
        try:
            read(tmp_path, f"{{guard: keywords, patterns: ['{pattern}']}}")
        except PolicyError as error:
            refused = str(error)
            assert re.match(r"p\.yaml:\d+:\d+: policies\.public\.input\[0\]: ", refused), refused
            assert "nested more than 64 deep" in refused
            assert depth > 64
        else:
            assert depth <= 64


SECRET = "wh-Xyzzy-7"
SERVICES_POLICIES = """\
upstreams: {openai: {dialect: openai, base_url: 'https://api.example.test', api_key: '${KEY}'}}
keys: {widget: {sha256: AAAA, deployments: [chat]}}
deployments: {chat: {targets: [{upstream: openai, model: m}], policy: public}}
policies:
  public:
    input:
      - {guard: webhook, name: house, url: 'https://guard.example.test', secret: '${SECRET}'}
      - {guard: moderation, upstream: openai}
    output:
      - {guard: bias, deployment: chat}
      - {guard: judge, name: rests, deployment: chat, check: grounded}
""".replace("AAAA", "0" * 64)


def guards_in(folder: Path) -> list[AnyDetector]:
    (folder / "p.yaml").write_text(SERVICES_POLICIES)
    environ = {"KEY": "sk-Xyzzy-7", "SECRET": SECRET}
    guards = read_folder(folder, environ).deployments["chat"].guards
    return [rule.detector for rule in (*guards.input, *guards.output)]


def test_guards_have_their_names_stages_and_upstreams(tmp_path: Path) -> None:
    webhook, moderation, bias, rests = guards_in(tmp_path)

    assert isinstance(webhook, Webhook)
    assert (webhook.name, webhook.stage) == ("house", "input")
    assert webhook.secret.reveal() == SECRET
    assert isinstance(moderation, Moderation)
    assert moderation.upstream.base_url == "https://api.example.test"
    assert isinstance(bias, Judge)
    assert (bias.name, bias.stage, bias.model_deployment) == ("bias", "output", "chat")
    assert isinstance(rests, PromptDetectorFactory)
    assert rests.model_deployment == "chat"
    judge = rests.for_prompt(PromptContext(context="Rooms are quiet."))
    assert isinstance(judge, Judge)
    assert (judge.name, judge.check) == ("rests", "grounded")


def test_repr_of_guard_hides_secrets(tmp_path: Path) -> None:
    assert "Xyzzy" not in repr(guards_in(tmp_path))


def test_explanation_hides_secrets(tmp_path: Path) -> None:
    guards_in(tmp_path)
    text = ["explain", "--policies", str(tmp_path), "--key", "widget", "--deployment", "chat"]
    result = CliRunner().invoke(main, text, env={"KEY": "sk-Xyzzy-7", "SECRET": SECRET})

    assert "house" in result.output
    assert "Xyzzy" not in result.output
