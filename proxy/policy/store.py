"""Keeps the active policies. A new revision replaces the old one completely, or is rejected.

``proxy.policy.watch`` requests the reloads.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol

from proxy.errors import Unauthorized
from proxy.policy.compile import compile_policies
from proxy.policy.decide import ActivePolicy
from proxy.policy.decide.snapshot import Snapshot
from proxy.policy.files.cloud_tokens import CloudTokens
from proxy.policy.files.load import Revocations, load_policies_with_problems, read_revocations
from proxy.policy.files.source import PolicyError, Rejection, describe_unexpected_error
from proxy.ports import EventLog
from proxy.runtime.deferred_free import pause_gc_then_freeze, release_free_memory
from proxy.runtime.frozen import frozen
from proxy.types import RequestHead

if TYPE_CHECKING:
    from proxy.types.passthrough import PassthroughPaths


MIN_RELOAD_INTERVAL_S = 1.0  # between two reloads
MAX_REVISIONS = 8
NO_KEYS_MESSAGE = (
    "the new policies have no keys, so the previous policies stay in use. Probably a file is "
    'missing or incomplete. To reject every call, write "keys: {}".'
)
ReloadResult = Literal["in_force", "restored", "unchanged", "rejected"]


def read_folder(
    folder: Path, environ: Mapping[str, str] | None, tokens: CloudTokens | None = None
) -> Snapshot:
    """Load and compile a folder, without secrets if ``environ`` is None. Raise ``PolicyError``."""
    return compile_policies(load_policies_with_problems(folder), environ, tokens)


class PolicySource(Protocol):
    """Stored policies. Both methods run in a thread."""

    def read(self) -> Snapshot:
        """Return a new snapshot. Raise ``PolicyError`` if the policies have errors."""

    def read_revocations(self) -> Revocations: ...


@frozen
class PolicyFolder:
    """A folder of policies. The thread that reads a new snapshot calls ``prepare`` with it."""

    path: Path
    environ: Mapping[str, str] | None
    tokens: CloudTokens | None = None
    prepare: Callable[[Snapshot], None] | None = None

    def read(self) -> Snapshot:
        """Return the snapshot, and release the memory that compiling it used."""
        try:
            with pause_gc_then_freeze():
                snapshot = read_folder(self.path, self.environ, self.tokens)
                if self.prepare is not None:
                    self.prepare(snapshot)
                return snapshot
        finally:
            release_free_memory()

    def read_revocations(self) -> Revocations:
        return read_revocations(self.path)


class PolicyStore:
    """Keeps the active snapshot and reloads it at most once a second. Calls keep their snapshot.

    ``secret_files`` are the secrets of the last reload: a change of one requires a reload.
    ``rejection`` is the last reload, if it was rejected.
    """

    def __init__(
        self,
        source: PolicySource,
        now: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]],
        log: EventLog,
        on_result: Callable[[ReloadResult, Snapshot], None],
        subject: str = "policy",
    ) -> None:
        """Load the policies, or raise ``PolicyError``.

        ``on_result`` gets the result of each reload and the active snapshot. Names of log
        events start with ``subject``.
        """
        self._subject = subject
        self._source = source
        self._now = now
        self._sleep = sleep
        self._log = log
        self._on_result = on_result
        self._reload_lock, self._revoke_lock = asyncio.Lock(), asyncio.Lock()
        self.revocation_problems: tuple[str, ...] = ()
        self._log_revocation_problems(source.read_revocations().problems)
        self.current = source.read()
        self.secret_files = self.current.secret_files
        self._active = ActivePolicy(self.current)
        self._revisions = OrderedDict({self.current.revision: self.current})
        self._started_at = self._loaded_at = self._revoked_at = now() - MIN_RELOAD_INTERVAL_S
        self.rejection: Rejection | None = None
        self._report_activation()

    async def reload_if_requested(self, head: RequestHead) -> ActivePolicy:
        if head.bypass_cache:
            with suppress(Unauthorized):
                if self.current.identify(head).key.may_refresh:
                    await self.refresh()
        return self.get_active_policy()

    def get_active_policy(self) -> ActivePolicy:
        if self._active.snapshot is not self.current:
            self._active = ActivePolicy(self.current)
        return self._active

    def get_passthrough_paths(self) -> PassthroughPaths | None:
        return self.current.passthrough

    async def refresh(self) -> None:
        """Reload the policies. Problems are logged, and the old snapshot stays active.

        Waiting callers share one reload, which starts after the last of them called. A reload whose
        caller was cancelled is not shared.
        """
        called_at = self._now()
        async with self._reload_lock:
            if self._loaded_at > called_at:
                return
            await self._sleep(max(0.0, self._started_at + MIN_RELOAD_INTERVAL_S - self._now()))
            started_at = self._started_at = self._now()
            await self._revoke_listed_keys()
            try:
                snapshot = await asyncio.to_thread(self._source.read)
                await asyncio.to_thread(snapshot.prepare)
                await asyncio.to_thread(deque, snapshot.iter_loading_steps(), 0)  # runs them
                revocations = await asyncio.to_thread(self._source.read_revocations)
                dropped = self._activate(snapshot.revoke(revocations.names_and_digests))
                await asyncio.to_thread(dropped.clear)  # a large snapshot takes 30 ms to free
                self.secret_files = self.current.secret_files | snapshot.secret_files
            except PolicyError as error:
                self.secret_files = self.current.secret_files | error.secret_files
                self._reject([str(problem) for problem in error.problems])
            except Exception as bug:  # noqa: BLE001  # calls continue under the old snapshot
                self._reject([describe_unexpected_error(bug)])
            self._loaded_at = started_at

    async def apply_revocations(self) -> None:
        """Revoke the keys that the folder revokes, even if it has errors or is being reloaded."""
        async with self._revoke_lock:
            await self._sleep(max(0.0, self._revoked_at + MIN_RELOAD_INTERVAL_S - self._now()))
            self._revoked_at = self._now()
            await self._revoke_listed_keys()

    async def _revoke_listed_keys(self) -> None:
        revocations = await asyncio.to_thread(self._source.read_revocations)
        self._revoke(revocations.names_and_digests)
        self._log_revocation_problems(revocations.problems)

    def _log_revocation_problems(self, problems: tuple[str, ...]) -> None:
        """Log revocations that cannot be read, whenever the set of them changes."""
        if problems and problems != self.revocation_problems:
            self._log.error(f"{self._subject}.revocations_unread", problems=list(problems))
        self.revocation_problems = problems

    def find_snapshot(self, revision: str) -> Snapshot | None:
        """Return one of the last ``MAX_REVISIONS`` snapshots, or None."""
        return self._revisions.get(revision)

    def _report_activation(self) -> None:
        self.active_since = datetime.now(UTC)
        self._log.info(f"{self._subject}.in_force", revision=self.current.revision)
        if not self.current.keys:
            self._log.warning(f"{self._subject}.no_keys", revision=self.current.revision)
        self._on_result("in_force", self.current)

    def _reject(self, problems: list[str]) -> None:
        self.rejection = Rejection(datetime.now(UTC), tuple(problems))
        revision = self.current.revision
        self._log.error(f"{self._subject}.rejected", in_force=revision, problems=problems)
        self._on_result("rejected", self.current)

    def _revoke(self, names_and_digests: frozenset[str]) -> None:
        if names_and_digests <= self.current.revoked:
            return
        old, self.current = self.current, self.current.revoke(names_and_digests)
        self._revisions[self.current.revision] = self.current
        digests = old.credentials.keys() - self.current.credentials.keys()
        if digests:
            keys = sorted({old.credentials[digest].key.name for digest in digests})
            self._log.info(f"{self._subject}.revoked", revision=old.revision, keys=keys)

    def _activate(self, snapshot: Snapshot) -> list[object]:
        """Activate a snapshot and return the objects that are no longer used.

        A snapshot of the same revision is activated too, because a secret may have changed. One
        without any keys is rejected, unless it revokes all keys or contains ``keys: {}``.
        """
        self._revoke(snapshot.revoked)
        if self.current.credentials and not snapshot.keys and not snapshot.has_empty_keys:
            self._reject([NO_KEYS_MESSAGE])
            return []
        was_rejected, self.rejection = self.rejection is not None, None
        is_changed = snapshot.revision != self.current.revision
        dropped: list[object] = [self._active, self._revisions.pop(snapshot.revision, None)]
        self.current = self._revisions[snapshot.revision] = snapshot
        self._active = ActivePolicy(snapshot)
        if len(self._revisions) > MAX_REVISIONS:
            dropped.append(self._revisions.popitem(last=False))
        if is_changed:
            self._report_activation()
            return dropped
        if was_rejected:
            self._log.info(f"{self._subject}.restored", revision=snapshot.revision)
        self._on_result("restored" if was_rejected else "unchanged", snapshot)
        return dropped
