"""Fetches and renews short-lived credentials of clouds with their libraries.

The libraries find the identity of the machine in its environment, its metadata server, or a file
that a variable names. No source used here runs a command. The libraries are extras, and are
imported for the first token.

Sources: the documents of azure-identity, google-auth and aws-bedrock-token-generator.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import orjson

TIMEOUT_S = 5
RENEWAL_MARGIN_S = 300.0  # renewal before expiry, but not before half of the lifetime
RETRY_S = 30.0
AWS_LIFETIME_S = 600  # minimum lifetime of credentials that botocore returns
TOKEN_PATTERN = re.compile(r"(azure|google|aws):(\S+)")


class CloudToken(NamedTuple):
    """A credential and its lifetime."""

    text: str
    lifetime_s: float


Fetch = Callable[[], CloudToken]
Environment = Mapping[str, str]
FetcherFactory = Callable[[str, Environment], Fetch]


def make_azure_fetcher(scope: str, environ: Environment) -> Fetch:
    """Return a fetcher of Entra tokens for the identity in the environment, of any kind."""
    identity: Any = import_module("azure.identity")
    bounds = {"connection_timeout": TIMEOUT_S, "read_timeout": TIMEOUT_S, "retry_total": 1}
    sources = [identity.EnvironmentCredential(**bounds)]
    if environ.get("AZURE_FEDERATED_TOKEN_FILE"):
        sources.append(identity.WorkloadIdentityCredential(**bounds))
    client_id = environ.get("AZURE_CLIENT_ID")
    sources.append(identity.ManagedIdentityCredential(client_id=client_id, **bounds))
    credential = identity.ChainedTokenCredential(*sources)

    def fetch() -> CloudToken:
        token = credential.get_token(scope)
        return CloudToken(token.token, token.expires_on - datetime.now(UTC).timestamp())

    return fetch


GOOGLE_FILES: Mapping[str, tuple[str, str]] = {
    "service_account": ("google.oauth2.service_account", "from_service_account_file"),
    "external_account": ("google.auth.identity_pool", "from_file"),
    "authorized_user": ("google.oauth2.credentials", "from_authorized_user_file"),
}
"""Module and method of the library that read a credentials file, by its type. External accounts
whose token a program prints are not supported."""


def make_google_fetcher(scope: str, environ: Environment) -> Fetch:
    """Return a fetcher of Google tokens for the account of the machine.

    ``GOOGLE_APPLICATION_CREDENTIALS`` may name a file with another account.
    """
    transport: Any = import_module("google.auth.transport.requests")
    file = environ.get("GOOGLE_APPLICATION_CREDENTIALS")
    if file:
        kind = orjson.loads(Path(file).read_bytes())["type"]
        module, method = GOOGLE_FILES[kind]
        credentials = getattr(import_module(module).Credentials, method)(file, scopes=[scope])
    else:
        credentials = import_module("google.auth.compute_engine").Credentials(scopes=[scope])
    request = partial(transport.Request(), timeout=TIMEOUT_S)

    def fetch() -> CloudToken:
        credentials.refresh(request)
        lifetime = credentials.expiry.replace(tzinfo=UTC) - datetime.now(UTC)
        return CloudToken(credentials.token, lifetime.total_seconds())

    return fetch


def make_aws_fetcher(region: str, environ: Environment) -> Fetch:
    """Return a fetcher of Bedrock keys in a region.

    They are signed locally (SigV4) with the credentials that botocore finds.
    """
    generator: Any = import_module("aws_bedrock_token_generator")
    credentials: Any = import_module("botocore.session").Session().get_credentials()

    class BotoCredentials:
        def load(self) -> Any:
            return credentials

    def fetch() -> CloudToken:
        lifetime = timedelta(seconds=AWS_LIFETIME_S)
        return CloudToken(
            generator.provide_token(region, BotoCredentials(), lifetime), AWS_LIFETIME_S
        )

    return fetch


FETCHER_FACTORIES: Mapping[str, FetcherFactory] = {
    "azure": make_azure_fetcher,
    "google": make_google_fetcher,
    "aws": make_aws_fetcher,
}
"""Functions that return a fetcher, by cloud. They raise ``ImportError`` without the library."""


def is_token_reference(ref: str) -> bool:
    """Return True for a reference to a cloud token, such as ``aws:REGION``."""
    return TOKEN_PATTERN.fullmatch(ref) is not None


@dataclass
class TokenSlot:
    """The token of a reference, or the ``reason`` why there is none.

    ``lock`` is held while a token is fetched, next at ``due_at``. ``fetch_count`` changes with
    each new token.
    """

    fetch: Fetch | None = None
    token: CloudToken | None = None
    reason: str = ""
    due_at: float = float("-inf")
    fetch_count: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)


class CloudTokens:
    """The tokens of a process. Only the thread that fetches a token waits for its cloud.

    The libraries also read variables of the process that are not in ``environ``. ``on_failure``
    is called with the reference and the reason if a token cannot be renewed.
    """

    def __init__(
        self,
        environ: Environment,
        on_failure: Callable[[str, str], None] = lambda ref, reason: None,
        now: Callable[[], float] = time.monotonic,
        factories: Mapping[str, FetcherFactory] = FETCHER_FACTORIES,
    ) -> None:
        self._environ = environ
        self._now = now
        self._factories = factories
        self._on_failure = on_failure
        self._slots: dict[str, TokenSlot] = {}

    def get_token(self, ref: str) -> str:
        """Return the current token, or fetch the first one.

        Raise ``ValueError`` if there is none; the next attempt is made after ``RETRY_S``.
        """
        slot = self._slots.setdefault(ref, TokenSlot())
        if slot.token is None:
            with slot.lock:
                if slot.token is None and self._now() >= slot.due_at:
                    self._fetch(ref, slot)
        if slot.token is None:
            raise ValueError(slot.reason)
        return slot.token.text

    def list_states_and_forget_others(
        self, refs: Collection[str]
    ) -> frozenset[tuple[str, int, int, int, int]]:
        """Return a value that changes with each new token. Forget tokens not in ``refs``."""
        token_refs = [ref for ref in refs if is_token_reference(ref)]
        if not token_refs and not self._slots:
            return frozenset()
        self._slots = {ref: self._slots.get(ref) or TokenSlot() for ref in token_refs}
        return frozenset((ref, 0, 0, slot.fetch_count, 0) for ref, slot in self._slots.items())

    def list_due_clouds(self) -> frozenset[str]:
        now, slots = self._now(), [*self._slots.items()]
        return frozenset(ref.partition(":")[0] for ref, slot in slots if now >= slot.due_at)

    def renew(self, cloud: str) -> None:
        """Fetch the due tokens of a cloud, one after the other. Old tokens are used meanwhile."""
        for ref, slot in [*self._slots.items()]:
            if not ref.startswith(f"{cloud}:"):
                continue
            with slot.lock:
                if self._now() >= slot.due_at and not self._fetch(ref, slot):
                    self._on_failure(ref, slot.reason)

    def _fetch(self, ref: str, slot: TokenSlot) -> bool:
        """Fetch a token. Return True if there is a new one."""
        cloud, _, scope = ref.partition(":")
        started_at = self._now()
        try:
            if slot.fetch is None:
                slot.fetch = self._factories[cloud](scope, self._environ)
            slot.token = slot.fetch()
        except ImportError:
            name = f"headrace[{cloud}]"
            slot.reason = f"tokens of {cloud} need an extra package. Run: pip install '{name}'"
        except Exception as error:  # noqa: BLE001  # messages of the libraries may contain secrets
            slot.reason = f"fetching a token from {cloud} failed with {type(error).__name__}"
        else:
            lifetime = slot.token.lifetime_s
            slot.due_at = started_at + max(lifetime - RENEWAL_MARGIN_S, lifetime / 2, 1.0)
            slot.fetch_count += 1
            return True
        slot.due_at = self._now() + RETRY_S
        return False
