"""Adds the guard of CONTRIBUTING, one file and one line, to a copy of the package."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest

from tests.conftest import policies_for
from tests.recipes.copies import TOP, copied

CASES = """
tests:
  It blocks what is shouted, and lets pass what is said:
    given: {key: support-widget, deployment: support-chat,
      body: {model: smol, messages: [{role: user, content: I WANT MY MONEY}]}}
    expect: {status: 400, guards: {input.shouting: blocked}}
"""


def write(folder: Path, guard: str) -> None:
    folder.mkdir()
    text = f"{policies_for('http://localhost:1')}\npolicies:\n  default: {{input: [{guard}]}}\n"
    (folder / "policies.yaml").write_text(text)


@pytest.mark.timeout(300)
def test_guard_is_added_by_one_file_and_one_line(tmp_path: Path) -> None:
    copy = copied(tmp_path / "copy", "A guard", "shouting")
    file, line = re.findall(r"```python\n(.*?)```", copy.recipe, re.DOTALL)
    (copy.at / "proxy/guards/kinds/shouting.py").write_text(dedent(file))
    copy.add_item("proxy/guards/kinds/__init__.py", "KINDS", line.strip().removesuffix(","))
    right, wrong = str(tmp_path / "right"), str(tmp_path / "wrong")
    write(tmp_path / "right", "{guard: shouting, capitals: 0.5}")
    write(tmp_path / "wrong", "{guard: shouting, capitals: 2, volume: 1}, {guard: shoutin}")
    (tmp_path / "right" / "tests").mkdir()
    (tmp_path / "right" / "tests" / "cases.yaml").write_text(CASES)

    definitions = json.loads(copy.run("proxy", "schema"))["$defs"]
    copy.run("tools.docs")
    call = ("--key", "support-widget", "--deployment", "support-chat")
    explained = copy.run("proxy", "explain", "--policies", right, *call)
    copy.run("proxy", "test", right)
    check = [sys.executable, "-m", "proxy", "check", wrong]
    checked = subprocess.run(check, cwd=copy.at, capture_output=True, text=True, check=False)

    shipped = json.loads((TOP / "policies" / "schema.json").read_text())["$defs"]
    definition, page = definitions.pop("ShoutingConfig"), copy.read("docs/guards.md")
    assert definition["description"] == "Texts that are mostly in capitals."
    assert definition["properties"]["capitals"]["maximum"] == 1
    assert definitions.keys() == shipped.keys()
    assert "### `shouting`\n\nTexts that are mostly in capitals. Needs the whole text." in page
    assert "- `capitals` (default `0.7`): Maximum share of capitals among the letters." in page
    assert "| `shouting_detector` | `shouting` | `shouting` |" in page
    assert "input shouting: block" in explained
    problems = checked.stdout + checked.stderr
    assert checked.returncode != 0
    assert "policies.default.input[0].capitals: must be less than or equal to 1" in problems
    assert "policies.default.input[0].volume: unknown key" in problems
    assert 'guard "shoutin" does not exist. Did you mean "shouting"?' in problems
