"""The embeddings family: an answer is one document of vectors, which has no parts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from proxy.dialects.chat.writer import ChatWholeWriter
from proxy.dialects.family import Family, FamilyReader, FamilyWriter, ReadOptions, WriteOptions
from proxy.dialects.findings import DETECTIONS, HOOKS
from proxy.errors import UpstreamInvalid
from proxy.types import Json
from proxy.types.events import STOP, Event, Extension, Frame, Native, Start, UsageReport
from proxy.usage import read_usage


class EmbeddingsReader:
    """Reads one document."""

    def __init__(self, options: ReadOptions) -> None:
        self._model_call = options.model_call

    def read(self, doc: Json, raw: bytes) -> Sequence[Frame]:
        usage = doc.get("usage")
        model = doc.get("model")
        events: list[Event] = [Start(None, model if type(model) is str else None, None)]
        events += [Extension(name, doc[name]) for name in (DETECTIONS, HOOKS) if name in doc]
        if usage is not None:
            events.append(UsageReport(read_usage(usage), usage if type(usage) is dict else {}))
        frame = Frame(
            events=(*events, Native(), STOP),
            family="embeddings",
            doc=doc,
            raw=raw,
            model_call=self._model_call,
        )
        return (frame,)

    def end(self, *, done: bool = False) -> Sequence[Frame]:
        raise UpstreamInvalid("The upstream sent no embeddings.")


def _reader(options: ReadOptions) -> FamilyReader:
    return EmbeddingsReader(options)


def _writer(options: WriteOptions) -> FamilyWriter:
    return ChatWholeWriter(options, "embeddings", lambda _options, _family: None)


EMBEDDINGS: Final = Family(
    name="embeddings", reader=_reader, writer=_writer, marks_parts=False, answers="data"
)
