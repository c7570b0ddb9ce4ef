"""The decision log: one line per decision of the policies, for whoever must show what was decided.

It holds names and verdicts, no text. Lines are sealed and written by the thread of a spool; what
the disk does not take waits there, and what is lost is counted in the next line.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import ClassVar

from proxy.call_facts import CallFacts
from proxy.emit.chain import BadChain, ChainFile, Entry
from proxy.ports import EventLog
from proxy.record import Record
from proxy.spool import Spool, SpoolBounds
from proxy.summary import facts_of
from proxy.types.guard import GuardResult
from proxy.types.limit import Limit
from proxy.words import MAX_NAME, word

MAX_ENTRIES = 10_000
BOUNDS: SpoolBounds[Entry] = SpoolBounds(
    "decision-log", gather_s=0.1, items=MAX_ENTRIES, unwritable="invalid"
)
CLOSE_S = 2.0
TELL_EVERY = 10_000


def decision(facts: CallFacts) -> Entry:
    """Return what was decided about a call, without any text of it."""
    return {
        "time": facts.started_at.isoformat(timespec="milliseconds"),
        "event": "call",
        "request_id": word(facts.request_id, MAX_NAME) if facts.request_id else None,
        "trace_id": facts.trace_id,
        "policy": facts.policy,
        "key": facts.key,
        "deployment": facts.deployment,
        "rules": list(facts.rules),
        "shadow_rules": list(facts.shadow_rules),
        # The limits that refuse come first: of a long line only the first ones are kept.
        "limits": [
            _limit(*decided) for decided in sorted(facts.limits, key=lambda each: not each[1])
        ],
        "guards": [_guard(stage, result) for stage, result in facts.verdicts],
        "cache": facts.cache,
        "outcome": facts.outcome,
        "status": facts.status,
        "error": facts.error,
    }


def _limit(limit: Limit, refuses: bool) -> Entry:  # as facts have it
    decision = "deny" if refuses else "allow"
    return {"limit": limit.name, "decision": decision, "shadow": limit.shadow}


def _guard(stage: str, result: GuardResult) -> Entry:
    named = {"guard": result.guard, "stage": stage}
    return {**named, "verdict": result.verdict, "shadow": result.shadow}


class Decisions:
    """The sink that seals decisions. ``put`` never waits. ``dropped`` is told why and how many
    entries are in no line, ``failed`` of an exception that nobody foresaw, ``replaced`` when the
    file was gone and another was begun."""

    name: ClassVar[str] = "decisions"

    def __init__(
        self,
        path: Path,
        dropped: Callable[[str, int], None],
        failed: Callable[[Exception], None],
        replaced: Callable[[], None],
        log: EventLog,
    ) -> None:
        """Open the file and start the thread. Raises ``BadChain``."""
        self._path = path
        self._replaced = replaced
        self._chain = ChainFile(path)
        self._log = log
        self._told = 0
        self._failing = False
        log.info("decisions.begin", seq=self._chain.seq, hash=self._chain.head)
        self._spool = Spool(BOUNDS, self._write, dropped, failed, finish=self._end)
        self.put: Callable[[Entry], object] = self._spool.put

    @property
    def waiting(self) -> int:
        """How many entries are in no line yet."""
        return self._spool.waiting

    def end(self, record: Record) -> None:
        if record.reported:
            self.put(decision(facts_of(record)))

    def policy(self, result: str, revision: str) -> None:
        """Note that policies were read, and which are in force then."""
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        self.put({"time": now, "event": "policy", "result": result, "policy": revision})

    def close(self) -> None:
        """Write what is waiting, for at most ``CLOSE_S``. Blocks."""
        self._spool.close(CLOSE_S)

    def _end(self) -> None:
        self._log.info("decisions.end", seq=self._chain.seq, hash=self._chain.head)
        self._chain.close()

    def _write(self, entries: list[Entry]) -> None:
        """Write some; what was not taken is given again."""
        missed = self._spool.lost - self._told
        if missed:
            entries = [{**entries[0], "missing": missed}, *entries[1:]]
        done = 0
        if self._is_in_place():
            before = self._chain.seq
            done = self._chain.append(entries)
            if self._chain.seq // TELL_EVERY > before // TELL_EVERY:
                self._log.info("decisions.at", seq=self._chain.seq, hash=self._chain.head)
        self._spool.done(done)
        if done:
            self._told += missed
        is_failing = done < len(entries)
        if is_failing != self._failing:
            self._failing = is_failing
            self._log.warning("decisions.failing" if is_failing else "decisions.mended")

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
