"""`headrace init` and `headrace migrate` write valid folders with a working key."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from proxy.cli import main
from proxy.cli.new_folder import write_starter_folder
from proxy.types.providers import PROVIDERS
from tests.conftest import running_proxy
from tests.doubles import ScriptedUpstream, chat, respond
from tests.for_each import for_each

SECRET = {"OPENAI_API_KEY": "sk-upstream-secret"}
EXAMPLE = Path(__file__).with_name("litellm.yaml")


def headrace(*arguments: str, **environ: str) -> Result:
    return CliRunner().invoke(main, arguments, env=environ)


def migrate(config: Path, folder: Path) -> Result:
    return headrace("migrate", "litellm", str(config), str(folder))


def test_new_folder_passes_check_and_test(tmp_path: Path) -> None:
    folder = str(tmp_path / "new" / "policies")

    assert headrace("init", folder).exit_code == 0
    checked = headrace("check", folder, "--strict", **SECRET)
    tested = headrace("test", folder, "--fail-under", "100")

    assert (checked.exit_code, tested.exit_code) == (0, 0), checked.output + tested.output
    assert "2 passed, 0 failed" in tested.output


MODELS = {
    "anthropic": "claude-sonnet-4-5",
    "cerebras": "gpt-oss-120b",
    "cohere": "command-r",
    "deepseek": "deepseek-chat",
    "fireworks": "accounts/fireworks/models/gpt-oss-120b",
    "google": "gemini-2.5-flash",
    "groq": "llama-3.1-8b-instant",
    "mistral": "codestral-latest",
    "openai": "gpt-5",
    "perplexity": "llama-3.1-sonar-large-128k-online",
    "together": "MiniMaxAI/MiniMax-M3",
    "x-ai": "grok-3",
}


@for_each("provider", [name for name, provider in PROVIDERS.items() if provider.is_priced])
def test_new_folder_is_valid_for_each_provider(provider: str, tmp_path: Path) -> None:
    preset, folder = PROVIDERS[provider], str(tmp_path / provider)
    if preset.base_url is None:
        assert headrace("init", folder, "--provider", provider).exit_code == 2
        return

    result = headrace("init", folder, "--provider", provider, "--model", MODELS[provider])
    checked = headrace("check", folder, "--strict", **{preset.key_variable: "sk-upstream-secret"})
    tested = headrace("test", folder, "--fail-under", "100")

    assert f"export {preset.key_variable}=..." in result.output
    assert [item.exit_code for item in (result, checked, tested)] == [0, 0, 0], (
        result.output + checked.output + tested.output
    )


def test_provider_requires_a_model(tmp_path: Path) -> None:
    result = headrace("init", str(tmp_path / "new"), "--provider", "mistral")

    assert (result.exit_code, "--model is required for mistral" in result.stderr) == (2, True)
    assert not (tmp_path / "new").exists()


def test_secret_is_printed_once(tmp_path: Path) -> None:
    result = headrace("init", str(tmp_path))

    secret = result.stderr.strip()
    assert secret.startswith("hr-")
    assert secret not in result.stdout
    written = "".join(file.read_text() for file in tmp_path.rglob("*.yaml"))
    assert secret not in written
    assert hashlib.sha256(secret.encode()).hexdigest() in written


@pytest.mark.parametrize("name", ["notes.txt", ".hidden", "tests"])
def test_non_empty_folder_is_not_changed(name: str, tmp_path: Path) -> None:
    (tmp_path / name).mkdir()

    for result in (headrace("init", str(tmp_path)), migrate(EXAMPLE, tmp_path)):
        assert result.exit_code == 1
        assert "is not empty; choose a new or empty folder" in result.stderr
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_write_error_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    result = headrace("init", str(tmp_path / "file" / "below"))

    assert result.exit_code == 1
    assert result.stderr == f"Error: {tmp_path}/file/below: Not a directory\n"


async def test_generated_key_works(upstream: ScriptedUpstream, tmp_path: Path) -> None:
    folder = tmp_path / "policies"
    key = write_starter_folder(folder)
    upstreams, policies = folder / "upstreams.yaml", folder / "policies.yaml"
    text = upstreams.read_text().replace("OPENAI_API_KEY", "UPSTREAM_KEY")
    upstreams.write_text(text.replace("https://api.openai.com", upstream.url))
    upstream.answer_with(respond(chat("On its way.")))

    async with running_proxy(folder, policies.read_text()) as proxy:
        reply = await proxy.chat({"authorization": f"Bearer {key}"}, model="support-chat")

    assert reply.json["choices"][0]["message"]["content"] == "On its way."
    assert upstream.requests[0].json["model"] == "gpt-4o-mini"
    assert upstream.requests[0].headers["authorization"] == "Bearer sk-upstream-secret"


def test_migrated_example_passes_check(tmp_path: Path) -> None:
    result = migrate(EXAMPLE, tmp_path / "p")
    checked = CliRunner().invoke(main, ["check", "--no-secrets", str(tmp_path / "p")])

    assert (result.exit_code, checked.exit_code) == (0, 0), result.output + checked.output
    written = "".join(file.read_text() for file in (tmp_path / "p").iterdir())
    assert "sk-in-the-file" not in written + result.output
    assert result.stderr.startswith("hr-")
    assert result.stderr.strip() not in written


@pytest.mark.sockets
async def test_migrated_folder_serves_calls(upstream: ScriptedUpstream, tmp_path: Path) -> None:
    config, folder = tmp_path / "config.yaml", tmp_path / "p"
    params = {"model": "hosted_vllm/llama", "api_base": f"{upstream.url}/v1", "max_retries": 1}
    config.write_text(
        yaml.safe_dump({"model_list": [{"model_name": "Llama", "litellm_params": params}]})
    )
    key = migrate(config, folder).stderr.strip()
    files = "\n".join(file.read_text() for file in sorted(folder.iterdir()))
    upstream.answer_with(respond(chat()))

    async with running_proxy(tmp_path / "served", files) as proxy:
        for name in ("llama", "Llama"):
            reply = await proxy.chat({"authorization": f"Bearer {key}"}, model=name)
            assert reply.status == 200


def test_unmigrated_settings_are_noted(tmp_path: Path) -> None:
    notes = migrate(EXAMPLE, tmp_path / "p").stdout.splitlines()
    count = next(place for place, line in enumerate(notes) if line.startswith("Created "))
    places = {line.partition(":")[0] for line in notes[:count]}

    assert places == {
        "model_list[0].litellm_params.api_version",
        "model_list[0].litellm_params.rpm",
        "model_list[1].litellm_params.api_key",
        "model_list[3].litellm_params.api_key",
        "model_list[4]",
        "model_list[5].litellm_params.model",
        "litellm_settings.cache_params.host",
        "litellm_settings.cache_params.type",
        "litellm_settings.callbacks",
        "litellm_settings.context_window_fallbacks",
        "litellm_settings.drop_params",
        "litellm_settings.max_budget",
        "general_settings.database_url",
        "general_settings.master_key",
    }
    assert "2 targets not converted (see above)" in "\n".join(notes)
    assert "export HEADRACE_REDIS_URL=" in "\n".join(notes)
    assert "export OPENAI_API_KEY=...  # the value of model_list[1]" in "\n".join(notes)
    assert all(f"# - {line}" in (tmp_path / "p/deployments.yaml").read_text() for line in notes[:5])


@for_each("text", ["", "[]", "a: [", "\x00", "model_list: []"])
def test_file_without_models_writes_nothing(text: str, tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text(text)

    result = migrate(tmp_path / "c.yaml", tmp_path / "p")

    assert result.exit_code == 1
    assert result.stderr.startswith("Error: ")
    assert not (tmp_path / "p").exists()
