"""The decision log: one line per decision of the policies, for whoever must show what was decided.

It holds names and verdicts, no text. Lines are sealed and written by a thread of their own; what
the disk does not take waits in a bounded queue, and what does not fit is counted in the next line.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import ClassVar

import structlog

from proxy.emit import summary
from proxy.emit.chain import BadChain, ChainFile, Entry
from proxy.record import Record
from proxy.types.guard import GuardResult
from proxy.types.outcome import Standing
from proxy.words import MAX_NAME, word

MAX_ENTRIES = 10_000
BATCH = 256
GATHER_S = 0.1
RETRY_S = 0.25
CLOSE_S = 2.0
TELL_EVERY = 10_000
Log = structlog.typing.FilteringBoundLogger


def decision(record: Record) -> Entry:
    """Return what was decided about a call, without any text of it."""
    plan, admission = record.plan, record.admission
    return {
        "time": record.started_at.isoformat(timespec="milliseconds"),
        "event": "call",
        "request_id": word(record.request_id, MAX_NAME) if record.request_id else None,
        "trace_id": record.ids.trace_id,
        "policy": record.revision,
        "key": record.key,
        "deployment": plan.deployment if plan else None,
        "rules": list(plan.rules) if plan else [],
        "would": list(plan.would) if plan else [],
        "limits": [_limit(each) for each in admission.standings] if admission else [],
        "guards": [_guard(stage, result) for stage, result in summary.verdicts(record)],
        "cache": record.cache,
        "outcome": record.outcome,
        "status": record.status,
        "error": record.error.code if record.error else None,
    }


def _limit(standing: Standing) -> Entry:
    decision = "deny" if standing.refuses else "allow"
    return {"limit": standing.limit.name, "said": decision, "shadow": standing.limit.shadow}


def _guard(stage: str, result: GuardResult) -> Entry:
    named = {"guard": result.guard, "stage": stage}
    return {**named, "verdict": result.verdict, "shadow": result.shadow}


class Decisions:
    """The sink that seals decisions. ``put`` never waits. ``dropped`` is told why and how many
    entries are in no line, ``failed`` of an exception that nobody foresaw: the thread goes on.
    ``replaced`` is told when the file was gone, and another was begun."""

    name: ClassVar[str] = "decisions"

    def __init__(
        self,
        path: Path,
        dropped: Callable[[str, int], None],
        failed: Callable[[Exception], None],
        replaced: Callable[[], None],
        log: Log,
    ) -> None:
        """Open the file and start the thread. Raises ``BadChain``."""
        self._path = path
        self._replaced = replaced
        self._chain = ChainFile(path)
        self._tell = dropped
        self._failed = failed
        self._log = log
        self._queue: deque[Entry] = deque()
        self._missed = 0  # counted by the loop alone
        self._invalid = 0  # this and the next by the thread alone
        self._told = 0
        self._failing = False
        self._wake = threading.Event()
        self._closing = threading.Event()
        self._given_up = threading.Event()
        log.info("decisions.begin", seq=self._chain.seq, hash=self._chain.head)
        self._thread = threading.Thread(target=self._run, name="decision-log", daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> int:
        """How many entries are in no line yet."""
        return len(self._queue)

    def begin(self, record: Record) -> None:
        return None

    def end(self, record: Record) -> None:
        if record.reported:
            self.put(decision(record))

    def policy(self, result: str, revision: str) -> None:
        """Note that policies were read, and which are in force then."""
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        self.put({"time": now, "event": "policy", "result": result, "policy": revision})

    def put(self, entry: Entry) -> None:
        if len(self._queue) >= MAX_ENTRIES:
            self._missed += 1
            self._tell("queue_full", 1)
            return
        self._queue.append(entry)
        if not self._wake.is_set():
            self._wake.set()

    def close(self) -> None:
        """Write what is waiting, for at most ``CLOSE_S``. Blocks."""
        self._closing.set()
        self._wake.set()
        self._thread.join(CLOSE_S)
        self._given_up.set()
        if self._queue:
            self._tell("shutdown", len(self._queue))
        if not self._thread.is_alive():
            self._log.info("decisions.end", seq=self._chain.seq, hash=self._chain.head)
            self._chain.close()

    def _run(self) -> None:
        while (not self._closing.is_set() or self._queue) and not self._given_up.is_set():
            self._wake.wait()
            self._closing.wait(GATHER_S)
            if not self._closing.is_set():
                self._wake.clear()
            while self._queue and not self._given_up.is_set():
                self._some()

    def _some(self) -> None:
        """Write some. Where that is no JSON they are tried alone, and what cannot be a line is
        counted as missing."""
        try:
            self._batch(BATCH)
        except Exception as error:  # noqa: BLE001  # no error may end the thread in silence
            self._failed(error)
            for _ in range(min(len(self._queue), BATCH)):
                if self._failing or self._given_up.is_set():
                    return
                try:
                    self._batch(1)
                except Exception:  # noqa: BLE001  # it was told above
                    self._queue.popleft()
                    self._invalid += 1
                    self._tell("invalid", 1)

    def _batch(self, most: int) -> None:
        """Write some; what was not taken stays the first in the queue."""
        batch = [self._queue[n] for n in range(min(len(self._queue), most))]
        missed = self._missed + self._invalid - self._told
        if missed:
            batch[0] = {**batch[0], "missing": missed}
        if not self._is_in_place():
            self._mind(failed=True)
            return
        before = self._chain.seq
        done = self._chain.append(batch)
        for _ in range(done):
            self._queue.popleft()
        if done and missed:
            self._told += missed
        if self._chain.seq // TELL_EVERY > before // TELL_EVERY:
            self._log.info("decisions.at", seq=self._chain.seq, hash=self._chain.head)
        self._mind(failed=done < len(batch))

    def _is_in_place(self) -> bool:
        """Begin a new file where the one before was moved away or deleted. False if that cannot
        be."""
        if self._chain.is_in_place():
            return True
        try:
            fresh = ChainFile(self._path)
        except BadChain:
            return False
        before, self._chain = self._chain, fresh
        before.close()
        self._replaced()
        ended = {"seq": before.seq, "hash": before.head}
        self._log.error("decisions.begun_anew", file=str(self._path), **ended)
        self._log.info("decisions.begin", seq=fresh.seq, hash=fresh.head)
        return True

    def _mind(self, *, failed: bool) -> None:
        if failed != self._failing:
            self._failing = failed
            self._log.warning("decisions.failing" if failed else "decisions.mended")
        if failed:
            self._given_up.wait(RETRY_S)
