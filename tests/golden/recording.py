"""File format of golden streams: upstream bytes, and what each client received for them.

A file has sections. A line ``=== name, name`` starts one; labels that share their bytes share the
section. ``=== about`` and ``=== calls`` hold lines of the form ``name: value``, all other sections
hold the bytes of a stream. The writer adds one line break after each body, the reader removes it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from proxy.types.events import FamilyName

Json = dict[str, Any]
FOLDER = Path(__file__).parent / "streams"
NAMES = sorted(path.stem for path in FOLDER.glob("*.txt"))
"""The names of all recordings."""
FAMILIES = ("chat", "messages", "responses", "completions")
GUARDS = ("bare", "masked", "flagged")
UPSTREAM, ABOUT, CALLS = "upstream", "about", "calls"
_HEADER = re.compile(rb"^=== (.+)\n", re.MULTILINE)


@dataclass(frozen=True)
class Output:
    """What one client received, and what the proxy recorded about the call."""

    body: bytes
    call: Json


@dataclass(frozen=True)
class Recording:
    """A stream of one upstream, and the outputs by label (``chat masked``).

    ``ends`` is ``cleanly``, or ``early`` if the upstream closes the connection without the last
    chunk of the HTTP body. ``sealed``: the proxy has a secret for response ids. ``defects`` are
    sentences about wrong output that a later change corrects.
    """

    name: str
    family: FamilyName
    about: str
    upstream: bytes
    ends: str = "cleanly"
    sealed: bool = False
    defects: tuple[str, ...] = ()
    outputs: Mapping[str, Output] = field(default_factory=dict)

    @property
    def path(self) -> Path:
        return FOLDER / f"{self.name}.txt"


def read(name: str) -> Recording:
    """Read a recording from its file."""
    sections = _sections((FOLDER / f"{name}.txt").read_bytes())
    about = [line.partition(": ") for line in sections.pop(ABOUT).decode().splitlines()]
    values = {name: value for name, _, value in about}
    calls = dict(_calls(sections.pop(CALLS, b"")))
    upstream = sections.pop(UPSTREAM)
    return Recording(
        name=name,
        family=values[UPSTREAM],
        about=values[ABOUT],
        upstream=upstream,
        ends=values.get("ends", "cleanly"),
        sealed="sealed" in values,
        defects=tuple(value for name, _, value in about if name == "defect"),
        outputs={label: Output(sections[label], call) for label, call in calls.items()},
    )


def text_of(recording: Recording) -> bytes:
    """Return the content of the file of a recording."""
    about = {UPSTREAM: recording.family, ABOUT: recording.about}
    about |= {"ends": recording.ends} if recording.ends != "cleanly" else {}
    about |= {"sealed": "ids of responses"} if recording.sealed else {}
    lines = [*about.items(), *(("defect", defect) for defect in recording.defects)]
    outputs = recording.outputs
    bodies = {UPSTREAM: recording.upstream, **{place: item.body for place, item in outputs.items()}}
    calls = {label: json.dumps(output.call).encode() for label, output in outputs.items()}
    sections = [(ABOUT, _join_lines(lines)), *_grouped(bodies)]
    sections += [(CALLS, _join_lines((label, call.decode()) for label, call in _grouped(calls)))]
    return b"".join(b"=== %b\n%b\n" % (name.encode(), body) for name, body in sections)


def _sections(raw: bytes) -> dict[str, bytes]:
    """Return the bodies of all sections by label."""
    bodies: dict[str, bytes] = {}
    headers = [*_HEADER.finditer(raw)]
    ends = [header.start() for header in headers[1:]]
    for header, end in zip(headers, [*ends, len(raw)], strict=True):
        body = raw[header.end() : end - 1]
        bodies |= dict.fromkeys(header[1].decode().split(", "), body)
    return bodies


def _calls(section: bytes) -> Iterable[tuple[str, Json]]:
    for line in section.decode().splitlines():
        labels, _, value = line.partition(": ")
        call = json.loads(value)
        yield from ((label, call) for label in labels.split(", "))


def _grouped(bodies: Mapping[str, bytes]) -> list[tuple[str, bytes]]:
    """Return each body once, with all of its labels."""
    labels: dict[bytes, list[str]] = {}
    for label, body in bodies.items():
        labels.setdefault(body, []).append(label)
    return [(", ".join(names), body) for body, names in labels.items()]


def _join_lines(lines: Iterable[tuple[str, str]]) -> bytes:
    return "".join(f"{name}: {value}\n" for name, value in lines).encode()
