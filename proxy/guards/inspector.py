"""Inspects whole documents: requests, and responses without a stream."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from proxy.call.record import Record
from proxy.dialects.families import FAMILIES, find_client_family, needs_translation
from proxy.dialects.family import ReadOptions
from proxy.guards.engine import Engine, Inspection, bind_to_prompt, split_by_enforcement
from proxy.guards.findings import Replace, replace_by_kind
from proxy.guards.services.stage import ServiceCaller
from proxy.guards.stream.frame_texts import KIND_OF
from proxy.guards.stream.placeholders import Masks
from proxy.guards.text.documents import (
    TEXT_WEIGHT,
    collect_texts,
    inspects_every_string,
    walk_response_document,
)
from proxy.guards.text.replace import replace_texts
from proxy.guards.text.walk import (
    Path,
    Text,
    Texts,
    WalkItem,
    find_joined_parts_depth,
    walk_response,
)
from proxy.types import Call, Json
from proxy.types.events import VISIBLE_KINDS, Delta, Fault, Frame, ResponseEnd
from proxy.types.guard import GuardRule, Stage, StageRules

Walk = Callable[[Json], Iterator[WalkItem]]


def get_document_unless_failed(frame: Frame) -> Json | None:
    """Return the document of a whole response, or None for a failed model call.

    Raises ``ValueError`` for any other response without a document, because no guard would read it.
    """
    if frame.doc is None and not all(isinstance(e, Fault | ResponseEnd) for e in frame.events):
        raise ValueError(f"A whole response of the family {frame.family!r} has no document.")
    return frame.doc


def replace_document(frame: Frame, doc: Json, call: Call) -> Frame:
    """Return the frame of a whole response with another document and the events read from it.

    A changed text loses its signature.
    """
    if frame.family == "messages":
        pairs = zip((frame.doc or {})["content"], doc["content"], strict=True)
        content = [
            {**after, "signature": ""}
            if after != before and isinstance(after, dict) and "signature" in after
            else after
            for before, after in pairs
        ]
        doc = {**doc, "content": content}
    client = find_client_family(call)
    options = ReadOptions(
        call=replace(call, stream=False),
        whole=True,
        inspect=True,
        is_translated=needs_translation(client, frame.family),
        model_call=frame.model_call,
        shown_as=FAMILIES[client].shown_as,
    )
    [new_frame] = FAMILIES[frame.family].reader(options).read(doc, b"")
    return frame._replace(events=new_frame.events, doc=new_frame.doc, raw=None)


def restore_masked_values(frame: Frame, masks: Masks, call: Call) -> Frame:
    """Return the frame of a whole response with the masked values in place of placeholders."""
    document_before = get_document_unless_failed(frame)
    if document_before is None:
        return frame
    texts = collect_texts(walk_response_document(document_before, frame.family, is_event=False))
    doc = masks.unmask_document(document_before, texts)
    return frame if doc is document_before else replace_document(frame, doc, call)


def _set_join_keys(walked_texts: Texts, frame: Frame) -> Texts:
    """Return the texts of a response, with the ``join_key`` of those that clients may see joined.

    These are the texts of one choice and one kind. Writers of other API families join them.
    """
    join_keys: dict[Path, tuple[int, str]] = {
        event.slot: (event.part.choice, KIND_OF[event.part.kind])
        for event in frame.events
        if isinstance(event, Delta) and event.part.kind in VISIBLE_KINDS
    }
    if len(join_keys) == len({*join_keys.values()}):  # no two texts to join
        return walked_texts
    # A part of an unknown type has no delta, but writers join it to the parts beside it.
    contents = {
        path[: find_joined_parts_depth(path)]: join_key
        for path, join_key in join_keys.items()
        if join_key[1] == "content"
    }
    texts: list[Text] = []
    for text in walked_texts.texts:
        key = join_keys.get(text.path)
        if key is None and text.kind == "content":
            key = contents.get(text.path[: find_joined_parts_depth(text.path)])
        texts.append(text._replace(join_key=key))
    return replace(walked_texts, texts=tuple(texts))


@dataclass(slots=True)
class DocumentInspector:
    """Inspects the documents of one call at one stage.

    ``size`` is the size of the request in bytes, and ``frame`` has the events of a response.
    ``routing_rule`` becomes the first rule that routes the call.
    """

    engine: Engine
    record: Record
    stage: Stage
    walk: Walk
    replacement: Replace = replace_by_kind
    size: int = 0
    routing_rule: GuardRule | None = None
    frame: Frame | None = None

    async def inspect(
        self,
        rules: StageRules,
        document: Json,
        request: Json | None = None,
        walked_texts: Texts | None = None,
    ) -> Json:
        """Apply detectors, then guard services, and return the resulting document.

        ``request`` is the request of a response, None if the document is the request itself.
        ``walked_texts`` are the texts of the document, if known. Raises ``GuardBlocked``.
        """
        rules = bind_to_prompt(rules, request or document)
        detectors, services = rules.detectors, rules.services
        engine, caller = self.engine, self.record.key
        walked_texts = walked_texts or await self._read_texts(document)
        if detectors:
            inspection = await engine.inspect(detectors, walked_texts, self.replacement, caller)
            self.record.add_guard_results(self.stage, inspection.results)
            if inspection.blocked is not None:
                self._record_uncalled_services(services)
            safe = await self._apply_changes(inspection, document)
            if safe is not document and services:
                walked_texts = await self._read_texts(safe)
            document = safe
        if services:
            enforcing, watching = split_by_enforcement(services)
            calls = engine.build_service_caller(request or document, self.record)
            if watching:
                watch = partial(self._call_services, watching, walked_texts, calls)
                record_failure = partial(self._record_uncalled_services, watching)
                await self.record.run_in_background(watch, record_failure)
            if enforcing:
                inspection = await self._call_services(enforcing, walked_texts, calls)
                document = await self._apply_changes(inspection, document)
        return document

    async def _read_texts(self, document: Json) -> Texts:
        texts = await self.engine.read_texts(self.walk, document, self.size, self.record.key)
        if self.frame is None or len(texts.texts) == 1:
            return texts
        return _set_join_keys(texts, self.frame)

    async def _call_services(
        self, services: Sequence[GuardRule], walked_texts: Texts, calls: ServiceCaller
    ) -> Inspection:
        ask, caller = self.engine.ask_services, self.record.key
        inspection = await ask(services, walked_texts, calls, self.replacement, caller)
        self.record.add_guard_results(self.stage, inspection.results)
        return inspection

    def _record_uncalled_services(
        self, services: Sequence[GuardRule], failure_code: str | None = None
    ) -> None:
        results = self.engine.build_uncalled_results(services, failure_code)
        self.record.add_guard_results(self.stage, results)

    async def _apply_changes(self, inspection: Inspection, document: Json) -> Json:
        """Return the document with the changes of an inspection. Raises ``GuardBlocked``."""
        if inspection.blocked is not None:
            raise inspection.blocked
        self.routing_rule = self.routing_rule or inspection.routing_rule
        changes = inspection.changes
        if not changes:
            return document
        job = partial(replace_texts, document, changes)
        return await self.engine.run_or_offload(TEXT_WEIGHT * len(changes), job, self.record.key)


@dataclass(slots=True)
class WholeResponseInspector:
    """Inspects a whole response, which has one frame for each model call.

    The error of a failed model call was inspected before.
    """

    engine: Engine
    record: Record
    rules: StageRules
    call: Call
    walk: Walk = walk_response

    def try_inspect(self, frame: Frame) -> None:
        """Return None, so that the caller awaits ``inspect``: a document may take long."""

    async def inspect(self, frame: Frame) -> Sequence[Frame]:
        document_before = get_document_unless_failed(frame)
        if document_before is None:
            return (frame,)
        walk = self.walk
        if inspects_every_string(frame.family):
            walk = partial(walk_response_document, family=frame.family, is_event=False)
        inspector = DocumentInspector(
            self.engine, self.record, stage="output", walk=walk, frame=frame
        )
        doc = await inspector.inspect(self.rules, document_before, self.call.body)
        return (frame if doc is document_before else replace_document(frame, doc, self.call),)
