"""The generated parts of the page on guards: every kind with its keys, and Enkrypt's words."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, get_args

from pydantic.fields import FieldInfo

from proxy.dialects.detections import DETECTORS
from proxy.guardrails.kinds.table import KINDS
from proxy.guardrails.text.frame import SILENT_ANSWER
from proxy.guardrails.text.walk import SILENT
from proxy.policy.files.texts import NAMES
from proxy.policy.schema.guards import COMMON, GuardConfig
from proxy.policy.schema.guards_asking import Known
from proxy.types.guard import Question, is_contextual, is_detector

# What a kind needs beyond its defaults to be made, for its reach.
EXAMPLES: dict[str, dict[str, Any]] = {
    "copyright": {"texts": ["word " * 20]},
    "language": {"allowed": ["en"]},
    "length": {"characters": 1},
    "topic": {"banned": {"stocks": ["shares"]}},
}
WHOLE = "It judges whole texts, so a stream that it may change waits for its end."
# Kinds that cannot be made here.
SAID = {
    "keywords": "Of a stream it holds back the longest word or match that there can be.",
    "onnx": WHOLE,
}
ANYTHING = Question("an example of a system prompt", "what was asked", "what was known")


def _classes() -> Iterator[tuple[str, type[GuardConfig]]]:
    """Give the class of each kind, by the word that policies use."""
    for each in get_args(get_args(Known)[0]):
        yield get_args(each.model_fields["guard"].annotation)[0], each


def common() -> Iterator[str]:
    yield from _table(GuardConfig.model_fields.items())


def kinds() -> Iterator[str]:
    for word, kind in _classes():
        yield f"### `{word}`"
        yield ""
        waits = f"{_held_back(word, kind)}{_without_action(kind)}{_deadline(kind)}"
        yield f"{_line(kind.__doc__)} {waits}"
        own = [(n, f) for n, f in kind.model_fields.items() if n not in COMMON | {"guard"}]
        if own:
            yield ""
            yield from _table(own)
        yield ""


def silent() -> Iterator[str]:
    """Return what no guard looks at, and as what alone."""
    yield "| where | as what | why |"
    yield "|---|---|---|"
    for name, why in SILENT.items():
        yield f"| `{name}` of a question | anything | {why} |"
    for level, names in SILENT_ANSWER.items():
        steps = (f"{step}." if step in ("message", "delta") else f"{step}[]." for step in level)
        way = "".join(steps)
        for name, (check, why) in names.items():
            what = _line(check.__doc__).removeprefix("True if a value is ").rstrip(".")
            yield f"| `{way}{name}` of an answer | {what} | {why} |"


def detectors() -> Iterator[str]:
    yield "| Enkrypt's detector | word of the summary | guards |"
    yield "|---|---|---|"
    told: dict[tuple[str, str], list[str]] = {}
    for kind, those in DETECTORS.items():
        for each in those:
            told.setdefault((each.name, each.summary[0]), []).append(f"`{kind}`")
    for (name, word), by in told.items():
        yield f"| `{name}` | `{word}` | {', '.join(by)} |"


def _table(fields: Any) -> Iterator[str]:
    yield "| key | default | what it says |"
    yield "|---|---|---|"
    for name, field in fields:
        yield f"| `{field.alias or name}` | {_default(field)} | {_line(field.description)} |"


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "must be said"
    value = field.get_default(call_default_factory=True)
    if value is None or value in ([], {}):
        return ""
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    return f"`{', '.join(value)}`" if isinstance(value, list) else f"`{value}`"


def _line(text: str | None) -> str:
    return " ".join((text or "").split()).replace("|", "\\|")


def _held_back(word: str, kind: type[GuardConfig]) -> str:
    """Say how much of a stream waits for it, as it is made of its defaults."""
    if word not in KINDS:
        return "It reads no text."
    if KINDS[word].asks:
        return "It asks about whole texts, so a stream that it may change waits for its end."
    fields = kind.model_fields.items()
    said = {n: f.get_default(call_default_factory=True) for n, f in fields if not f.is_required()}
    options = {n: v for n, v in said.items() if n not in COMMON} | EXAMPLES.get(word, {})
    options |= {name: "" for name in NAMES if options.get(name, "") is None}
    try:
        made: Any = KINDS[word].make(options)
    except (KeyError, ValueError):
        return SAID.get(word, "")
    if is_contextual(made):
        made = made.about(ANYTHING)
    if not is_detector(made) or made.reach is None:
        return WHOLE
    return f"Of a stream it holds back {made.reach} characters."


def _without_action(kind: type[GuardConfig]) -> str:
    default = kind.model_fields["action"].default
    return "" if default == "block" else f" Where no action is said, it is `{default}`."


def _deadline(kind: type[GuardConfig]) -> str:
    default = kind.model_fields["deadline"].default
    if default == GuardConfig.model_fields["deadline"].default:
        return ""
    return f" Its deadline is {default:g}s where none is said."
