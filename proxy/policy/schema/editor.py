"""JSON Schema of the policy files, for completion and checks in editors.

The schema knows keys, values and which keys go together. ``headrace check`` also finds problems
that need the whole folder, a guard's detector, or more than JSON Schema can express.
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from proxy.policy.schema import PoliciesConfig, PriceConfig

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def json_schema() -> dict[str, Any]:
    """Return the schema of a policy file, which may contain any of the sections."""
    schema = schema_of(PoliciesConfig, "Headrace policies")
    price = PriceConfig.model_json_schema(ref_template="#/$defs/{model}")
    schema["$defs"] |= _plain(price.pop("$defs", {})) | {"PriceConfig": _plain(price)}
    ref = {"$ref": "#/$defs/PriceConfig"}
    one_or_more = {"anyOf": [ref, {"type": "array", "items": ref}]}
    schema["properties"]["prices"]["additionalProperties"]["additionalProperties"] = one_or_more
    target_price = schema["$defs"]["TargetConfig"]["properties"]["price"]
    target_price |= one_or_more
    del target_price["items"], target_price["type"]
    return schema


def schema_of(model: type[BaseModel], title: str) -> dict[str, Any]:
    """Return the schema of a kind of file."""
    return {"$schema": DIALECT, "title": title, **_plain(model.model_json_schema())}


def _plain(value: Any) -> Any:
    """Return a schema without titles, which repeat a key, and without parsed defaults."""
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if not isinstance(value, dict):
        return value
    dropped = ("title", "default", "properties")
    plain = {key: _plain(part) for key, part in value.items() if key not in dropped}
    if "properties" in value:  # the keys of a model may be called "title" or "default"
        properties = value["properties"].items()
        plain["properties"] = {name: _plain(part) for name, part in properties}
    return plain | ({"additionalProperties": False} if "patternProperties" in value else {})
