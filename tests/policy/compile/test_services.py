"""What guards that ask somebody else refer to, found; and that no secret of it can be seen."""

from __future__ import annotations

from pathlib import Path

from click.testing import CliRunner

from proxy.cli import main
from proxy.guards.services.judge import Judge, ResponseJudge
from proxy.guards.services.moderation import Moderation
from proxy.guards.services.webhook import Webhook
from proxy.policy.store import read_folder
from proxy.types.guard import AnyDetector

SECRET = "wh-Xyzzy-7"
POLICIES = """\
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


def ways(folder: Path) -> list[AnyDetector]:
    (folder / "p.yaml").write_text(POLICIES)
    environ = {"KEY": "sk-Xyzzy-7", "SECRET": SECRET}
    guards = read_folder(folder, environ).deployments["chat"].guards
    return [rule.detector for rule in (*guards.input, *guards.output)]


def test_guards_know_their_names_their_stages_and_whom_to_ask(tmp_path: Path) -> None:
    webhook, moderation, bias, rests = ways(tmp_path)

    assert isinstance(webhook, Webhook)
    assert (webhook.name, webhook.stage) == ("house", "input")
    assert webhook.secret.reveal() == SECRET
    assert isinstance(moderation, Moderation)
    assert moderation.upstream.base_url == "https://api.example.test"
    assert isinstance(bias, Judge)
    assert (bias.name, bias.stage, bias.deployment) == ("bias", "output", "chat")
    assert isinstance(rests, ResponseJudge)
    assert (rests.judge.name, rests.judge.check) == ("rests", "grounded")


def test_no_secret_shows_where_a_guard_is_printed(tmp_path: Path) -> None:
    assert "Xyzzy" not in repr(ways(tmp_path))


def test_no_secret_is_explained(tmp_path: Path) -> None:
    ways(tmp_path)
    text = ["explain", "--policies", str(tmp_path), "--key", "widget", "--deployment", "chat"]
    result = CliRunner().invoke(main, text, env={"KEY": "sk-Xyzzy-7", "SECRET": SECRET})

    assert "house" in result.output
    assert "Xyzzy" not in result.output
