"""The JSON Schema that editors check by takes what is good and refuses a wrong shape."""

from __future__ import annotations

import json
import re
from pathlib import Path

import jsonschema_rs
import pytest

from proxy.policy.editor import json_schema, schema_of
from proxy.policy.reading import read_file
from proxy.policy.source import Document
from proxy.rehearsal.cases import Suite
from tests.conftest import world

TOP = Path(__file__).parents[2]
SHIPPED = sorted((TOP / "policies").rglob("*.yaml"))
EXAMPLES = re.findall(r"```yaml\n(.*?)```", (TOP / "docs/policies.md").read_text(), re.DOTALL)
SCHEMA = jsonschema_rs.validator_for(json_schema())
OF_TESTS = jsonschema_rs.validator_for(schema_of(Suite, "tests"))
SHAPES = (
    "caller-tags-otherwise-unknown",
    "deployment-name-with-capitals",
    "deployment-without-targets",
    "duration-without-a-unit",
    "guard-of-an-unknown-kind",
    "key-that-may-do-something-unknown",
    "key-with-a-short-digest",
    "key-without-deployments",
    "price-below-zero",
    "secret-written-down",
    "size-without-a-unit",
    "target-with-an-unknown-endpoint",
    "target-without-a-model",
    "unknown-dialect",
    "unknown-key-of-an-upstream",
    "rule-with-an-unknown-key",
    "set-of-the-prompt",
    "cap-below-one-token",
    "time-that-is-none",
    "unknown-section",
    "yes-is-a-word",
)


def plain(file: Path) -> object:
    """Read a file as a policy is read."""
    document = Document()
    read_file(file, file.name, document)
    return document.data


def test_the_committed_schema_is_what_the_command_prints() -> None:
    assert json.loads((TOP / "policies" / "schema.json").read_text()) == json_schema()


@pytest.mark.parametrize("file", SHIPPED, ids=lambda file: file.name)
def test_shipped_files_fit_and_name_their_schema(file: Path) -> None:
    of_tests = file.parent.name == "tests"
    (OF_TESTS if of_tests else SCHEMA).validate(plain(file))
    named = re.match(r"# yaml-language-server: \$schema=(\S+)\n", file.read_text())
    assert named is not None
    home = TOP / "policies" / "tests" if of_tests else TOP / "policies"
    assert (file.parent / named[1]).resolve() == home / "schema.json"


@pytest.mark.parametrize("text", [*EXAMPLES, world("http://127.0.0.1:9")])
def test_what_loads_fits(text: str, tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text(text)

    of_tests = re.search(r"^tests:", text, re.MULTILINE)
    (OF_TESTS if of_tests else SCHEMA).validate(plain(tmp_path / "p.yaml"))


@pytest.mark.parametrize("name", SHAPES)
def test_a_wrong_shape_does_not_fit(name: str) -> None:
    assert not SCHEMA.is_valid(plain(Path(__file__).with_name("wrong") / f"{name}.yaml"))


def test_every_key_says_what_it_is_for() -> None:
    for name, kind in json_schema()["$defs"].items():
        for key, said in kind.get("properties", {}).items():
            if name not in ("Price", "Tier"):
                assert said.get("description") or "$ref" in said, f"{name}.{key}"
