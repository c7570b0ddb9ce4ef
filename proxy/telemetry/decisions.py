"""Decision log: one sealed line for each decision of the policies, without any text of a call.

The thread of a spool writes the lines. After a failed write, entries wait for the next one. The
line after lost entries has their number.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import ClassVar

from proxy.call.facts import CallSummary
from proxy.call.record import Record
from proxy.call.summary import summarize
from proxy.errors.words import MAX_NAME, shorten
from proxy.ports import EventLog
from proxy.runtime.spool import Spool, SpoolBounds
from proxy.telemetry.chain import ChainFile, Entry, InvalidChain
from proxy.telemetry.log import format_time

MAX_ENTRIES = 10_000
SPOOL_BOUNDS: SpoolBounds[Entry] = SpoolBounds(
    "decision-log", batch_window_s=0.1, items=MAX_ENTRIES, error_reason="invalid"
)
CLOSE_TIMEOUT_S = 2.0
LINES_PER_HASH_EVENT = 10_000  # lines between two events that log the last hash


def make_decision_entry(summary: CallSummary) -> Entry:
    # Refusing limits come first, because a long line keeps only the first ones.
    limits = sorted(summary.limits, key=lambda decided: not decided[1])
    return {
        "time": format_time(summary.started_at),
        "event": "call",
        "request_id": shorten(summary.request_id, MAX_NAME) if summary.request_id else None,
        "trace_id": summary.trace_id,
        "policy": summary.policy,
        "key": summary.key,
        "deployment": summary.deployment,
        "rules": list(summary.rules),
        "shadow_rules": list(summary.shadow_rules),
        "limits": [
            {
                "limit": limit.name,
                "decision": "deny" if refuses else "allow",
                "shadow": limit.shadow,
            }
            for limit, refuses in limits
        ],
        "guards": [
            {
                "guard": result.guard,
                "stage": stage,
                "verdict": result.verdict,
                "shadow": result.shadow,
            }
            for stage, result in summary.verdicts
        ],
        "cache": summary.cache,
        "outcome": summary.outcome,
        "status": summary.status,
        "error": summary.error,
    }


class DecisionLog:
    """Sink that writes the decision log. ``enqueue`` never waits.

    ``on_drop`` gets the reason and the number of lost entries, ``on_error`` each unexpected
    exception. ``on_replaced`` is called after a missing file was created again.
    """

    name: ClassVar[str] = "decisions"

    def __init__(
        self,
        path: Path,
        on_drop: Callable[[str, int], None],
        on_error: Callable[[Exception], None],
        on_replaced: Callable[[], None],
        log: EventLog,
    ) -> None:
        """Open the file and start the thread. Raises ``InvalidChain``."""
        self._path = path
        self._on_replaced = on_replaced
        self._chain = ChainFile(path)
        self._log = log
        self._reported_losses = 0  # lost entries that the log has reported
        self._is_failing = False
        log.info("decisions.begin", seq=self._chain.seq, hash=self._chain.last_hash)
        self._spool = Spool(
            SPOOL_BOUNDS, self._write, on_drop, on_error, finish=self._log_last_hash_and_close
        )
        self.enqueue: Callable[[Entry], object] = self._spool.add

    @property
    def pending_count(self) -> int:
        """Entries that are not written yet."""
        return self._spool.pending_count

    def emit(self, record: Record) -> None:
        if record.is_reported:
            self.enqueue(make_decision_entry(summarize(record)))

    def add_policy_entry(self, result: str, revision: str) -> None:
        """Write an entry for a load of the policies, with the active revision."""
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        self.enqueue({"time": now, "event": "policy", "result": result, "policy": revision})

    def close(self) -> None:
        """Write the waiting entries, for at most ``CLOSE_TIMEOUT_S`` seconds. Blocks."""
        self._spool.close(CLOSE_TIMEOUT_S)

    def _log_last_hash_and_close(self) -> None:
        self._log.info("decisions.end", seq=self._chain.seq, hash=self._chain.last_hash)
        self._chain.close()

    def _write(self, entries: list[Entry]) -> None:
        """Write entries. The spool passes the unwritten ones again with the next batch."""
        lost_count = self._spool.lost_count - self._reported_losses
        if lost_count:
            entries = [{**entries[0], "missing": lost_count}, *entries[1:]]
        result = 0
        if self._chain.is_in_place() or self._recreate_file():
            count_before = self._chain.seq
            result = self._chain.append(entries)
            if self._chain.seq // LINES_PER_HASH_EVENT > count_before // LINES_PER_HASH_EVENT:
                self._log.info("decisions.at", seq=self._chain.seq, hash=self._chain.last_hash)
        self._spool.mark_written(result)
        if result:
            self._reported_losses += lost_count
        is_failing = result < len(entries)
        if is_failing != self._is_failing:
            self._is_failing = is_failing
            self._log.warning("decisions.failing" if is_failing else "decisions.mended")

    def _recreate_file(self) -> bool:
        """Replace a file that was moved away or deleted. Return False if that is impossible."""
        try:
            chain = ChainFile(self._path)
        except InvalidChain:
            return False
        file_before, self._chain = self._chain, chain
        file_before.close()
        self._on_replaced()
        ended = {"seq": file_before.seq, "hash": file_before.last_hash}
        self._log.error("decisions.begun_anew", file=str(self._path), **ended)
        self._log.info("decisions.begin", seq=chain.seq, hash=chain.last_hash)
        return True
