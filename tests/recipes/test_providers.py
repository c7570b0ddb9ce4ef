"""The recipe for each provider: where a chat goes, with which credential, at whose prices."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from proxy.dialects import DIALECTS
from proxy.dialects.ways import beside
from proxy.policy.decide.snapshot import Snapshot
from proxy.policy.store import read_folder
from proxy.types import Target

PAGE = (Path(__file__).parents[2] / "docs" / "cookbook.md").read_text()
BEDROCK = "https://bedrock-runtime.eu-central-1.amazonaws.com/openai/v1"
GEMINI = "https://generativelanguage.googleapis.com/v1beta/openai"
BASES = {
    "bedrock": (BEDROCK, "aws"),
    "gemini": (GEMINI, "google"),
    "mistral": ("https://api.mistral.ai/v1", "mistral"),
    "groq": ("https://api.groq.com/openai/v1", "groq"),
    "xai": ("https://api.x.ai/v1", "x-ai"),
    "deepseek": ("https://api.deepseek.com/v1", "deepseek"),
    "together": ("https://api.together.xyz/v1", "together"),
    "openrouter": ("https://openrouter.ai/api/v1", "openrouter"),
    "huggingface": ("https://router.huggingface.co/v1", "huggingface"),
    "fireworks": ("https://api.fireworks.ai/inference/v1", "fireworks"),
    "sglang": ("http://127.0.0.1:30000/v1", "sglang"),
    "llamacpp": ("http://127.0.0.1:8080/v1", "llamacpp"),
    "ollama": ("http://127.0.0.1:11434/v1", "ollama"),
}
AT_HOME = ("sglang", "llamacpp", "ollama")


@pytest.fixture(scope="module")
def snapshot(tmp_path_factory: pytest.TempPathFactory) -> Snapshot:
    section = PAGE.partition("## Other providers\n")[2].partition("\n## ")[0]
    [text] = re.findall(r"```yaml\n(.*?)```", section, re.DOTALL)
    folder = tmp_path_factory.mktemp("providers")
    (folder / "policies.yaml").write_text(text)
    return read_folder(folder, dict.fromkeys(re.findall(r"\$\{(\w+)\}", text), "sk-1"))


@pytest.fixture(scope="module")
def targets(snapshot: Snapshot) -> dict[str, Target]:
    every = (each for found in snapshot.deployments.values() for each in found.routes.targets)
    return {target.upstream.name: target for target in every}


def test_each_provider_of_the_page_is_in_this_table(targets: dict[str, Target]) -> None:
    assert targets.keys() == BASES.keys()


@pytest.mark.parametrize("name", BASES)
def test_a_chat_goes_to_its_address_with_its_credential(
    name: str, targets: dict[str, Target]
) -> None:
    upstream = targets[name].upstream
    dialect = DIALECTS[upstream.dialect]

    url, headers = beside(upstream, dialect, dialect.server.paths["chat"])

    assert (url, upstream.provider) == (f"{BASES[name][0]}/chat/completions", BASES[name][1])
    assert headers.get("authorization") == (None if name in AT_HOME else "Bearer sk-1")


@pytest.mark.parametrize("name", BASES)
def test_what_its_tokens_cost_is_known(name: str, targets: dict[str, Target]) -> None:
    assert targets[name].lack_of_price() is None
