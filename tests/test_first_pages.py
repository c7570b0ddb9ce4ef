"""The README and other first pages show real output."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from proxy.cli import main
from proxy.cli.new_folder import INIT_MESSAGE, write_starter_folder
from tests.for_each import for_each

TOP = Path(__file__).parents[1]
README = (TOP / "README.md").read_text()
FIRST_VALUE = (TOP / "docs" / "first-folder.md").read_text()
COOKBOOK = (TOP / "docs" / "cookbook.md").read_text()
MIGRATING = (TOP / "docs" / "migrating.md").read_text()
OTHER_VALUES = ("BEDROCK", "GEMINI", "MISTRAL", "GROQ", "XAI", "DEEPSEEK", "TOGETHER", "OPENROUTER")
PROVIDERS = ("OPENAI", "AZURE_OPENAI", "ANTHROPIC", "FIREWORKS", *OTHER_VALUES)
SECRETS = {"HF_TOKEN": "hf-1", **{f"{name}_API_KEY": "sk-1" for name in PROVIDERS}}
RECIPES = dict(re.findall(r"^## (.*?)\n(.*?)(?=^## |\Z)", COOKBOOK, re.DOTALL | re.MULTILINE))


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", page, re.DOTALL)


def headrace(*arguments: str) -> str:
    return CliRunner().invoke(main, arguments, env=SECRETS).output


@pytest.fixture
def readme_folder(tmp_path: Path) -> Path:
    (policy,) = blocks(README, "yaml")
    (tmp_path / "policies.yaml").write_text(policy)
    return tmp_path


def test_readme_is_at_most_two_screens() -> None:
    order = (
        "make run",
        "make test",
        "cost.png",
        "```yaml",
        "curl",
        "```python",
        "headrace explain",
        "## Base URLs",
        "## Comparison",
        "## Documentation",
    )

    assert [README.index(part) for part in order] == sorted(README.index(part) for part in order)
    assert len(README[: README.index("## Base URLs")].splitlines()) <= 100
    assert len(README.splitlines()) < 180


def test_readme_policy_is_short_and_has_no_warnings(readme_folder: Path) -> None:
    assert len((readme_folder / "policies.yaml").read_text().splitlines()) <= 20
    output = headrace("check", str(readme_folder), "--strict")

    assert ": valid" in output
    assert "warning" not in output


def test_readme_shows_the_output_of_explain(readme_folder: Path) -> None:
    call = ("--key", "widget", "--deployment", "support-chat")

    assert headrace("explain", "--policies", str(readme_folder), *call) in README


def test_readme_snippet_compiles() -> None:
    (snippet,) = blocks(README, "python")

    compile(snippet, "README.md", "exec")


def test_first_folder_shows_real_outputs(tmp_path: Path) -> None:
    upstreams, target, priced = blocks(FIRST_VALUE, "yaml")
    folder = tmp_path / "my-policies"
    write_starter_folder(folder)
    (folder / "upstreams.yaml").write_text(upstreams)
    deployments, tests = folder / "deployments.yaml", folder / "tests" / "calls.yaml"
    written = deployments.read_text()
    value_before = "    targets:\n      - {upstream: openai, model: gpt-4o-mini}\n"
    assert value_before in written

    deployments.write_text(written.replace(value_before, target))
    unpriced = headrace("check", str(folder))
    deployments.write_text(written.replace(value_before, "    targets:\n" + priced))
    good, failed = headrace("check", str(folder)), headrace("test", str(folder))
    mended = tests.read_text().replace("openai/gpt-4o-mini", "openai/smol")
    tests.write_text(mended.replace("0.000045", "0.000002"))

    assert INIT_MESSAGE.format(folder="my-policies", variable="OPENAI_API_KEY") in FIRST_VALUE
    assert unpriced.splitlines()[0] in FIRST_VALUE
    assert ": valid" in good
    assert failed in FIRST_VALUE
    assert "2 passed, 0 failed" in headrace("test", str(folder))

    request = tmp_path / "request.json"
    request.write_text(
        '{"model": "support-chat", "max_tokens": 20, "messages": [{"role": "user"}]}'
    )
    explained = headrace("explain", "--policies", str(folder), "--key", "widget", str(request))
    lines = (
        FIRST_VALUE.partition("policy revision ")[2].partition("\n├─ limits")[0].splitlines()[1:]
    )
    assert "\n".join(lines) in explained


@for_each("title", RECIPES)
def test_every_recipe_loads_and_its_cases_pass(title: str, tmp_path: Path) -> None:
    policies, *cases = blocks(RECIPES[title], "yaml")
    (tmp_path / "policies.yaml").write_text(policies)
    (tmp_path / "tests").mkdir()
    for number, case in enumerate(cases):
        (tmp_path / "tests" / f"{number}.yaml").write_text(case)

    checked = headrace("check", str(tmp_path), "--strict")
    tested = headrace("test", str(tmp_path)) if cases else ", 0 failed"

    assert ": valid" in checked
    assert "warning" not in checked
    assert ", 0 failed" in tested, tested


def test_company_folder_works_without_accounts(tmp_path: Path) -> None:
    recipe = RECIPES["A company folder"]
    (policy, _), (upstreams,) = blocks(recipe, "yaml"), blocks(recipe, "yaml without accounts")
    local = policy.replace("upstream: openai", "upstream: local")
    _, deployments, remainder = local.partition("deployments:\n")

    (tmp_path / "policies.yaml").write_text(f"{upstreams}{deployments}{remainder}")

    assert "warning" not in headrace("check", str(tmp_path), "--strict")


def test_migrating_page_shows_output_of_migrate(tmp_path: Path) -> None:
    (config,) = blocks(MIGRATING, "yaml config.yaml")
    (deployment,) = blocks(MIGRATING, "yaml")
    (tmp_path / "config.yaml").write_text(config)

    headrace("migrate", "litellm", str(tmp_path / "config.yaml"), str(tmp_path / "policies"))
    written = yaml.safe_load((tmp_path / "policies" / "deployments.yaml").read_text())

    assert yaml.safe_load(deployment).items() <= written["deployments"].items()


def test_glossary_is_short_sorted_and_names_existing_code() -> None:
    lines = (TOP / "docs" / "glossary.md").read_text().splitlines()
    rows = [line.strip("| ").split(" | ") for line in lines if line.startswith("| ")][1:]
    code = "".join(file.read_text() for file in (TOP / "proxy").rglob("*.py"))

    assert len(lines) <= 60
    assert [word for word, *_ in rows] == sorted(word for word, *_ in rows)
    for word, _, places in rows:
        for place in re.findall(r"`([^`]+)`", places):
            context = (TOP / place).exists() if "/" in place else f"class {place}" in code
            assert context, f"{word}: {place}"
