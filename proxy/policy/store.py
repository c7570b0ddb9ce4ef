"""The policies in force. A new revision replaces the old by one assignment, or not at all."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol

from proxy.errors import Unauthorized
from proxy.freed import release, uncollected
from proxy.frozen import frozen
from proxy.policy.compile.compiler import compile_policies
from proxy.policy.decide import ActivePolicy, identify
from proxy.policy.decide.snapshot import Snapshot
from proxy.policy.files.cloud_tokens import CloudTokens
from proxy.policy.files.load import read
from proxy.policy.files.revocations import Revocations, read_revocations
from proxy.policy.files.source import PolicyError, unexpected
from proxy.ports import EventLog
from proxy.types import RequestHead

if TYPE_CHECKING:
    from proxy.types.passthrough import PassedPaths

SECONDS_BETWEEN = 1.0
REVISIONS_KEPT = 8
NO_KEY_LEFT = (
    "no key is left: the file with the keys is missing or half written; say keys: {} where no key "
    "is meant to be"
)
Result = Literal["in_force", "restored", "unchanged", "rejected"]


def read_folder(
    folder: Path, environ: Mapping[str, str] | None, tokens: CloudTokens | None = None
) -> Snapshot:
    """Load and compile a folder; without secrets where there is no ``environ``.

    Raises ``PolicyError``.
    """
    return compile_policies(read(folder), environ, tokens)


class PolicySource(Protocol):
    """Policies as they are stored, read in a thread."""

    def read(self) -> Snapshot:
        """Raises ``PolicyError``."""

    def read_revocations(self) -> Revocations:
        """Raises nothing."""


@frozen
class PolicyFolder:
    """A folder of policies, read without secrets where there is no ``environ``.

    ``prepare`` is called with each snapshot, in the thread that reads it.
    """

    path: Path
    environ: Mapping[str, str] | None
    tokens: CloudTokens | None = None
    prepare: Callable[[Snapshot], None] | None = None

    def read(self) -> Snapshot:
        """Read the folder, and give back the memory that compiling it has taken and freed."""
        try:
            with uncollected():
                snapshot = read_folder(self.path, self.environ, self.tokens)
                if self.prepare is not None:
                    self.prepare(snapshot)
                return snapshot
        finally:
            release()

    def read_revocations(self) -> Revocations:
        return read_revocations(self.path)


def _load(snapshot: Snapshot) -> None:
    """Load all that texts may ask of its guards, in a thread."""
    snapshot.prepare()
    for _ in snapshot.load_rest():
        pass


class PolicyStore:
    """Keeps the snapshot in force and re-reads its folder when a call may ask for it.

    Calls that run keep the snapshot they began with. At most one reading a second. A change of one
    of the ``secret_files`` asks for another: they are those of what was read last, in force or not.
    """

    def __init__(
        self,
        source: PolicySource,
        now: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]],
        log: EventLog,
        tell: Callable[[Result, Snapshot], None],
        subject: str = "policy",
    ) -> None:
        """Read the folder for the first time. Raises ``PolicyError``.

        ``tell`` is told how each reading went and what is in force then; ``subject`` begins the
        names of what is logged.
        """
        self._subject = subject
        self._source = source
        self._now = now
        self._sleep = sleep
        self._log = log
        self._tell = tell
        self._reading, self._revoking = asyncio.Lock(), asyncio.Lock()
        self.unread_revocations: tuple[str, ...] = ()
        self._report_unread(source.read_revocations().unread)
        self.current = source.read()
        self.secret_files = self.current.secret_files
        self._in_force = ActivePolicy(self.current)
        self._kept = OrderedDict({self.current.revision: self.current})
        self._began = self._seen = self._revoked_at = now() - SECONDS_BETWEEN
        self._is_rejected = False
        self._announce()

    async def read(self, head: RequestHead) -> ActivePolicy:
        """Return what is in force for this call, re-read from disk first if its key may ask so."""
        if head.refresh and self._may_refresh(head):
            await self.refresh()
        return self.in_force_now()

    def in_force_now(self) -> ActivePolicy:
        """Return what is in force now."""
        if self._in_force.snapshot is not self.current:
            self._in_force = ActivePolicy(self.current)
        return self._in_force

    def passed(self) -> PassedPaths | None:
        """Return the paths that what is in force passes on."""
        return self.current.passthrough

    def _may_refresh(self, head: RequestHead) -> bool:
        try:
            return identify(self.current, head).key.may_refresh
        except Unauthorized:
            return False

    async def refresh(self) -> None:
        """Re-read the folder, off the loop. What is wrong is logged, and the old stays in force.

        Callers that wait together share one reading, which began after the last of them came. One
        whose caller has left in the middle of it is shared by nobody.
        """
        asked_at = self._now()
        async with self._reading:
            if self._seen > asked_at:
                return
            await self._sleep(max(0.0, self._began + SECONDS_BETWEEN - self._now()))
            began = self._began = self._now()
            await self._read_revocations()
            try:
                fresh = await asyncio.to_thread(self._source.read)
                await asyncio.to_thread(_load, fresh)
                found = await asyncio.to_thread(self._source.read_revocations)
                dropped = self._take(fresh.without(found.names))  # with those added meanwhile
                await asyncio.to_thread(dropped.clear)  # frees a large snapshot in 30 ms
                self.secret_files = self.current.secret_files | fresh.secret_files
            except PolicyError as error:
                self.secret_files = self.current.secret_files | error.secret_files
                self._reject([str(problem) for problem in error.problems])
            except Exception as bug:  # noqa: BLE001  # reading must never take traffic down
                self._reject([unexpected(bug)])
            self._seen = began

    async def read_revocations(self) -> None:
        """Let no key count that the folder revokes, whatever else it says by now, and also while
        ``refresh`` has not ended."""
        async with self._revoking:
            await self._sleep(max(0.0, self._revoked_at + SECONDS_BETWEEN - self._now()))
            self._revoked_at = self._now()
            await self._read_revocations()

    async def _read_revocations(self) -> None:
        found = await asyncio.to_thread(self._source.read_revocations)
        self._revoke(found.names)
        self._report_unread(found.unread)

    def _report_unread(self, unread: tuple[str, ...]) -> None:
        """Log which revocations cannot be read, once for each state."""
        if unread and unread != self.unread_revocations:
            self._log.error(f"{self._subject}.revocations_unread", problems=list(unread))
        self.unread_revocations = unread

    def find(self, revision: str) -> Snapshot | None:
        """Return a revision that is, or not long ago was, in force; None for any other."""
        return self._kept.get(revision)

    def _announce(self) -> None:
        self._log.info(f"{self._subject}.in_force", revision=self.current.revision)
        if not self.current.keys:
            self._log.warning(f"{self._subject}.no_keys", revision=self.current.revision)
        self._tell("in_force", self.current)

    def _reject(self, problems: list[str]) -> None:
        self._is_rejected = True
        self._log.error(
            f"{self._subject}.rejected", in_force=self.current.revision, problems=problems
        )
        self._tell("rejected", self.current)

    def _revoke(self, revoked: frozenset[str]) -> None:
        """Let no key count that a folder revokes, however wrong the rest of it is."""
        if revoked <= self.current.revoked:
            return
        before, self.current = self.current, self.current.without(revoked)
        self._kept[self.current.revision] = self.current
        gone = before.credentials.keys() - self.current.credentials.keys()
        if gone:
            keys = sorted({before.credentials[digest].key.name for digest in gone})
            self._log.info(f"{self._subject}.revoked", revision=before.revision, keys=keys)

    def _take(self, fresh: Snapshot) -> list[object]:
        """Put a snapshot in force and return what nothing refers to any more.

        Files may say the same while a secret that they refer to has changed.
        A folder that has lost all its keys would turn every call away: a file is missing, or half
        written, far sooner than anybody means that, unless it revokes them all or says
        ``keys: {}``.
        """
        self._revoke(fresh.revoked)
        if self.current.credentials and not fresh.keys and not fresh.wants_no_keys:
            self._reject([NO_KEY_LEFT])
            return []
        restored, self._is_rejected = self._is_rejected, False
        changed = fresh.revision != self.current.revision
        dropped: list[object] = [self._in_force, self._kept.pop(fresh.revision, None)]
        self.current = self._kept[fresh.revision] = fresh
        self._in_force = ActivePolicy(fresh)
        if len(self._kept) > REVISIONS_KEPT:
            dropped.append(self._kept.popitem(last=False))
        if changed:
            self._announce()
            return dropped
        if restored:
            self._log.info(f"{self._subject}.restored", revision=fresh.revision)
        self._tell("restored" if restored else "unchanged", fresh)
        return dropped
