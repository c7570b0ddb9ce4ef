"""Short-lived credentials of clouds, which are fetched with their libraries and renewed.

The libraries find the identity of the machine in its environment, its metadata server, or a file
that a variable names. No source that is used here runs a command. The libraries are extras, and
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
MARGIN_S = 300.0  # a token is renewed so long before it expires, but not before half its time
RETRY_S = 30.0
AWS_S = 600  # minimum lifetime of credentials that botocore returns
REF = re.compile(r"(azure|google|aws):(\S+)")


class CloudToken(NamedTuple):
    """A credential and its lifetime."""

    text: str
    lasts_s: float


Fetch = Callable[[], CloudToken]
Environ = Mapping[str, str]
Maker = Callable[[str, Environ], Fetch]


def azure(scope: str, environ: Environ) -> Fetch:
    """Return a fetcher of Entra tokens for the service principal, the workload or the managed
    identity in the environment."""
    identity: Any = import_module("azure.identity")
    bounds = {"connection_timeout": TIMEOUT_S, "read_timeout": TIMEOUT_S, "retry_total": 1}
    ways = [identity.EnvironmentCredential(**bounds)]
    if environ.get("AZURE_FEDERATED_TOKEN_FILE"):
        ways.append(identity.WorkloadIdentityCredential(**bounds))
    client_id = environ.get("AZURE_CLIENT_ID")
    ways.append(identity.ManagedIdentityCredential(client_id=client_id, **bounds))
    credential = identity.ChainedTokenCredential(*ways)

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


def google(scope: str, environ: Environ) -> Fetch:
    """Return a fetcher of Google tokens for the account of the file that
    ``GOOGLE_APPLICATION_CREDENTIALS`` names, otherwise of the machine."""
    transport: Any = import_module("google.auth.transport.requests")
    file = environ.get("GOOGLE_APPLICATION_CREDENTIALS")
    if file:
        kind = orjson.loads(Path(file).read_bytes())["type"]
        module, of_file = GOOGLE_FILES[kind]
        make = getattr(import_module(module).Credentials, of_file)
        credentials = make(file, scopes=[scope])
    else:
        credentials = import_module("google.auth.compute_engine").Credentials(scopes=[scope])
    request = partial(transport.Request(), timeout=TIMEOUT_S)

    def fetch() -> CloudToken:
        credentials.refresh(request)
        lasts = credentials.expiry.replace(tzinfo=UTC) - datetime.now(UTC)
        return CloudToken(credentials.token, lasts.total_seconds())

    return fetch


def aws(region: str, environ: Environ) -> Fetch:
    """Return a fetcher of Bedrock keys in a region. They are signed locally (SigV4) with the
    credentials that botocore finds."""
    generator: Any = import_module("aws_bedrock_token_generator")
    credentials: Any = import_module("botocore.session").Session().get_credentials()

    class BotoCredentials:
        def load(self) -> Any:
            return credentials

    def fetch() -> CloudToken:
        lifetime = timedelta(seconds=AWS_S)
        return CloudToken(generator.provide_token(region, BotoCredentials(), lifetime), AWS_S)

    return fetch


MAKERS: Mapping[str, Maker] = {"azure": azure, "google": google, "aws": aws}
"""Functions that return a fetcher, by cloud. They raise ``ImportError`` without the library, and
the fetchers raise any error of the library."""


def is_token(ref: str) -> bool:
    """Return True if a reference names a token."""
    return REF.fullmatch(ref) is not None


def _cloud(ref: str) -> str:
    return ref.partition(":")[0]


@dataclass
class HeldToken:
    """The token of a reference, or the ``reason`` why there is none. ``lock`` is held while it is
    fetched, next at ``due_at``. ``fetched`` counts tokens."""

    fetch: Fetch | None = None
    token: CloudToken | None = None
    reason: str = ""
    due_at: float = float("-inf")
    fetched: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)


def ignore(ref: str, reason: str) -> None:
    """Report nothing."""


class CloudTokens:
    """The tokens of a process. Only the thread that fetches a token waits for its cloud.

    The libraries read more variables than those in ``environ``. ``tell`` is called with the
    reference and the reason if a token cannot be renewed.
    """

    def __init__(
        self,
        environ: Environ,
        tell: Callable[[str, str], None] = ignore,
        now: Callable[[], float] = time.monotonic,
        makers: Mapping[str, Maker] = MAKERS,
    ) -> None:
        self._environ = environ
        self._now = now
        self._makers = makers
        self._tell = tell
        self._held: dict[str, HeldToken] = {}

    def text(self, ref: str) -> str:
        """Return the current token, or fetch the first one. Raise ``ValueError`` if there is none;
        the next attempt is made after ``RETRY_S``."""
        held = self._held.setdefault(ref, HeldToken())
        if held.token is None:
            with held.lock:
                if held.token is None and self._now() >= held.due_at:
                    self._fetch(ref, held)
        if held.token is None:
            raise ValueError(held.reason)
        return held.token.text

    def look(self, refs: Collection[str]) -> frozenset[tuple[str, int, int, int, int]]:
        """Return a value that changes with each new token, like the state of files. Drop tokens
        without a reference."""
        wanted = [ref for ref in refs if is_token(ref)]
        if not wanted and not self._held:
            return frozenset()
        self._held = {ref: self._held.get(ref) or HeldToken() for ref in wanted}
        return frozenset((ref, 0, 0, held.fetched, 0) for ref, held in self._held.items())

    def due(self) -> frozenset[str]:
        """Return the clouds with a token to fetch."""
        now = self._now()
        return frozenset(_cloud(ref) for ref, held in [*self._held.items()] if now >= held.due_at)

    def renew(self, cloud: str) -> None:
        """Fetch the due tokens of a cloud, one after the other. Old tokens are used meanwhile."""
        for ref, held in [*self._held.items()]:
            if _cloud(ref) != cloud:
                continue
            with held.lock:
                if self._now() >= held.due_at and not self._fetch(ref, held):
                    self._tell(ref, held.reason)

    def _fetch(self, ref: str, held: HeldToken) -> bool:
        """Fetch a token. Return True if there is a new one."""
        word, _, what = ref.partition(":")
        began = self._now()
        try:
            if held.fetch is None:
                held.fetch = self._makers[word](what, self._environ)
            held.token = held.fetch()
        except ImportError:
            held.reason = (
                f"tokens of {word} need an extra package. Run: pip install 'headrace[{word}]'"
            )
        except Exception as error:  # noqa: BLE001  # messages of the libraries may contain secrets
            held.reason = f"fetching a token from {word} failed with {type(error).__name__}"
        else:
            left = held.token.lasts_s
            held.due_at = began + max(left - MARGIN_S, left / 2, 1.0)
            held.fetched += 1
            return True
        held.due_at = self._now() + RETRY_S
        return False
