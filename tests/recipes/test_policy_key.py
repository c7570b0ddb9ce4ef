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
    copy.insert(
        "proxy/policy/schema/deployments.py",
        '    """How many models a call for a list of them may name, each of which is asked; 32."""',
        '    acme_notice: Annotated[str, Field(max_length=40)] = ""',
        '    """What its answers warn of."""',
    )
    copy.insert(
        "proxy/policy/compile/compiler.py",
        "            max_models=config.max_models,",
        "            acme_notice=config.acme_notice,",
    )
    copy.insert(
        "proxy/policy/decide/snapshot.py", "    max_models: int = 32", '    acme_notice: str = ""'
    )
    copy.insert(
        "proxy/policy/decide/__init__.py",
        "    _check_number(call.models, reach.deployment.max_models)",
        "    notice = reach.deployment.acme_notice\n    warnings += (notice,) if notice else ()",
    )
    copy.insert(
        "proxy/policy/review/lint.py",
        '            yield path, "is reached by no key"',
        "        if deployment.acme_notice.isupper():",
        '            yield (*path, "acme_notice"), "is all in capitals"',
    )
    copy.add("tests/policy/wrong/acme.yaml", "wrong_key.yaml")
    copy.insert(
        "docs/policies.md",
        "    policy: public                        # whose rules it follows",
        "    acme_notice: retired in May           # what its answers warn of",
    )

    policies = tmp_path / "policies"
    policies.mkdir()
    (policies / "policies.yaml").write_text(FOLDER)
    checked = copy.run("proxy", "check", str(policies))
    schema = copy.run("proxy", "schema")
    copy.test(
        "tests/recipes/added/check_policy_key.py",
        "tests/policy/files/test_load.py::test_a_wrong_policy_is_told_in_exactly_these_words[acme]",
        "tests/test_docs.py::test_every_section_and_its_keys_are_documented",
    )

    assert "is all in capitals" in checked
    assert '"description": "What its answers warn of."' in schema
