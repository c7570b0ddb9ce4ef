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

from proxy.errors.words import quoted
from proxy.policy.files.source import Document, KeyPath, SourceLocation, unexpected

MAX_FILE_BYTES = 4 * 1024 * 1024
MAX_DEPTH = 32
MAX_NODES = 100_000
LISTS = frozenset({"revoked"})  # the sections that are lists, not mappings
QUOTED = ("'", '"', "|", ">")
_INT = re.compile(r"-?(0|[1-9][0-9]{0,17})")
_FLOAT = re.compile(r"-?(0|[1-9][0-9]*)\.[0-9]+")
_WORDS: dict[str, Any] = {"true": True, "false": False, "null": None, "~": None, "": None}


def read_file(file: Path, shown: str, into: Document) -> bytes:
    """Merge the sections of a file into the document.

    Return the bytes that were read, at most ``MAX_FILE_BYTES`` + 1.
    """
    unread_files = len(into.unread)
    raw = read_bytes(file, shown, into)
    if len(into.unread) == unread_files:
        parse(raw, shown, into)
    return raw


def read_bytes(file: Path, shown: str, into: Document) -> bytes:
    """Return the content of a file. Report a file that is too large or unreadable."""
    start = SourceLocation(shown, 1, 1)
    try:
        raw = read_limited(file, MAX_FILE_BYTES)
    except OSError as error:
        into.give_up(start, (), f"cannot be read: {error.strerror}")
        return b""
    if len(raw) > MAX_FILE_BYTES:
        into.give_up(start, (), f"is larger than {MAX_FILE_BYTES} bytes")
    return raw


def parse(raw: bytes, shown: str, into: Document) -> None:
    """Merge the sections of a file's content into the document. Raises nothing."""
    start = SourceLocation(shown, 1, 1)
    if not raw.strip():
        into.give_up(start, (), "is empty. Remove the file, or write it again if it is incomplete.")
    try:
        _read_text(raw.decode("utf-8"), shown, into)
    except UnicodeDecodeError:
        into.give_up(start, (), "is not UTF-8 text")
    except yaml.YAMLError:
        into.give_up(start, (), "is not valid YAML")
    except Exception as error:  # noqa: BLE001  # other files are read too
        into.give_up(start, (), unexpected(error))


def read_limited(file: Path, limit: int) -> bytes:
    """Return at most ``limit`` + 1 bytes. Raise ``OSError``, also for a pipe or a device."""

    def open_nonblocking(path: str, flags: int) -> int:  # a pipe may have no writer
        return os.open(path, flags | os.O_NONBLOCK)

    with open(file, "rb", opener=open_nonblocking) as opened:
        if not stat.S_ISREG(os.fstat(opened.fileno()).st_mode):
            raise OSError(errno.EINVAL, "not a regular file")
        return opened.read(limit + 1)


def _read_text(text: str, shown: str, into: Document) -> None:
    events = yaml.parse(text, Loader=yaml.CSafeLoader)
    try:
        _YamlReader(events, shown, into).file()
    except _EndedEarly as end:
        into.give_up(end.at, end.path, end.message, text)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        at = _at(mark, shown)
        before = "".join(text.splitlines()[at.line - 1 : at.line])[: at.column]
        message = f"is not valid YAML: {error.problem}" if error.problem else "is not valid YAML"
        if "\t" in before:
            message = "a tab is used for indentation. Use spaces."
        into.give_up(at, (), message, text)


def _at(mark: Any, shown: str) -> SourceLocation:
    line, column = (mark.line, mark.column) if mark else (0, 0)
    return SourceLocation(shown, line + 1, column + 1)


class _EndedEarly(Exception):
    """The rest of a file is not read."""

    def __init__(self, at: SourceLocation, path: KeyPath, message: str) -> None:
        self.at = at
        self.path = path
        self.message = message


class _YamlReader:
    """Converts events to data, and records locations and problems."""

    def __init__(self, events: Iterator[yaml.Event], shown: str, into: Document) -> None:
        self.events = events
        self.shown = shown
        self.into = into
        self.nodes = 0

    def file(self) -> None:
        """Merge the sections of a file. A name may be defined once in the folder."""
        documents = 0
        for event in self.events:
            if isinstance(event, yaml.DocumentStartEvent):
                documents += 1
                if documents > 1:
                    raise _EndedEarly(
                        self.at(event),
                        (),
                        "a file must contain only one YAML document. Remove the line `---`.",
                    )
            elif isinstance(event, yaml.MappingStartEvent):
                self.sections()
            elif isinstance(event, yaml.NodeEvent):
                self.value(event, (), 1)
                self.into.refuse(
                    self.at(event),
                    (),
                    "must be a mapping of sections such as upstreams: and deployments:",
                )

    def sections(self) -> None:
        here: set[str] = set()
        for name, key in self.keys((), 1):
            path: KeyPath = (name,)
            first = self.into.places.setdefault(path, self.at(key))
            if name in here:
                self.refuse(key, path, f"is already defined at {first}")
            here.add(name)
            self.section(path, key)

    def section(self, path: KeyPath, key: yaml.Event) -> None:
        """Merge a section. The items of a list in an incomplete file count too."""
        name = str(path[0])
        event = self.next(path)
        start = yaml.SequenceStartEvent if name in LISTS else yaml.MappingStartEvent
        section = self.into.data.setdefault(name, [] if name in LISTS else {})
        if isinstance(event, start) and self.plain(event, path):
            if name in LISTS:
                self.items(path, 1, section)
            else:
                self.mapping(path, 1, section)
            if not section:
                self.into.empty.add(name)
        elif self.value(event, path, 1) is not None:
            self.refuse(key, path, f"must be a {'list' if name in LISTS else 'mapping'}")
            self.into.leave_out(path)

    def mapping(self, path: KeyPath, depth: int, into: dict[str, Any]) -> None:
        for name, key in self.keys(path, depth):
            inner = (*path, name)
            if name in into:
                self.refuse(key, inner, f"is already defined at {self.into.place(inner)}")
                self.value(self.next(inner), inner, depth + 1)
                continue
            self.into.places[inner] = self.at(key)
            into[name] = self.value(self.next(inner), inner, depth + 1)

    def keys(self, path: KeyPath, depth: int) -> Iterator[tuple[str, yaml.Event]]:
        """Yield each key of a mapping. The caller reads the value before the next key."""
        while not isinstance(event := self.next(path), yaml.MappingEndEvent):
            if not isinstance(event, yaml.ScalarEvent):
                self.refuse(event, path, "a key must be plain text, not a list or mapping")
                self.value(event, path, depth + 1)
            elif event.value == "<<" and event.style not in QUOTED:
                self.refuse(
                    event, path, "YAML merge keys are not supported. Repeat the values instead."
                )
            elif self.plain(event, path):
                yield event.value, event
                continue
            self.value(self.next(path), path, depth + 1)

    def value(self, event: yaml.Event, path: KeyPath, depth: int) -> Any:
        """Return the value that starts with an event, or None if it is rejected."""
        if depth > MAX_DEPTH:
            message = f"is nested more than {MAX_DEPTH} levels deep"
            raise _EndedEarly(self.at(event), path, message)
        good = self.plain(event, path)
        value: Any = None
        if isinstance(event, yaml.MappingStartEvent):
            value = {}
            self.mapping(path, depth, value)
        elif isinstance(event, yaml.SequenceStartEvent):
            value = []
            self.items(path, depth, value)
        elif isinstance(event, yaml.ScalarEvent):
            value = _scalar(event)
        return value if good else None

    def items(self, path: KeyPath, depth: int, into: list[Any]) -> None:
        while not isinstance(event := self.next(path), yaml.SequenceEndEvent):
            inner = (*path, len(into))
            self.into.places[inner] = self.at(event)
            into.append(self.value(event, inner, depth + 1))

    def plain(self, event: yaml.Event, path: KeyPath) -> bool:
        """Return True for an event without alias and explicit tag. Report others."""
        if isinstance(event, yaml.AliasEvent):
            self.refuse(event, path, "YAML aliases are not supported. Repeat the value instead.")
            return False
        tag = getattr(event, "tag", None)
        if tag is not None:
            self.refuse(event, path, f"the YAML tag {quoted(tag)} is not supported. Remove it.")
        return tag is None

    def next(self, path: KeyPath) -> yaml.Event:
        event = next(self.events)
        self.nodes += 1
        if self.nodes > MAX_NODES:
            raise _EndedEarly(
                self.at(event),
                path,
                f"exceeds the maximum of {MAX_NODES} values per file. Split the file.",
            )
        return event

    def at(self, event: yaml.Event) -> SourceLocation:
        return _at(event.start_mark, self.shown)

    def refuse(self, event: yaml.Event, path: KeyPath, message: str) -> None:
        self.into.refuse(self.at(event), path, message)


def _scalar(event: yaml.ScalarEvent) -> Any:
    text: str = event.value
    if event.style in QUOTED:  # text, whatever it looks like
        return text
    if text in _WORDS:
        return _WORDS[text]
    if _INT.fullmatch(text):
        return int(text)
    return float(text) if _FLOAT.fullmatch(text) else text
