"""The recipe for a dialect, followed in a copy: all that is not its own file follows from it."""

from __future__ import annotations

import json
from pathlib import Path

from tests.recipes.copies import copied

UPSTREAMS = """
upstreams:
  acme: {dialect: acme, base_url: 'https://acme.test'}
deployments:
  support-chat: {targets: [{upstream: acme, model: smol}]}
"""


def test_a_dialect_is_one_file_and_one_line(tmp_path: Path) -> None:
    copy = copied(tmp_path / "copy", "A dialect", "acme")
    copy.add("proxy/dialects/vendors/acme.py", "dialect.py")
    table = "proxy/dialects/__init__.py"
    copy.add_import(table, "from proxy.dialects.vendors import acme")
    copy.add_item(table, "DIALECTS", '"acme": acme.ACME')

    policies = tmp_path / "policies"
    policies.mkdir()
    (policies / "policies.yaml").write_text(UPSTREAMS)
    checked = copy.run("proxy", "check", str(policies))
    schema = json.loads(copy.run("proxy", "schema"))
    copy.run("tools.docs")
    copy.test(
        "tests/recipes/added/check_dialect.py",
        "tests/dialects/test_init.py::test_each_dialect_is_spoken_on_its_own_paths",
        "tests/test_docs.py::test_generated_parts_are_up_to_date",
    )

    assert 'has no header "x-acme-team" under "headers:". Acme requires it.' in checked
    assert "acme" in schema["$defs"]["UpstreamConfig"]["properties"]["dialect"]["enum"]
    page = copy.read("docs/dialects.md")
    assert "| acme | chat | POST `/acme/chat/completions` | |" in page
    assert "| acme | `x-acme-key` | | |" in page
    assert "| acme | `/acme` | `x-acme-key`; set `x-acme-team` in `headers` |" in page
    fields = copy.read("docs/fields.md").partition("### Legacy completions\n")[2]
    rows = [row.split("|") for row in fields.partition("###")[0].splitlines() if "| " in row]
    droppers = [name for row in rows if "`acme_mood`" in row[3] for name in row[1].split(",")]
    assert len(droppers) == 9
    assert " acme" not in droppers
    assert "`acme`" in copy.read("docs/policies.md")
