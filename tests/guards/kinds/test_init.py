"""A guard is one file and one line: the one of CONTRIBUTING is added to a copy of the package."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest

from tests.conftest import world

TOP = Path(__file__).parents[3]
TABLE = Path("proxy/guards/kinds/__init__.py")
CASES = """
tests:
  It blocks what is shouted, and lets pass what is said:
    given: {key: support-widget, deployment: support-chat,
      body: {model: smol, messages: [{role: user, content: I WANT MY MONEY}]}}
    expect: {status: 400, guards: {input.shouting: blocked}}
"""
RECIPE = re.search(r"### A guard\n(.*?)\n###", (TOP / "CONTRIBUTING.md").read_text(), re.DOTALL)
FOLLOWS = """
from pathlib import Path
from proxy.telemetry.catalog.labels import GUARD
from proxy.policy.catalog import list_labels
from proxy.policy.store import read_folder
from tools import guards

print(*guards.kinds(), *guards.detectors(), sep="\\n")
print(sorted(GUARD.allowed(list_labels(read_folder(Path("policies"), None)))))
"""


def blocks() -> list[str]:
    """Return the blocks of Python in the recipe: the file, and the line."""
    assert RECIPE is not None
    return [dedent(block) for block in re.findall(r"```python\n(.*?)```", RECIPE[1], re.DOTALL)]


def add(copy: Path) -> None:
    """Add the guard of the recipe to a copy of the package, as the recipe says."""
    file, line = blocks()
    assert line.strip() == '"shouting": "proxy.guards.kinds.shouting:KIND",'
    (copy / "proxy/guards/kinds/shouting.py").write_text(file)
    table = (copy / TABLE).read_text()
    table = table.replace('    "sponge": ', f'    {line.strip()}\n    "sponge": ', 1)
    (copy / TABLE).write_text(table)


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the package that has the guard, beside policies that have one of it."""
    copy = tmp_path_factory.mktemp("copy")
    shutil.copytree(TOP / "proxy", copy / "proxy")
    (copy / "tools").symlink_to(TOP / "tools")
    add(copy)
    policies(copy / "policies", "{guard: shouting, capitals: 0.5}")
    (copy / "policies" / "tests").mkdir()
    (copy / "policies" / "tests" / "cases.yaml").write_text(CASES)
    return copy


def policies(folder: Path, guard: str) -> None:
    folder.mkdir()
    text = f"{world('http://localhost:1')}\npolicies:\n  default: {{input: [{guard}]}}\n"
    (folder / "policies.yaml").write_text(text)


def run(copy: Path, *arguments: str) -> tuple[int, str]:
    """Run Python in a copy; return its status and what it prints."""
    environ = {**os.environ, "PYTHONPATH": str(copy), "UPSTREAM_KEY": "x"}
    process = subprocess.run(
        [sys.executable, *arguments],
        cwd=copy,
        env=environ,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    return process.returncode, process.stdout + process.stderr


def test_the_schema_follows(copy: Path) -> None:
    code, out = run(copy, "-m", "proxy", "schema")
    shipped = json.loads((TOP / "policies" / "schema.json").read_text())

    assert code == 0, out
    definitions = json.loads(out)["$defs"]
    definition = definitions.pop("ShoutingConfig")
    assert definition["description"] == "Texts that are mostly in capitals."
    assert definition["properties"]["capitals"]["maximum"] == 1
    assert definition["properties"]["guard"]["const"] == "shouting"
    assert definition["properties"].keys() > shipped["$defs"]["CodeConfig"]["properties"].keys()
    assert definitions.keys() == shipped["$defs"].keys()


def test_the_page_and_the_labels_of_metrics_follow(copy: Path) -> None:
    code, out = run(copy, "-c", FOLLOWS)

    assert code == 0, out
    assert "### `shouting`\n\nTexts that are mostly in capitals. Needs the whole text." in out
    assert "- `capitals` (default `0.7`): Maximum share of capitals among the letters." in out
    assert "| `shouting_detector` | `shouting` | `shouting` |" in out
    assert "[('shouting', 'input')]" in out


def test_check_follows(copy: Path) -> None:
    policies(copy / "wrong", "{guard: shouting, capitals: 2, volume: 1}")
    policies(copy / "near", "{guard: shoutin}")

    assert run(copy, "-m", "proxy", "check", "policies")[0] == 0
    code, out = run(copy, "-m", "proxy", "check", "wrong")
    assert code != 0
    assert "policies.default.input[0].capitals: must be less than or equal to 1" in out
    assert "policies.default.input[0].volume: unknown key" in out
    output = run(copy, "-m", "proxy", "check", "near")[1]
    assert 'guard "shoutin" does not exist. Did you mean "shouting"?' in output


def test_explain_follows(copy: Path) -> None:
    call = ("--key", "support-widget", "--deployment", "support-chat")
    code, out = run(copy, "-m", "proxy", "explain", "--policies", "policies", *call)

    assert code == 0, out
    assert "input shouting: block" in out


def test_it_guards(copy: Path) -> None:
    code, out = run(copy, "-m", "proxy", "test", "policies")

    assert code == 0, out
