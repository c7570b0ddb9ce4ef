"""Copies a request or a response with some of its texts replaced."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, cast

from proxy.guards.text.base64_text import PayloadPathStep
from proxy.guards.text.json_strings import replace_text_spans
from proxy.guards.text.members import is_in_choice
from proxy.guards.text.walk import MemberName, Path
from proxy.types import Json


def replace_texts(document: Json, texts: Mapping[Path, str]) -> Json:
    """Return a copy of a document with other texts at some paths.

    Without texts it returns the same object. Log probabilities of a changed choice are removed,
    because their tokens spell the text.
    """
    if not texts:
        return document
    texts = _merge_payload_texts(document, texts)
    root = dict(document)
    copies: dict[Path, Any] = {(): root}
    arguments: defaultdict[Path, dict[int, str]] = defaultdict(dict)
    for path, text in texts.items():
        step = path[-1]
        if isinstance(step, MemberName):
            continue
        parent = _copy_path(copies, path[:-1])
        if isinstance(step, int) and isinstance(parent, str):
            arguments[path[:-1]][step] = text
        else:
            parent[step] = text if isinstance(parent[step], str | int | float) else None
    for path, segments in arguments.items():
        parent = _copy_path(copies, path[:-1])
        parent[path[-1]] = replace_text_spans(parent[path[-1]], segments)
    _rename_members(copies, texts)
    _remove_logprobs(copies, texts)
    return root


def map_paths_to_copy(old_doc: Json, new_doc: Json, paths: Iterable[Path]) -> list[Path]:
    """Return the paths in ``new_doc``, a copy of ``old_doc`` in which members may be renamed."""
    names: dict[Path, dict[Any, str]] = {}
    moved_paths: list[Path] = []
    for path in paths:
        old, new, steps = cast(Any, old_doc), cast(Any, new_doc), [*path]
        for depth, step in enumerate(path):
            if isinstance(old, dict) and not isinstance(step, int):
                if path[:depth] not in names:
                    names[path[:depth]] = dict(zip(old, new, strict=True))
                steps[depth] = names[path[:depth]][step]
            elif not isinstance(old, list):
                break  # the path goes on in an event or a text span of arguments
            old, new = old[step], new[steps[depth]]
        moved_paths.append(tuple(steps))
    return moved_paths


def _merge_payload_texts(document: Json, texts: Mapping[Path, str]) -> Mapping[Path, str]:
    """Return the texts, with the whole string of data in place of the texts that it encodes."""
    inside: defaultdict[Path, dict[PayloadPathStep, str]] = defaultdict(dict)
    settled: dict[Path, str] = {}
    for path, text in texts.items():
        if isinstance(path[-1], PayloadPathStep):
            inside[path[:-1]][path[-1]] = text
        else:
            settled[path] = text
    for path, parts in inside.items():
        as_arguments = settled.pop((*path, 0), None)
        masked_string = settled.get(path, as_arguments)
        value: Any = document
        for step in path:
            value = step.name if isinstance(step, MemberName) else value[step]
        settled[path] = _rebuild_data(str(value), parts, masked_string)
    return settled


def _rebuild_data(
    original: str, parts: Mapping[PayloadPathStep, str], masked_string: str | None
) -> str:
    """Return the string of data with changed ``parts``.

    If guards also changed its base64, in ``masked_string``, the text replaces the whole string.
    """
    run = original[original.find(";base64,") + 1 :]
    is_base64_changed = masked_string is not None and not masked_string.endswith(run)
    for payload, text in parts.items():
        if not payload.leads_to_head:
            return text if is_base64_changed else payload.encode(text)
    ((head, text),) = parts.items()
    return text if is_base64_changed else text + original[len(head.head) :]


def _copy_path(copies: dict[Path, Any], path: Path) -> Any:
    """Return the copy of the value at a path, and copy its parents. A text is not copied."""
    for size in range(1, len(path) + 1):
        prefix = path[:size]
        if prefix in copies:
            continue
        parent, step = copies[prefix[:-1]], prefix[-1]
        value = parent[step]
        if not isinstance(value, dict | list):
            return value
        copies[prefix] = parent[step] = value.copy()
    return copies[path]


def _remove_logprobs(copies: dict[Path, Any], texts: Mapping[Path, str]) -> None:
    for path in texts:
        if is_in_choice(path):
            choice = _copy_path(copies, path[:2])
            if isinstance(choice, dict) and choice.get("logprobs") is not None:
                choice["logprobs"] = None


def _rename_members(copies: dict[Path, Any], texts: Mapping[Path, str]) -> None:
    """Rename members. A name that is already in use gets a number: two may be masked alike."""
    renames: defaultdict[Path, dict[str, str]] = defaultdict(dict)
    for path, text in texts.items():
        if isinstance(path[-1], MemberName):
            renames[path[:-1]][path[-1].name] = text
    for path in renames:
        _copy_path(copies, path)
    for path, names in renames.items():
        copy = copies[path]
        members = [(names.get(name, name), value) for name, value in copy.items()]
        copy.clear()
        # The last number of each name, so that thousands of equal names take linear time.
        numbers: defaultdict[str, int] = defaultdict(lambda: 1)
        for name, value in members:
            free = name
            while free in copy:
                numbers[name] += 1
                free = f"{name}_{numbers[name]}"
            copy[free] = value
