"""The recipe for a key of the policy files, followed in a copy."""

from __future__ import annotations

from pathlib import Path

from tests.recipes.copies import copied

FOLDER = """
upstreams:
  openai: {dialect: openai, base_url: 'https://api.openai.com/v1'}
deployments:
  support-chat:
    targets: [{upstream: openai, model: gpt-4o-mini}]
    acme_notice: RETIRED
"""


def test_a_key_of_the_policy_files(tmp_path: Path) -> None:
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
        "_decide",
        "notice = deployment.acme_notice",
        "warnings += (notice,) if notice else ()",
    )
    copy.add_at_end(
        "proxy/policy/review/lint_deployments.py",
        "findings",
        "if deployment.acme_notice.isupper():",
        '    yield (*path, "acme_notice"), "is all in capitals"',
    )
    copy.add("tests/policy/wrong/acme.yaml", "wrong_key.yaml")
    copy.run("tools.docs")

    policies = tmp_path / "policies"
    policies.mkdir()
    (policies / "policies.yaml").write_text(FOLDER)
    checked = copy.run("proxy", "check", str(policies))
    schema = copy.run("proxy", "schema")
    copy.test(
        "tests/recipes/added/check_policy_key.py",
        "tests/policy/files/test_load.py::test_a_wrong_policy_is_told_in_exactly_these_words",
        "tests/test_docs.py::test_every_section_and_its_keys_are_documented",
    )

    assert "is all in capitals" in checked
    assert '"description": "What its answers warn of."' in schema
