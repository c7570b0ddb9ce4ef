"""The recipes of CONTRIBUTING.md, followed in copies of the repository."""

from __future__ import annotations

import json
import re
from pathlib import Path

from tests.recipes.copies import ADDED, copied

ACME_UPSTREAMS = """
upstreams:
  acme: {dialect: acme, base_url: 'https://acme.test'}
deployments:
  support-chat: {targets: [{upstream: acme, model: smol}]}
"""


def test_dialect_is_added_by_one_file_and_one_line(tmp_path: Path) -> None:
    copy = copied(tmp_path / "copy", "A dialect", "acme")
    copy.add("proxy/dialects/vendors/acme.py", "dialect.py")
    table = "proxy/dialects/__init__.py"
    copy.add_import(table, "from proxy.dialects.vendors import acme")
    copy.add_item(table, "DIALECTS", '"acme": acme.ACME')

    policies = tmp_path / "policies"
    policies.mkdir()
    (policies / "policies.yaml").write_text(ACME_UPSTREAMS)
    checked = copy.run("proxy", "check", str(policies))
    schema = json.loads(copy.run("proxy", "schema"))
    copy.run("tools.docs")
    copy.test(
        "tests/recipes/added/check_dialect.py",
        "tests/dialects/test_init.py::test_path_selects_the_dialect",
        "tests/test_docs.py::test_generated_parts_are_up_to_date",
    )

    assert 'has no header "x-acme-team" under "headers:". Acme requires it.' in checked
    assert "acme" in schema["$defs"]["UpstreamConfig"]["properties"]["dialect"]["enum"]
    page = copy.read("docs/dialects.md")
    assert "| acme | chat | POST `/acme/chat/completions` | |" in page
    assert "| acme | `x-acme-key` | | |" in page
    assert "| acme | `/acme` | `x-acme-key`; set `x-acme-team` in `headers` |" in page
    fields = copy.read("docs/fields.md").partition("### Legacy completions\n")[2]
    [row] = [row for row in fields.partition("###")[0].splitlines() if row.startswith("| all |")]
    dropped = row.split("|")[3].split(";")
    assert any(" except at acme: " in part and "`acme_mood`" in part for part in dropped)
    assert "`acme`" in copy.read("docs/policies.md")


MAX_LINES = 150


def test_api_family_is_added_by_one_file_and_two_lines(tmp_path: Path) -> None:
    assert len((ADDED / "family.py").read_text().splitlines()) <= MAX_LINES
    copy = copied(tmp_path / "copy", "An API family", "notes")
    copy.add("proxy/dialects/notes.py", "family.py")
    for path, table, item in (
        ("proxy/dialects/families.py", "FAMILIES", "notes.NOTES"),
        ("proxy/dialects/__init__.py", "DIALECTS", '"notes": notes.DIALECT'),
    ):
        copy.add_import(path, "from proxy.dialects import notes")
        copy.add_item(path, table, item)

    copy.test("tests/recipes/added/check_family.py")


LIMIT_FOLDER = """
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


def test_limit_kind_is_added_by_one_file_and_one_line(tmp_path: Path) -> None:
    copy = copied(tmp_path / "copy", "A kind of limit", "acme")
    copy.add("proxy/limits/kinds/acme.py", "limit_kind.py")
    table = "proxy/limits/kinds/__init__.py"
    copy.add_import(table, "from proxy.limits.kinds import acme")
    copy.add_item(table, "KINDS", "acme.AcmeRate()")

    policies = tmp_path / "policies"
    policies.mkdir()
    file = policies / "policies.yaml"
    file.write_text(LIMIT_FOLDER)
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
    assert limit["properties"]["acme"]["description"] == "Output tokens per time."
    assert {"required": ["acme"], "properties": {"acme": {"not": {"type": "null"}}}} in (
        limit["allOf"][0]["oneOf"]
    )
    assert "`tokens`, `concurrency`, `acme` |" in copy.read("docs/errors.md")
    row = "| `acme` | Output tokens per time. | a rate | 429 `rate_limit_exceeded` |"
    assert row in copy.read("docs/policies.md")


def test_metric_is_declared_and_counted(tmp_path: Path) -> None:
    copy = copied(tmp_path / "copy", "A metric", "acme")
    copy.add_item(
        "proxy/telemetry/catalog/table.py",
        "CALL_METRICS",
        'counter("headrace_acme_calls_total", "Calls of a test of a recipe.", labels.DEPLOYMENT)',
    )
    copy.add_at_end(
        "proxy/telemetry/metrics.py",
        "count",
        'series["headrace_acme_calls_total", deployment].value += 1',
    )

    bounds = copy.run("proxy", "metrics", "policies")
    copy.run("tools.docs")
    copy.test("tests/recipes/added/check_metric.py")

    [line] = [line for line in bounds.splitlines() if line.startswith("headrace_acme_calls_total")]
    assert line.split()[1] == "counter"
    item = "- `headrace_acme_calls_total` (`deployment`): Calls of a test of a recipe."
    assert item in copy.read("docs/metrics.md")


POLICY_KEY_FOLDER = """
upstreams:
  openai: {dialect: openai, base_url: 'https://api.openai.com/v1'}
deployments:
  support-chat:
    targets: [{upstream: openai, model: gpt-4o-mini}]
    acme_notice: RETIRED
"""


def test_policy_key_is_added_by_its_recipe(tmp_path: Path) -> None:
    copy = copied(tmp_path / "copy", "A key of the policy files", "acme")
    copy.add_field(
        "proxy/policy/schema/deployments.py",
        "DeploymentConfig",
        'acme_notice: Annotated[str, Field(max_length=40)] = ""',
        '"""What its answers warn of."""',
    )
    copy.add_argument(
        "proxy/policy/compile/deployments.py", "Deployment", "acme_notice=config.acme_notice"
    )
    copy.add_field("proxy/policy/decide/snapshot.py", "Deployment", 'acme_notice: str = ""')
    copy.add_at_end(
        "proxy/policy/decide/__init__.py",
        "_decide_ignoring_stored_state",
        "notice = deployment.acme_notice",
        "warnings += (notice,) if notice else ()",
    )
    copy.add_at_end(
        "proxy/policy/review/lint_deployments.py",
        "lint_deployment",
        "if deployment.acme_notice.isupper():",
        '    yield (*path, "acme_notice"), "is all in capitals"',
    )
    copy.add("tests/policy/wrong/acme.yaml", "wrong_key.yaml")
    copy.run("tools.docs")

    policies = tmp_path / "policies"
    policies.mkdir()
    (policies / "policies.yaml").write_text(POLICY_KEY_FOLDER)
    checked = copy.run("proxy", "check", str(policies))
    schema = copy.run("proxy", "schema")
    copy.test(
        "tests/recipes/added/check_policy_key.py",
        "tests/policy/files/test_load.py::test_invalid_policy_has_exact_messages",
        "tests/test_docs.py::test_policy_sections_and_keys_are_documented",
    )

    assert "is all in capitals" in checked
    assert '"description": "What its answers warn of."' in schema


NOTES = '_field("acme_notes", {"chat responses": string()}, text="content", unknown="refuse")'
STYLE = (
    '_field("acme_style", {"chat": string()}, path_by_api={"messages": "output_config.acme_style"})'
)
SESSION = '_field("acme_session", {"chat": string()}, cache="caller")'
DATA = 'Member("acme_data", text="arguments", free_form=("tools[]",))'


def test_request_field_is_added_by_one_row(tmp_path: Path) -> None:
    copy = copied(tmp_path / "copy", "A request field", "acme")
    for row in (NOTES, STYLE, SESSION):
        copy.add_item("proxy/fields/field_table.py", "ROWS", row)
    copy.add_item("proxy/fields/member_table.py", "ROWS", DATA)

    copy.run("tools.docs")
    copy.test(
        "tests/recipes/added/check_request_field.py",
        "tests/fields/test_field_table.py",
        "tests/test_docs.py::test_generated_parts_are_up_to_date",
    )

    page = copy.read("docs/fields.md")
    assert re.search(r"`acme_notes`.* \| content \| yes \| refused \|", page)
    assert re.search(r"`acme_session`.* \| other \| with `by_user` \| dropped \|", page)
    assert re.search(r"^\| [^|]* \|[^|]*`acme_style`[^|]*\|", page, re.MULTILINE)


def test_store_is_added_by_one_file_and_its_name(tmp_path: Path) -> None:
    copy = copied(tmp_path / "copy", "A store", "acme")
    copy.add("proxy/cache/acme.py", "cache_store.py")
    copy.add_item("proxy/types/__init__.py", "CACHE_STORES", '"acme"')
    opened = "proxy/app/stores.py"
    copy.add_import(opened, "from proxy.cache.acme import Acme")
    copy.add_at_end(
        opened,
        "open_cache_backends",
        "acme = await context.opened.enter_async_context(Acme())",
        'backends["acme"] = CacheBackend(acme, secret)',
    )
    copy.add("proxy/ledger/acme.py", "ledger_store.py")
    table = "proxy/ledger/__init__.py"
    copy.add_import(table, "from proxy.ledger.acme import AcmeStore")
    copy.add_item(
        table, "STORES", '"acme": lambda path, run, on_crash, on_new_file: AcmeStore(path)'
    )
    copy.add_item("proxy/settings.py", "LEDGER_KINDS", '"acme"')

    schema = json.loads(copy.run("proxy", "schema"))
    copy.test("tests/recipes/added/check_stores.py")

    _, keys = schema["$defs"]["CacheConfig"]["anyOf"]
    assert "acme" in keys["properties"]["store"]["enum"]
