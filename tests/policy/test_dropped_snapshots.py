"""The event loop neither copies nor frees a snapshot at a reload: a large one takes 30 ms."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from proxy.policy.decide.snapshot import Snapshot
from proxy.policy.files.load import Revocations, read_revocations
from proxy.policy.store import MAX_REVISIONS, PolicyStore, read_folder
from tests.conftest import world
from tests.for_each import for_each
from tests.policy.test_store import Events, let_others_come

DROPPED = 3


class Part:
    """A part of a snapshot that notes which thread frees it."""

    def __init__(self, freed_by: list[threading.Thread]) -> None:
        self._freed_by = freed_by

    def prepare(self) -> None:
        pass

    def load_rest(self) -> Iterator[None]:
        return iter(())

    def __del__(self) -> None:
        self._freed_by.append(threading.current_thread())


class Revisions:
    """A source of policies with a revision for each reading."""

    def __init__(self, folder: Path, revisions: list[str]) -> None:
        (folder / "policies.yaml").write_text(world("http://127.0.0.1:9"))
        self.folder = folder
        self.freed_by: list[threading.Thread] = []
        self._revisions = iter(revisions)

    def read(self) -> Snapshot:
        snapshot = read_folder(self.folder, {"UPSTREAM_KEY": "sk"})
        parts = (Part(self.freed_by),)
        return replace(snapshot, revision=next(self._revisions), unprepared=parts)

    def read_revocations(self) -> Revocations:
        return read_revocations(self.folder)


@for_each(
    ("name", "revisions"),
    [
        ("new", [str(number) for number in range(MAX_REVISIONS + DROPPED)]),
        ("unchanged", ["same"] * (1 + DROPPED)),
        ("back and forth", list("ababab"[: 2 + DROPPED])),
    ],
)
async def test_frees_off_event_loop(name: str, revisions: list[str], tmp_path: Path) -> None:
    source = Revisions(tmp_path, revisions)
    store = PolicyStore(source, time.monotonic, let_others_come, Events(), lambda *told: None)
    for _ in revisions[1:]:
        store.active()  # a call under the snapshot before
        await store.refresh()

    assert len(source.freed_by) == DROPPED, name
    assert threading.current_thread() not in source.freed_by


def test_a_snapshot_without_other_revocations_is_no_copy(tmp_path: Path) -> None:
    snapshot = Revisions(tmp_path, ["same"]).read()

    assert snapshot.revoke(frozenset()) is snapshot
    revoked = snapshot.revoke(frozenset({"support-widget"}))
    assert revoked.revoke(frozenset({"support-widget"})) is revoked
    assert revoked.credentials.keys() < snapshot.credentials.keys()
