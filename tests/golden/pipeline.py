"""Runs recorded streams through reader, sequencer and writer, without sockets.

The order of events is checked after each stage.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from proxy.dialects import DIALECTS
from proxy.dialects.families import FAMILIES, needs_translation
from proxy.dialects.family import ReadOptions, WriteOptions
from proxy.dialects.frames.reader import MAX_EVENT_BYTES, SurrogateJoiner, raise_reported_error
from proxy.dialects.frames.sequencer import Sequencer
from proxy.dialects.wire import sse
from proxy.dialects.wire.strict_json import DocumentParser
from proxy.errors import ProxyError
from proxy.types import Call, Endpoint, RequestHead
from proxy.types.events import FamilyName, Frame
from tests.checked import OrderChecker
from tests.golden.recording import NAMES, read
from tests.golden.replay import MODEL, clients

CLIENTS: dict[str, tuple[str, Endpoint]] = {
    "chat": ("openai", "chat"),
    "messages": ("anthropic", "chat"),
    "responses": ("openai", "responses"),
    "completions": ("openai", "completions"),
}
"""The dialect and the endpoint of the clients of each family."""
PAIRS: list[tuple[str, Any]] = [
    (name, client)
    for name in NAMES
    for client in clients(read(name))
    if client in FAMILIES and read(name).family in FAMILIES
]
"""Names of recordings, and the families of their clients."""


def call_of(client: str, *, stream: bool = True) -> Call:
    """Return a call of a client of a family."""
    dialect, endpoint = CLIENTS[client]
    head = RequestHead(dialect, endpoint, "/", "req_1")
    return Call(head, {}, requested_models=(MODEL,), stream=stream, wants_usage=True)


def written(client: FamilyName, frames: Iterable[Frame], *, stream: bool = True) -> bytes:
    """Return what a client gets for frames."""
    call = call_of(client, stream=stream)
    writer = FAMILIES[client].writer(WriteOptions(call, not stream))
    return b"".join(map(writer.feed, frames))


@dataclass
class Pipeline:
    """Reads the documents of an upstream into the frames for a client. `error` is the error that
    ended the stream, if any."""

    upstream: FamilyName
    client: FamilyName
    inspect: bool = False
    error: ProxyError | None = None
    shown: list[Frame] = field(default_factory=list)

    def __post_init__(self) -> None:
        family, client = FAMILIES[self.upstream], FAMILIES[self.client]
        is_translated = needs_translation(self.client, self.upstream)
        options = ReadOptions(call_of(self.client), inspect=self.inspect)
        options = replace(options, is_translated=is_translated, shown_as=client.shown_as)
        splits = self.inspect or is_translated
        self.family = family
        self.joiner = SurrogateJoiner()
        self.server = DIALECTS[CLIENTS[self.upstream][0]].server
        self.reader = family.reader(options)
        self.read = OrderChecker(split=splits)
        is_sequenced = is_translated and client.has_part_events
        is_sequenced |= self.inspect and family.has_part_events
        self.order = Sequencer() if is_sequenced else None
        self.sequenced = OrderChecker(split=splits, sequenced=is_sequenced)

    def frames(self, documents: Sequence[bytes]) -> list[Frame]:
        """Return the frames that the client gets, up to an error of the upstream."""
        try:
            for document in documents:
                if not self.read.stopped:
                    self._take(self._frames(document))
            if not self.read.stopped:
                self._take(self.reader.end())
        except ProxyError as error:
            self.error = error
            self._show(self.order.end() if self.order is not None else ())
        return self.shown

    def _frames(self, document: bytes) -> Sequence[Frame]:
        if document == sse.DONE:
            return self.reader.end(has_done_marker=True)
        doc = DocumentParser().read_with_surrogates(document) or DocumentParser().read(document)
        if "error" in doc or self.family.find_failure is not None:
            raise_reported_error(doc, self.server, self.family)
        return [*map(self.joiner.feed, self.reader.read(doc, document))]

    def _take(self, frames: Sequence[Frame]) -> None:
        for frame in self.read.each(frames):
            self._show([frame] if self.order is None else self.order.feed(frame))

    def _show(self, frames: Sequence[Frame]) -> None:
        for frame in self.sequenced.each(frames):
            self.shown.append(frame._replace(last=self.sequenced.stopped))


def documents_of(pieces: Sequence[bytes]) -> list[bytes]:
    """Return the documents of a stream that arrives in pieces."""
    events = sse.EventReader(MAX_EVENT_BYTES)
    documents = [document for piece in pieces for document in events.feed(piece)]
    return documents + events.close()
