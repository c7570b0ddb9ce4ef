"""The JSON Schema of the policy files, for editors that complete and check as one types.

It knows shapes and words, and which keys go together. What needs the whole folder (names that lead
nowhere, secrets, duplicate keys) is for ``headrace check``; and what JSON Schema has no words for:
two rules of one name, two headers that differ in their case, patterns that do not compile; and
what only a guard's detector can judge.
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from proxy.policy.schema import PoliciesConfig, PriceConfig

TITLE = "Headrace policies"
DIALECT = "https://json-schema.org/draft/2020-12/schema"


def json_schema() -> dict[str, Any]:
    """Return the schema of one file: any of the sections, each of them partly."""
    schema = _plain(PoliciesConfig.model_json_schema())
    price = PriceConfig.model_json_schema(ref_template="#/$defs/{model}")
    schema["$defs"] |= _plain(price.pop("$defs", {})) | {"PriceConfig": _plain(price)}
    schema["properties"]["prices"]["additionalProperties"]["additionalProperties"] = _one_or_more(
        "PriceConfig"
    )
    schema["$defs"]["TargetConfig"]["properties"]["price"] |= _one_or_more("PriceConfig")
    schema["$defs"]["TargetConfig"]["properties"]["price"].pop("items")
    schema["$defs"]["TargetConfig"]["properties"]["price"].pop("type")
    return {"$schema": DIALECT, "title": TITLE, **schema}


def schema_of(kind: type[BaseModel], title: str) -> dict[str, Any]:
    """Return the schema of another kind of file."""
    return {"$schema": DIALECT, "title": title, **_plain(kind.model_json_schema())}


def _one_or_more(name: str) -> dict[str, Any]:
    ref = {"$ref": f"#/$defs/{name}"}
    return {"anyOf": [ref, {"type": "array", "items": ref}]}


def _plain(value: Any) -> Any:
    """Leave out titles that repeat a key, and defaults, which are in other units than one types."""
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if not isinstance(value, dict):
        return value
    if "properties" in value:
        inner = {name: _plain(each) for name, each in value["properties"].items()}
        return {
            **_plain({k: v for k, v in value.items() if k != "properties"}),
            "properties": inner,
        }
    names = {"additionalProperties": False} if "patternProperties" in value else {}
    return {k: _plain(v) for k, v in value.items() if k not in ("title", "default")} | names
