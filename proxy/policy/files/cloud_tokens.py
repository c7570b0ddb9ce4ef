"""Credentials that clouds hand out for a while: fetched by their makers' libraries, kept for all
who refer to them, and renewed before they expire.

A policy names whose token it means and for what; where the machine's own identity comes from, the
libraries find in its environment, its metadata server or the file that a variable names. None of
what is tried here runs a command. The libraries are extras, and imported when the first token is
fetched.

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
MARGIN_S = 300.0  # before it expires a token is renewed, or at half its time if that is later
RETRY_S = 30.0
AWS_S = 600  # credentials of AWS last that long or longer whenever its library hands them out
REF = re.compile(r"(azure|google|aws):(\S+)")


class CloudToken(NamedTuple):
    """A credential, and for how many seconds it counts when it is fetched."""

    text: str
    lasts_s: float


Fetch = Callable[[], CloudToken]
Environ = Mapping[str, str]
Maker = Callable[[str, Environ], Fetch]


def azure(scope: str, environ: Environ) -> Fetch:
    """Return what asks Entra, as the service principal, the workload or the managed identity that
    the environment tells of."""
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
"""By the type of a file of credentials: which class of the library reads it, and by which method.
That of an external account whose token a program writes is none of these."""


def google(scope: str, environ: Environ) -> Fetch:
    """Return what asks Google, as the account of the file that ``GOOGLE_APPLICATION_CREDENTIALS``
    names, else of the machine."""
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
    """Return what makes keys of Bedrock in a region, signed (SigV4) with the credentials that
    botocore finds: nobody is asked for one."""
    generator: Any = import_module("aws_bedrock_token_generator")
    found: Any = import_module("botocore.session").Session().get_credentials()

    class Found:
        def load(self) -> Any:
            return found

    def fetch() -> CloudToken:
        lasts = timedelta(seconds=AWS_S)
        return CloudToken(generator.provide_token(region, Found(), lasts), AWS_S)

    return fetch


MAKERS: Mapping[str, Maker] = {"azure": azure, "google": google, "aws": aws}
"""By the word of a reference: what makes what fetches its tokens. Makers may raise
``ImportError``; what they make, whatever their libraries do."""


def is_token(ref: str) -> bool:
    """True if a reference is of a token."""
    return REF.fullmatch(ref) is not None


def _cloud(ref: str) -> str:
    return ref.partition(":")[0]


@dataclass
class HeldToken:
    """What is known of a reference: its token, or why there is none; when it is tried again; and
    how many tokens it has had. Who fetches one holds ``lock``."""

    fetch: Fetch | None = None
    token: CloudToken | None = None
    reason: str = ""
    due_at: float = float("-inf")
    fetched: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)


def ignore(ref: str, reason: str) -> None:
    """Note nowhere that a token could not be renewed."""


class CloudTokens:
    """The tokens of a process. Whoever fetches one waits for its cloud, in a thread of its own; who
    asks for another, or for one that is held, waits for nobody.

    ``environ`` tells whose they are; the libraries read more of the process's own. ``tell`` is told
    of a token that could not be renewed, ``now`` is monotonic.
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
        """Return the token that is held, or a first one. Raises ``ValueError`` with why there is
        none, which is told again to who asks within ``RETRY_S``."""
        held = self._held.setdefault(ref, HeldToken())
        if held.token is None:
            with held.lock:
                if held.token is None and self._now() >= held.due_at:
                    self._fetch(ref, held)
        if held.token is None:
            raise ValueError(held.reason)
        return held.token.text

    def look(self, refs: Collection[str]) -> frozenset[tuple[str, int, int, int, int]]:
        """Return what changes with each new token, as looks at files do with theirs, and forget all
        that is no longer referred to."""
        wanted = [ref for ref in refs if is_token(ref)]
        if not wanted and not self._held:
            return frozenset()
        self._held = {ref: self._held.get(ref) or HeldToken() for ref in wanted}
        return frozenset((ref, 0, 0, held.fetched, 0) for ref, held in self._held.items())

    def due(self) -> frozenset[str]:
        """Return the clouds of which a token is to be renewed, or tried again."""
        now = self._now()
        return frozenset(_cloud(ref) for ref, held in [*self._held.items()] if now >= held.due_at)

    def renew(self, cloud: str) -> None:
        """Fetch what is due of one cloud, one after the other. A token that is held counts until
        there is a new one."""
        for ref, held in [*self._held.items()]:
            if _cloud(ref) != cloud:
                continue
            with held.lock:
                if self._now() >= held.due_at and not self._fetch(ref, held):
                    self._tell(ref, held.reason)

    def _fetch(self, ref: str, held: HeldToken) -> bool:
        """Fetch a token; True if there is a new one."""
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
        except Exception as error:  # noqa: BLE001  # the libraries of others: their words may quote
            held.reason = f"fetching a token from {word} failed with {type(error).__name__}"
        else:
            left = held.token.lasts_s
            held.due_at = began + max(left - MARGIN_S, left / 2, 1.0)
            held.fetched += 1
            return True
        held.due_at = self._now() + RETRY_S
        return False
