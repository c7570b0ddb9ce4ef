"""Generated parts of docs/guards.md: kinds with their keys, skipped values, Enkrypt's detectors."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from proxy.config.scalars import Section, get_key_descriptions
from proxy.guards.guard_kind import NO_CONTEXT, GuardKind, MaxCallCost
from proxy.guards.kinds import KINDS
from proxy.guards.text.members import IGNORED_RESPONSE_MEMBERS
from proxy.guards.text.walk import IGNORED_FIELDS
from proxy.policy.schema.guards import COMMON_KEYS, GuardConfig
from proxy.types.guard import PromptContext, is_contextual, is_detector
from proxy.types.partial_matcher import get_partial_matcher

WHOLE_TEXT = "Needs the whole text."
# Kinds that cannot be built with their example.
STREAMING = {
    "keywords": "Withholds what may become a match.",
    "onnx": WHOLE_TEXT,
}
CONTEXT = PromptContext("an example of a system prompt", "a question", "facts")


def common() -> Iterator[str]:
    yield from keys_list(GuardConfig, COMMON_KEYS)


def kinds() -> Iterator[str]:
    """Yield a section for each kind. Keys that an earlier kind has are not repeated."""
    listed: dict[str, list[str]] = {}
    for name, kind in KINDS.items():
        yield f"### `{name}`"
        yield ""
        fields = kind.Keys.model_fields
        defaults = f"{_default_action(fields)}{_default_deadline(fields)}"
        yield f"{_one_line(kind.Keys.__doc__)} {_describe_streaming(name, kind)}{defaults}"
        if keys := [key for key in fields if key not in COMMON_KEYS]:
            yield ""
            yield from _without_repetition(keys_list(kind.Keys, keys), name, listed)
        yield ""


def _without_repetition(
    items: Iterable[str], kind: str, listed: dict[str, list[str]]
) -> Iterator[str]:
    """Yield the keys of a kind. Two or more keys that an earlier kind has become one line."""
    listed[kind] = [*items]
    shared: list[str] = []
    source = ""
    for name in [name for name in listed if name != kind]:
        common = [item for item in listed[kind] if item in listed[name]]
        if len(common) > max(1, len(shared)):
            shared, source = common, name
    if shared:
        names = ", ".join(item.split()[1].rstrip(":") for item in shared)
        yield f"- {names}: as for `{source}`."
    yield from (item for item in listed[kind] if item not in shared)


def silent() -> Iterator[str]:
    """Yield the values that no guard inspects, grouped by the values that are skipped."""
    yield "| value | skipped if it is |"
    yield "|---|---|"
    requests = ", ".join(f"`{name}`" for name in IGNORED_FIELDS)
    yield f"| request: {requests} | anything |"
    paths: dict[str, list[str]] = {}
    for level, names in IGNORED_RESPONSE_MEMBERS.items():
        steps = (f"{step}." if step in ("message", "delta") else f"{step}[]." for step in level)
        prefix = "".join(steps)
        for name, (_, condition) in names.items():
            paths.setdefault(condition, []).append(f"`{prefix}{name}`")
    for condition, values in paths.items():
        yield f"| response: {', '.join(values)} | {condition} |"


def detectors() -> Iterator[str]:
    yield "| Enkrypt's detector | summary | guards |"
    yield "|---|---|---|"
    guards: dict[tuple[str, str], list[str]] = {}
    for kind_name, kind in KINDS.items():
        for detection in kind.detections:
            guards.setdefault((detection.name, detection.summary_name), []).append(f"`{kind_name}`")
    for (name, summary), kind_names in guards.items():
        yield f"| `{name}` | `{summary}` | {', '.join(kind_names)} |"


def keys_list(model: type[Section], names: Iterable[str]) -> Iterator[str]:
    """Yield a list item for each key, with its default and description."""
    for name in names:
        field, description = model.model_fields[name], get_key_descriptions(model).get(name)
        default = _default(field, description)
        suffix = f" ({default})" if default else ""
        yield f"- `{field.alias or name}`{suffix}: {_one_line(description)}"


def _default(field: FieldInfo, description: str | None) -> str:
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True)
    if value in (None, "", [], {}) or isinstance(value, BaseModel):
        return ""
    if "Default" in (description or ""):
        return ""
    if isinstance(value, bool):
        return f"default `{str(value).lower()}`"
    text = ", ".join(map(str, value)) if isinstance(value, list) else value
    return f"default `{text}`"


def _one_line(text: str | None) -> str:
    return " ".join((text or "").split())


def _describe_streaming(name: str, kind: GuardKind[Any]) -> str:
    """Describe the delay of a stream with the default options of a guard."""
    if kind.calls_service:
        return WHOLE_TEXT
    try:
        guard: Any = kind.make(kind.Keys(**kind.example), NO_CONTEXT)
    except ValueError:
        return STREAMING.get(name, "")
    if isinstance(guard, MaxCallCost):
        return "Reads no text."
    if is_contextual(guard):
        guard = guard.for_prompt(CONTEXT)
    if not is_detector(guard) or guard.lookback is None:
        return WHOLE_TEXT
    bound = "at most " if get_partial_matcher(guard) is not None else ""
    return f"Withholds {bound}{guard.lookback} characters."


def _default_action(fields: Mapping[str, FieldInfo]) -> str:
    default = fields["action"].default if "action" in fields else "block"
    return "" if default == "block" else f" Default action: `{default}`."


def _default_deadline(fields: Mapping[str, FieldInfo]) -> str:
    if "deadline" not in fields:
        return ""
    return f" Default deadline: {fields['deadline'].default:g}s."
