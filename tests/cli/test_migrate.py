"""`headrace migrate` writes a folder that is good, serves, and tells what it has not."""

from __future__ import annotations

from pathlib import Path

import aiohttp
import pytest
import yaml
from click.testing import CliRunner, Result

from proxy.cli import main
from tests.conftest import running_proxy
from tests.doubles import ScriptedUpstream, answer, chat
from tests.for_each import for_each

EXAMPLE = Path(__file__).with_name("litellm.yaml")


def migrate(config: Path, folder: Path) -> Result:
    return CliRunner().invoke(main, ["migrate", "litellm", str(config), str(folder)])


def test_the_example_passes_check_and_holds_no_secret(tmp_path: Path) -> None:
    done = migrate(EXAMPLE, tmp_path / "p")
    checked = CliRunner().invoke(main, ["check", "--no-secrets", str(tmp_path / "p")])

    assert (done.exit_code, checked.exit_code) == (0, 0), done.output + checked.output
    written = "".join(file.read_text() for file in (tmp_path / "p").iterdir())
    assert "sk-in-the-file" not in written + done.output
    assert done.stderr.startswith("hr-")
    assert done.stderr.strip() not in written


@pytest.mark.sockets
async def test_an_application_of_the_configuration_is_served_by_the_folder(
    upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    config, folder = tmp_path / "config.yaml", tmp_path / "p"
    params = {"model": "hosted_vllm/llama", "api_base": f"{upstream.url}/v1", "max_retries": 1}
    config.write_text(
        yaml.safe_dump({"model_list": [{"model_name": "Llama", "litellm_params": params}]})
    )
    key = migrate(config, folder).stderr.strip()
    files = "\n".join(file.read_text() for file in sorted(folder.iterdir()))
    upstream.answer_with(answer(chat()))

    async with (
        running_proxy(tmp_path / "served", files) as proxy,
        aiohttp.ClientSession(
            base_url=proxy.url, headers={"authorization": f"Bearer {key}"}
        ) as client,
    ):
        for name in ("llama", "Llama"):
            body = {"model": name, "messages": [{"role": "user", "content": "Hi"}]}
            async with client.post("/v1/chat/completions", json=body) as response:
                assert response.status == 200


def test_all_that_does_not_come_over_is_noted_with_its_place(tmp_path: Path) -> None:
    notes = migrate(EXAMPLE, tmp_path / "p").stdout.splitlines()
    told = next(place for place, line in enumerate(notes) if line.startswith("Created "))
    places = {line.partition(":")[0] for line in notes[:told]}

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
    assert "2 targets skipped (see above)" in "\n".join(notes)
    assert "export HEADRACE_REDIS_URL=" in "\n".join(notes)
    assert "export OPENAI_API_KEY=...  # the value of model_list[1]" in "\n".join(notes)
    assert all(f"# - {line}" in (tmp_path / "p/deployments.yaml").read_text() for line in notes[:5])


@for_each("text", ["", "[]", "a: [", "\x00", "model_list: []"])
def test_a_file_that_says_no_model_writes_nothing(text: str, tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text(text)

    done = migrate(tmp_path / "c.yaml", tmp_path / "p")

    assert done.exit_code == 1
    assert done.stderr.startswith("Error: ")
    assert not (tmp_path / "p").exists()


def test_a_folder_that_has_something_is_left_alone(tmp_path: Path) -> None:
    done = migrate(EXAMPLE, Path(__file__).parent)

    assert (done.exit_code, "is not empty" in done.stderr) == (1, True)
