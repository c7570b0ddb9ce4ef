"""Strict YAML reader with bounds and the location of every key and value.

Only ``true``, ``false``, ``null`` and decimal numbers are not text, so ``no`` and ``012`` are text.
Duplicate keys, tags, merge keys, aliases and tabs are rejected. It reads events, because a parser
that builds a tree exhausts the stack on deeply nested files.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from proxy.errors.words import quote
from proxy.policy.files.source import Document, KeyPath, SourceLocation, describe_unexpected_error

MAX_FILE_BYTES = 4 * 1024 * 1024
MAX_DEPTH = 32
MAX_NODES = 100_000
LIST_SECTIONS = frozenset({"revoked"})
QUOTED_STYLES = ("'", '"', "|", ">")
_INT = re.compile(r"-?(0|[1-9][0-9]{0,17})")
_FLOAT = re.compile(r"-?(0|[1-9][0-9]*)\.[0-9]+")
_WORDS: dict[str, Any] = {"true": True, "false": False, "null": None, "~": None, "": None}


def read_file(file: Path, name: str, document: Document) -> bytes:
    """Merge the sections of a file into the document. Its locations contain ``name``.

    Return the bytes that were read, at most ``MAX_FILE_BYTES`` + 1.
    """
    known_problems = len(document.problems)
    content = read_bytes(file, name, document)
    if len(document.problems) == known_problems:
        parse(content, name, document)
    return content


def read_bytes(file: Path, name: str, document: Document) -> bytes:
    """Return the content of a file. Report a file that is too large or unreadable."""
    start = SourceLocation(name, 1, 1)
    try:
        content = read_one_past_limit(file, MAX_FILE_BYTES)
    except OSError as error:
        document.report_incomplete(start, (), f"cannot be read: {error.strerror}")
        return b""
    if len(content) > MAX_FILE_BYTES:
        document.report_incomplete(start, (), f"is larger than {MAX_FILE_BYTES} bytes")
    return content


def parse(content: bytes, name: str, document: Document) -> None:
    """Merge the sections of a file's content into the document. Raise nothing."""
    start = SourceLocation(name, 1, 1)
    if not content.strip():
        message = "is empty. Remove the file, or write it again if it is incomplete."
        document.report_incomplete(start, (), message)
    try:
        _parse_text(content.decode("utf-8"), name, document)
    except UnicodeDecodeError:
        document.report_incomplete(start, (), "is not UTF-8 text")
    except yaml.YAMLError:
        document.report_incomplete(start, (), "is not valid YAML")
    except Exception as error:  # noqa: BLE001  # other files are read too
        document.report_incomplete(start, (), describe_unexpected_error(error))


def read_one_past_limit(file: Path, limit: int) -> bytes:
    """Return at most ``limit`` + 1 bytes. Raise ``OSError``, also for a pipe or a device."""

    def open_nonblocking(path: str, flags: int) -> int:  # a pipe may have no writer
        return os.open(path, flags | os.O_NONBLOCK)

    with open(file, "rb", opener=open_nonblocking) as stream:
        if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
            raise OSError(errno.EINVAL, "not a regular file")
        return stream.read(limit + 1)


def _parse_text(text: str, name: str, document: Document) -> None:
    events = yaml.parse(text, Loader=yaml.CSafeLoader)
    try:
        _YamlReader(events, name, document).read()
    except _FatalProblem as problem:
        document.report_incomplete(*problem.args)
    except yaml.MarkedYAMLError as error:
        location = _make_location(error.problem_mark, name)
        line = "".join(text.splitlines()[location.line - 1 : location.line])
        message = f"is not valid YAML: {error.problem}" if error.problem else "is not valid YAML"
        if "\t" in line[: location.column]:
            message = "a tab is used for indentation. Use spaces."
        document.report_incomplete(location, (), message)


def _make_location(mark: Any, name: str) -> SourceLocation:
    line, column = (mark.line, mark.column) if mark else (0, 0)
    return SourceLocation(name, line + 1, column + 1)


class _FatalProblem(Exception):
    """Ends the reading of a file. The arguments are those of ``Document.report_incomplete``."""


class _YamlReader:
    def __init__(self, events: Iterator[yaml.Event], name: str, document: Document) -> None:
        self._events = events
        self._name = name
        self._document = document
        self._nodes = 0

    def read(self) -> None:
        """Merge the sections of a file. A name may be defined once in the folder."""
        documents = 0
        for event in self._events:
            if isinstance(event, yaml.DocumentStartEvent):
                documents += 1
                if documents > 1:
                    message = "a file must contain only one YAML document. Remove the line `---`."
                    raise _FatalProblem(self._locate_event(event), (), message)
            elif isinstance(event, yaml.MappingStartEvent):
                self._read_sections()
            elif isinstance(event, yaml.NodeEvent):
                self._read_value(event, (), 1)
                message = "must be a mapping of sections such as upstreams: and deployments:"
                self._report(event, (), message)

    def _read_sections(self) -> None:
        names: set[str] = set()
        for name, key in self._read_keys((), 1):
            path: KeyPath = (name,)
            first_place = self._document.locations.setdefault(path, self._locate_event(key))
            if name in names:
                self._report(key, path, f"is already defined at {first_place}")
            names.add(name)
            self._read_section(path, key)

    def _read_section(self, path: KeyPath, key: yaml.Event) -> None:
        """Merge a section. Entries before a fatal error in the file stay."""
        name = str(path[0])
        is_list = name in LIST_SECTIONS
        event = self._read_counted_event(path)
        start = yaml.SequenceStartEvent if is_list else yaml.MappingStartEvent
        section = self._document.data.setdefault(name, [] if is_list else {})
        if isinstance(event, start) and self._is_supported_event(event, path):
            if is_list:
                self._read_items(path, 1, section)
            else:
                self._read_mapping(path, 1, section)
            if not section:
                self._document.empty_sections.add(name)
        elif self._read_value(event, path, 1) is not None:
            self._report(key, path, f"must be a {'list' if is_list else 'mapping'}")

    def _read_mapping(self, path: KeyPath, depth: int, values: dict[str, Any]) -> None:
        for name, key in self._read_keys(path, depth):
            inner = (*path, name)
            if name in values:
                first_place = self._document.get_location(inner)
                self._report(key, inner, f"is already defined at {first_place}")
                self._read_value(self._read_counted_event(inner), inner, depth + 1)
                continue
            self._document.locations[inner] = self._locate_event(key)
            values[name] = self._read_value(self._read_counted_event(inner), inner, depth + 1)

    def _read_keys(self, path: KeyPath, depth: int) -> Iterator[tuple[str, yaml.Event]]:
        """Yield each key of a mapping. The caller reads the value before the next key."""
        while not isinstance(event := self._read_counted_event(path), yaml.MappingEndEvent):
            if not isinstance(event, yaml.ScalarEvent):
                self._report(event, path, "a key must be plain text, not a list or mapping")
                self._read_value(event, path, depth + 1)
            elif event.value == "<<" and event.style not in QUOTED_STYLES:
                message = "YAML merge keys are not supported. Repeat the values instead."
                self._report(event, path, message)
            elif self._is_supported_event(event, path):
                yield event.value, event
                continue
            self._read_value(self._read_counted_event(path), path, depth + 1)

    def _read_value(self, event: yaml.Event, path: KeyPath, depth: int) -> Any:
        """Return the value that starts with an event, or None if it is rejected."""
        if depth > MAX_DEPTH:
            message = f"is nested more than {MAX_DEPTH} levels deep"
            raise _FatalProblem(self._locate_event(event), path, message)
        is_plain = self._is_supported_event(event, path)
        value: Any = None
        if isinstance(event, yaml.MappingStartEvent):
            value = {}
            self._read_mapping(path, depth, value)
        elif isinstance(event, yaml.SequenceStartEvent):
            value = []
            self._read_items(path, depth, value)
        elif isinstance(event, yaml.ScalarEvent):
            value = _parse_scalar(event)
        return value if is_plain else None

    def _read_items(self, path: KeyPath, depth: int, items: list[Any]) -> None:
        while not isinstance(event := self._read_counted_event(path), yaml.SequenceEndEvent):
            inner = (*path, len(items))
            self._document.locations[inner] = self._locate_event(event)
            items.append(self._read_value(event, inner, depth + 1))

    def _is_supported_event(self, event: yaml.Event, path: KeyPath) -> bool:
        """Return True for an event without alias and explicit tag. Report others."""
        if isinstance(event, yaml.AliasEvent):
            self._report(event, path, "YAML aliases are not supported. Repeat the value instead.")
            return False
        tag = getattr(event, "tag", None)
        if tag is not None:
            self._report(event, path, f"the YAML tag {quote(tag)} is not supported. Remove it.")
        return tag is None

    def _read_counted_event(self, path: KeyPath) -> yaml.Event:
        event = next(self._events)
        self._nodes += 1
        if self._nodes > MAX_NODES:
            message = f"exceeds the maximum of {MAX_NODES} values per file. Split the file."
            raise _FatalProblem(self._locate_event(event), path, message)
        return event

    def _locate_event(self, event: yaml.Event) -> SourceLocation:
        return _make_location(event.start_mark, self._name)

    def _report(self, event: yaml.Event, path: KeyPath, message: str) -> None:
        self._document.report_at(self._locate_event(event), path, message)


def _parse_scalar(event: yaml.ScalarEvent) -> Any:
    text: str = event.value
    if event.style in QUOTED_STYLES:  # text, whatever it looks like
        return text
    if text in _WORDS:
        return _WORDS[text]
    if _INT.fullmatch(text):
        return int(text)
    return float(text) if _FLOAT.fullmatch(text) else text
