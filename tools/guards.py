"""The generated parts of the page on guards: every kind with its keys, and Enkrypt's words."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from proxy.config.scalars import Section, descriptions_of
from proxy.guards.guard_kind import NO_CONTEXT, GuardKind, MostCost
from proxy.guards.kinds.table import KINDS
from proxy.guards.text.members import SILENT_ANSWER
from proxy.guards.text.walk import SILENT
from proxy.policy.schema.guards import COMMON, GuardConfig
from proxy.types.guard import PromptContext, is_contextual, is_detector
from proxy.types.hold import partial_matcher_of

WHOLE = "Needs the whole text."
# Kinds that cannot be made here.
SAID = {
    "keywords": "Withholds what may become a match.",
    "onnx": WHOLE,
}
ANYTHING = PromptContext("an example of a system prompt", "what was asked", "what was known")


def common() -> Iterator[str]:
    yield from keys_list(GuardConfig, COMMON)


def kinds() -> Iterator[str]:
    """Yield a section for each kind. Keys that an earlier kind has are not repeated."""
    listed: dict[str, list[str]] = {}
    for word, kind in KINDS.items():
        yield f"### `{word}`"
        yield ""
        fields = kind.Keys.model_fields
        waits = f"{_held_back(word, kind)}{_without_action(fields)}{_deadline(fields)}"
        yield f"{_line(kind.Keys.__doc__)} {waits}"
        own = [name for name in fields if name not in COMMON]
        if own:
            yield ""
            yield from _without_repetition(keys_list(kind.Keys, own), word, listed)
        yield ""


def _without_repetition(
    items: Iterable[str], kind: str, listed: dict[str, list[str]]
) -> Iterator[str]:
    """Yield the keys of a kind. Two or more keys that an earlier kind has become one line."""
    listed[kind] = [*items]
    shared: list[str] = []
    source = ""
    for other in [name for name in listed if name != kind]:
        common = [item for item in listed[kind] if item in listed[other]]
        if len(common) > max(1, len(shared)):
            shared, source = common, other
    if shared:
        names = ", ".join(item.split()[1].rstrip(":") for item in shared)
        yield f"- {names}: as for `{source}`."
    yield from (item for item in listed[kind] if item not in shared)


def silent() -> Iterator[str]:
    """Yield the values that no guard inspects, grouped by the values that are skipped."""
    yield "| value | skipped if it is |"
    yield "|---|---|"
    requests = ", ".join(f"`{name}`" for name in SILENT)
    yield f"| request: {requests} | anything |"
    paths: dict[str, list[str]] = {}
    for level, names in SILENT_ANSWER.items():
        steps = (f"{step}." if step in ("message", "delta") else f"{step}[]." for step in level)
        way = "".join(steps)
        for name, (_, what) in names.items():
            paths.setdefault(what, []).append(f"`{way}{name}`")
    for what, some in paths.items():
        yield f"| response: {', '.join(some)} | {what} |"


def detectors() -> Iterator[str]:
    yield "| Enkrypt's detector | summary | guards |"
    yield "|---|---|---|"
    told: dict[tuple[str, str], list[str]] = {}
    for word, kind in KINDS.items():
        for each in kind.detections:
            told.setdefault((each.name, each.word), []).append(f"`{word}`")
    for (name, word), by in told.items():
        yield f"| `{name}` | `{word}` | {', '.join(by)} |"


def keys_list(model: type[Section], names: Iterable[str]) -> Iterator[str]:
    """Yield a list item for each key, with its default and description."""
    for name in names:
        field, description = model.model_fields[name], descriptions_of(model).get(name)
        default = _default(field, description)
        suffix = f" ({default})" if default else ""
        yield f"- `{field.alias or name}`{suffix}: {_line(description)}"


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
    shown = ", ".join(map(str, value)) if isinstance(value, list) else value
    return f"default `{shown}`"


def _line(text: str | None) -> str:
    return " ".join((text or "").split())


def _held_back(word: str, kind: GuardKind[Any]) -> str:
    """Say how much of a stream waits for it, as it is made of its defaults."""
    if kind.asks:
        return WHOLE
    try:
        made = kind.make(kind.Keys(**kind.example), NO_CONTEXT)
    except ValueError:
        return SAID.get(word, "")
    if isinstance(made, MostCost):
        return "Reads no text."
    looks: Any = made
    if is_contextual(looks):
        looks = looks.about(ANYTHING)
    if not is_detector(looks) or looks.lookback is None:
        return WHOLE
    if partial_matcher_of(looks) is not None:
        return f"Withholds at most {looks.lookback} characters."
    return f"Withholds {looks.lookback} characters."


def _without_action(fields: Mapping[str, FieldInfo]) -> str:
    default = fields["action"].default if "action" in fields else "block"
    return "" if default == "block" else f" Default action: `{default}`."


def _deadline(fields: Mapping[str, FieldInfo]) -> str:
    if "deadline" not in fields:
        return ""
    return f" Default deadline: {fields['deadline'].default:g}s."
