"""The recipe for a kind of limit, followed in a copy: all that is not its own file follows."""

from __future__ import annotations

import json
from pathlib import Path

from tests.recipes.copies import copied

FOLDER = """
upstreams:
  openai: {dialect: openai, base_url: 'https://api.openai.com/v1'}
policies:
  house:
    limits: [{name: written, acme: 100 per minute, burst: 50, per: key}]
keys:
  widget: {sha256: AAAA, deployments: [support-chat]}
deployments:
  support-chat: {policy: house, targets: [{upstream: openai, model: gpt-4o-mini}]}
""".replace("AAAA", "0" * 64)


def test_a_kind_of_limit_is_one_file_and_one_line(tmp_path: Path) -> None:
    copy = copied(tmp_path / "copy", "A kind of limit", "acme")
    copy.add("proxy/limits/kinds/acme.py", "limit_kind.py")
    table = "proxy/limits/kinds/__init__.py"
    copy.add_import(table, "from proxy.limits.kinds import acme")
    copy.add_item(table, "KINDS", "acme.AcmeRate()")

    policies = tmp_path / "policies"
    policies.mkdir()
    file = policies / "policies.yaml"
    file.write_text(FOLDER)
    checked = copy.run("proxy", "check", str(policies))
    explain = ("explain", "--policies", str(policies), "--key", "widget")
    explained = copy.run("proxy", *explain, "--deployment", "support-chat")
    schema = json.loads(copy.run("proxy", "schema"))
    copy.run("tools.docs")
    copy.test("tests/recipes/added/check_limit_kind.py")

    assert ": valid" in checked
    assert "written: 100 written tokens per minute, burst 50, per key" in explained
    assert "this call reserves 1024" in explained
    assert "rejected with 429 by limit written" in explained
    limit = schema["$defs"]["LimitConfig"]
    assert limit["properties"]["acme"]["description"] == "Tokens per time, of answers alone."
    assert {"required": ["acme"], "properties": {"acme": {"not": {"type": "null"}}}} in (
        limit["allOf"][0]["oneOf"]
    )
    assert "`tokens`, `concurrency`, `acme` |" in copy.read("docs/errors.md")
    row = "| `acme` | Tokens per time, of answers alone. | a rate | 429 `rate_limit_exceeded` |"
    assert row in copy.read("docs/policies.md")
