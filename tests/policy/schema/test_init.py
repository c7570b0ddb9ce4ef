"""The JSON Schema for editors accepts valid policies and refuses invalid structure."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
from pydantic import BaseModel, ValidationError

from proxy.policy.files.source import Document
from proxy.policy.files.yaml_reader import read_file
from proxy.policy.schema import Section, build_json_schema, build_schema
from proxy.policytest.cases import Suite
from tests.conftest import policies_for
from tests.for_each import for_each

TOP = Path(__file__).parents[3]
SHIPPED = sorted((TOP / "policies").rglob("*.yaml"))
EXAMPLES = re.findall(r"```yaml\n(.*?)```", (TOP / "docs/policies.md").read_text(), re.DOTALL)
SCHEMA = jsonschema_rs.validator_for(build_json_schema())
OF_TESTS = jsonschema_rs.validator_for(build_schema(Suite, "tests"))
SHAPES = (
    "deployment-name-with-capitals", "guard-of-an-unknown-kind", "target-without-a-model",
    "unknown-key-of-an-upstream", "rule-with-an-unknown-key", "set-of-the-prompt",
    "unknown-section", "yes-is-a-word",
)  # fmt: skip


def yaml_data(file: Path) -> object:
    document = Document()
    read_file(file, file.name, document)
    return document.data


def test_committed_schema_is_current() -> None:
    assert json.loads((TOP / "policies" / "schema.json").read_text()) == build_json_schema()


@for_each("file", SHIPPED, ids=lambda file: file.name)
def test_shipped_files_are_valid_and_name_their_schema(file: Path) -> None:
    of_tests = file.parent.name == "tests"
    (OF_TESTS if of_tests else SCHEMA).validate(yaml_data(file))
    target = re.match(r"# yaml-language-server: \$schema=(\S+)\n", file.read_text())
    assert target is not None
    home = TOP / "policies" / "tests" if of_tests else TOP / "policies"
    assert (file.parent / target[1]).resolve() == home / "schema.json"


@for_each("text", [*EXAMPLES, policies_for("http://127.0.0.1:9")])
def test_loadable_files_match_the_schema(text: str, tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text(text)

    of_tests = re.search(r"^tests:", text, re.MULTILINE)
    (OF_TESTS if of_tests else SCHEMA).validate(yaml_data(tmp_path / "p.yaml"))


@for_each("name", SHAPES)
def test_invalid_structure_does_not_match_the_schema(name: str) -> None:
    assert not SCHEMA.is_valid(
        yaml_data(Path(__file__).parents[1].joinpath("wrong") / f"{name}.yaml")
    )


def test_every_key_has_a_description() -> None:
    for name, kind in build_json_schema()["$defs"].items():
        for key, text in kind.get("properties", {}).items():
            if name not in ("PriceConfig", "TierConfig"):
                assert text.get("description") or "$ref" in text, f"{name}.{key}"


# Messages of checks that JSON Schema cannot express. Editors refuse everything else that needs no
# other part of the folder.
BEYOND_SCHEMAS = (
    "has several rules with the same name",
    "must not contain the same header twice",
    "is not a valid RE2 pattern",
)
TEXTS = (
    "a", "a b", "", "key", "x" * 65, "${X}", "file:/a", "0" * 64, "mn", "PERSON", "en", "1", "0",
    "https://a.test", "ftp://a.test", "https://a.test:0/", "https://u@a.test", "http://", "//a",
    "5s", "0s", "1h", "10MiB", "0B", "80%", "0%", "101%", "09:00-17:30", "09:00-09:00",
    "600 per minute", "0 per minute", "1.5 per minute", "1.5k per 0 days", "200k per minute",
    "500 per month", "9000001 per day", "0.00 per day", "2026-01-31", "2026-13-01", "0.15",
    "0.0000001", "-1",
    "2026-01-31T18:00Z", "2026-01-31T18:00", "authorization", "X-Api-Key", "host", "user",
    "tag.team", "key", "UTC", "/zone", "\x07", "api-key", "content-length", "${X", "é",
)  # fmt: skip
KEYS = ("a", "team", "x-b", "b1", "X-Api-Key", "te", "tag.a", "A B", "")


class Maker:
    """Draws parts of policies that a JSON Schema may accept."""

    def __init__(self, defs: dict[str, Any], seed: int) -> None:
        self.defs = defs
        self.draw = random.Random(seed)  # noqa: S311  # repeatable

    def make(self, schema: dict[str, Any], depth: int = 0) -> Any:
        if "$ref" in schema:
            return self.make(self.defs[schema["$ref"].rsplit("/", 1)[-1]], depth)
        if "const" in schema:
            return schema["const"]
        if "enum" in schema:
            return self.draw.choice(schema["enum"])
        if choice := schema.get("anyOf") or schema.get("oneOf"):
            return self.make(self.draw.choice(choice), depth)
        kind = schema.get("type")
        if isinstance(kind, list):
            kind = self.draw.choice(kind)
        makers: dict[Any, Callable[[], Any]] = {
            "object": lambda: self.mapping(schema, depth),
            "array": lambda: self.items(schema, depth),
            "boolean": lambda: self.draw.random() < 0.5,
            "integer": lambda: self.draw.choice([schema.get("minimum", 0), 1, 5, 10**6]),
            "number": lambda: self.draw.choice([schema.get("minimum", 0), 0.5, 1, 1e-5]),
            "null": lambda: None,
            "string": lambda: self.text(schema),
        }
        return makers.get(kind, lambda: self.draw.choice([1, "a", None, [], {}]))()

    def text(self, schema: dict[str, Any]) -> str:
        texts = [*schema.get("examples", ()), *TEXTS]
        if self.draw.random() < 0.7:
            texts = [item for item in texts if re.search(schema.get("pattern", ""), item)]
        drawn: str = self.draw.choice(texts)
        return drawn

    def mapping(self, schema: dict[str, Any], depth: int) -> dict[str, Any]:
        often = 0.25 if depth < 5 else 0
        result = {
            name: self.make(item, depth + 1)
            for name, item in schema.get("properties", {}).items()
            if name in schema.get("required", ()) or self.draw.random() < often
        }
        other_items = list(schema.get("patternProperties", {}).values())
        if isinstance(other_item := schema.get("additionalProperties"), dict):
            other_items.append(other_item)
        for _ in range(self.draw.randint(0, 2) if other_items else 0):
            result[self.draw.choice(KEYS)] = self.make(self.draw.choice(other_items), depth + 1)
        return result

    def items(self, schema: dict[str, Any], depth: int) -> list[Any]:
        minimum = schema.get("minItems", 0)
        count = self.draw.randint(minimum, minimum + 2)
        return [self.make(schema.get("items", {}), depth + 1) for _ in range(count)]


def models() -> dict[str, type[BaseModel]]:
    result: dict[str, type[BaseModel]] = {}
    open_ = [Section]
    while open_:
        kind = open_.pop()
        result[kind.__name__] = kind
        open_ += kind.__subclasses__()
    return result


@pytest.mark.parametrize("name", sorted(build_json_schema()["$defs"]))
def test_files_valid_for_editors_fail_only_for_folder_checks(name: str) -> None:
    schema = build_json_schema()
    expected = {"$schema": schema["$schema"], "$defs": schema["$defs"], "$ref": f"#/$defs/{name}"}
    fits = jsonschema_rs.validator_for(expected, validate_formats=True).is_valid
    maker, accepted = Maker(schema["$defs"], 1), 0

    for _ in range(600):
        part = maker.make({"$ref": f"#/$defs/{name}"})
        if not fits(part):
            continue
        accepted += 1
        try:
            models()[name].model_validate(part)
        except ValidationError as refused:
            text = [item["msg"] for item in refused.errors()]
            assert all(any(word in item for word in BEYOND_SCHEMAS) for item in text), (part, text)
    assert accepted > 10
