"""Generated part of docs/policy-reference.md: keys of each section of the policy files."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, get_args

from proxy.config.scalars import Section, get_key_descriptions
from proxy.policy import schema
from proxy.policy.schema.guards import GuardConfig
from tools.guards import keys_list


def sections() -> Iterator[str]:
    """Yield a heading and key lists for each section. A model is listed where it occurs first."""
    listed: set[type[Section]] = {GuardConfig}
    descriptions = get_key_descriptions(schema.PoliciesConfig)
    for section, field in schema.PoliciesConfig.model_fields.items():
        yield f"## {section}"
        yield ""
        yield descriptions.get(section, "")
        yield ""
        queue = [(model, "") for model in _models(field.annotation)]
        for model, key in queue:
            if model in listed:
                continue
            listed.add(model)
            if key:
                yield f"### {key}"
                yield ""
            yield from keys_list(model, model.model_fields)
            yield ""
            for name, member in model.model_fields.items():
                queue += [(inner, member.alias or name) for inner in _models(member.annotation)]


def _models(kind: Any) -> Iterator[type[Section]]:
    """Yield the models in a type annotation."""
    if isinstance(kind, type) and issubclass(kind, Section):
        yield kind
    for part in get_args(kind):
        yield from _models(part)
