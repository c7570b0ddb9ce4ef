"""Cloud tokens: fetched by cloud libraries, renewed in time, and reported if that fails."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from proxy.dialects.requests.upstream_request import make_url_and_headers
from proxy.policy.files.cloud_tokens import (
    RETRY_S,
    CloudToken,
    CloudTokens,
    Environment,
    Fetch,
    is_token_reference,
)
from proxy.policy.files.source import PolicyError
from proxy.policy.store import read_folder
from proxy.policy.watch import FileStates, read_secret_states, run_token_renewal
from proxy.runtime.background import background_task
from tests.conftest import DIGEST, running_proxy
from tests.doubles import ScriptedUpstream, chat, respond
from tests.for_each import for_each
from tests.servers import eventually

AZURE = "azure:https://cognitiveservices.azure.com/.default"
GOOGLE = "google:https://www.googleapis.com/auth/cloud-platform"
HOUR_S = 3600.0


@dataclass
class Cloud:
    """Issues numbered tokens, or raises ``fails``."""

    now: float = 1000.0
    issued: int = 0
    fails: Exception | None = None
    hangs: threading.Event | None = None
    fetching: threading.Event = field(default_factory=threading.Event)
    failures: list[tuple[str, str]] = field(default_factory=list)

    def make(self, scope: str, environ: Environment) -> Fetch:
        def fetch() -> CloudToken:
            if self.fails is not None:
                raise self.fails
            self.fetching.set()
            if self.hangs is not None:
                self.hangs.wait()
            self.issued += 1
            return CloudToken(f"token-{self.issued}", HOUR_S)

        return fetch

    def tokens(self) -> CloudTokens:
        tell = lambda ref, reason: self.failures.append((ref, reason))  # noqa: E731
        return CloudTokens({}, tell, lambda: self.now, {"azure": self.make, "google": self.make})


def renewed(tokens: CloudTokens) -> FileStates:
    """Renew due tokens and return the state of the Azure token."""
    tokens.renew("azure")
    return tokens.list_states_and_forget_others([AZURE])


def test_token_is_fetched_once_for_all_references() -> None:
    cloud = Cloud()
    tokens = cloud.tokens()

    assert {tokens.get_token(AZURE) for _ in range(3)} == {"token-1"}
    assert tokens.get_token(GOOGLE) == "token-2"


def test_token_is_renewed_five_minutes_before_expiry() -> None:
    cloud = Cloud()
    tokens = cloud.tokens()
    tokens.get_token(AZURE)
    observed = renewed(tokens)

    cloud.now += HOUR_S - 301
    assert (tokens.list_due_clouds(), renewed(tokens)) == (frozenset(), observed)
    cloud.now += 1
    assert tokens.list_due_clouds() == {"azure"}
    assert renewed(tokens) != observed
    assert (tokens.get_token(AZURE), cloud.failures) == ("token-2", [])


def test_failed_renewal_keeps_the_token_and_is_retried() -> None:
    cloud = Cloud()
    tokens = cloud.tokens()
    tokens.get_token(AZURE)
    observed = tokens.list_states_and_forget_others([AZURE])
    cloud.now += HOUR_S
    cloud.fails = OSError("the words of somebody")

    assert renewed(tokens) == renewed(tokens) == observed
    assert cloud.failures == [(AZURE, "fetching a token from azure failed with OSError")]
    assert tokens.get_token(AZURE) == "token-1"
    cloud.fails, cloud.now = None, cloud.now + RETRY_S
    assert renewed(tokens) != observed
    assert tokens.get_token(AZURE) == "token-2"


def test_failed_first_fetch_is_a_policy_problem() -> None:
    cloud = Cloud(fails=OSError())
    tokens = cloud.tokens()

    for _ in range(2):
        with pytest.raises(ValueError, match="fetching a token from azure failed"):
            tokens.get_token(AZURE)
    observed = renewed(tokens)
    cloud.fails, cloud.now = None, cloud.now + RETRY_S

    assert renewed(tokens) != observed
    assert tokens.get_token(AZURE) == "token-1"


def test_hanging_cloud_does_not_delay_others() -> None:
    cloud = Cloud()
    tokens = cloud.tokens()
    tokens.get_token(AZURE)
    observed = tokens.list_states_and_forget_others([AZURE])
    cloud.now += HOUR_S
    cloud.fetching.clear()
    cloud.hangs = hangs = threading.Event()
    renewal = threading.Thread(target=tokens.renew, args=("azure",))
    renewal.start()
    assert cloud.fetching.wait(10)

    assert tokens.list_states_and_forget_others([AZURE]) == observed
    assert tokens.get_token(AZURE) == "token-1"
    cloud.hangs = None
    assert tokens.get_token(GOOGLE) == "token-2"
    hangs.set()
    renewal.join()
    assert tokens.get_token(AZURE) == "token-3"


def test_late_failure_of_a_cloud_delays_its_retry() -> None:
    cloud = Cloud()

    def make(scope: str, environ: Environment) -> Fetch:
        def fetch() -> CloudToken:
            cloud.now += 2 * RETRY_S
            raise OSError

        return fetch

    tokens = CloudTokens({}, now=lambda: cloud.now, factories={"azure": make})
    tokens.list_states_and_forget_others([AZURE])
    tokens.renew("azure")

    assert not tokens.list_due_clouds()


async def test_clouds_are_called_concurrently() -> None:
    hung, answers = Cloud(hangs=threading.Event()), Cloud()
    factories = {"azure": hung.make, "google": answers.make}
    tokens = CloudTokens({}, now=lambda: answers.now, factories=factories)
    tokens.list_states_and_forget_others([AZURE, GOOGLE])
    assert hung.hangs is not None
    try:
        async with background_task(run_token_renewal(tokens)):
            await eventually(lambda: hung.fetching.is_set() and answers.issued == 1)
            answers.now += HOUR_S
            await eventually(lambda: answers.issued == 2)
    finally:
        hung.hangs.set()
    await eventually(lambda: hung.issued == 1)


def test_unreferenced_token_is_dropped() -> None:
    cloud = Cloud()
    tokens = cloud.tokens()
    tokens.get_token(AZURE)

    assert read_secret_states(["/no/such/file"], tokens) == frozenset()
    cloud.now += 2 * HOUR_S
    tokens.renew("azure")
    assert cloud.issued == 1


@for_each("ref", ["${KEY}", "file:/run/key", "azure:", "oidc:x"])
def test_other_references_are_no_tokens(ref: str) -> None:
    assert not is_token_reference(ref)


def policy(ref: str, url: str = "https://models.example.test/v1", dialect: str = "openai") -> str:
    return f"""
upstreams: {{cloud: {{dialect: {dialect}, base_url: '{url}', api_key: '{ref}'}}}}
deployments: {{support-chat: {{targets: [{{upstream: cloud, model: m}}]}}}}
keys: {{widget: {{sha256: {DIGEST}, deployments: [support-chat]}}}}
"""


@pytest.mark.parametrize("dialect", ["openai", "azure", "anthropic"])
def test_token_is_sent_as_bearer_in_every_dialect(dialect: str, tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text(policy(AZURE, dialect=dialect))

    snapshot = read_folder(tmp_path, {}, Cloud().tokens())

    [target] = snapshot.deployments["support-chat"].routes.targets
    _, headers = make_url_and_headers(target.upstream, "/x")
    assert headers["authorization"] == "Bearer token-1"
    assert not {"api-key", "x-api-key"} & headers.keys()
    assert target.upstream.headers == ()  # headers are part of cache keys; a token must not be
    assert snapshot.secret_files == {AZURE}


def test_missing_extra_is_named_with_its_location(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text(policy(AZURE))

    def missing(scope: str, environ: Environment) -> Fetch:
        raise ModuleNotFoundError("azure")

    with pytest.raises(PolicyError) as wrong:
        read_folder(tmp_path, {}, CloudTokens({}, factories={"azure": missing}))

    [problem] = wrong.value.problems
    assert str(problem).endswith(
        "upstreams.cloud.api_key: tokens of azure need an extra package. Run: pip install "
        "'headrace[azure]'"
    )
    assert read_folder(tmp_path, None).secret_files == frozenset()


class TokenServer(HTTPServer):
    """Token endpoint of a cloud. Each token is unique and expires after some seconds."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), TokenHandler)
        self.lasts_s = 3600
        self.asked: list[str] = []
        self.url = f"http://127.0.0.1:{self.server_port}/token"


class TokenHandler(BaseHTTPRequestHandler):
    """Responds like Google's token endpoint and Azure's identity endpoint."""

    server: TokenServer

    def do_GET(self) -> None:
        self.do_POST()

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0))).decode()
        self.server.asked.append(f"{self.path} {body}")
        result: dict[str, object] = {
            "access_token": f"token-{len(self.server.asked)}",
            "expires_in": self.server.lasts_s,
            "token_type": "Bearer",
        }
        if self.command == "GET":  # managed identities return the moment of expiry
            result |= {"expires_on": "4102444800", "resource": "r"}
        raw = json.dumps(result).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    def log_message(self, format: str, *args: object) -> None:  # name of the base class
        """Say nothing."""


@pytest.fixture
def token_server() -> Iterator[TokenServer]:
    with TokenServer() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def private_key() -> str:
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    form = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8)
    return key.private_bytes(*form, serialization.NoEncryption()).decode()


def account(folder: Path, private_key: str, server: TokenServer) -> Path:
    """Write the file of a Google service account whose tokens come from this server."""
    file = folder / "account.json"
    config = {
        "type": "service_account",
        "client_email": "proxy@example.test",
        "token_uri": server.url,
        "private_key": private_key,
        "private_key_id": "1",
    }
    file.write_text(json.dumps(config))
    return file


async def test_calls_use_and_renew_a_google_token(
    token_server: TokenServer, private_key: str, upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    token_server.lasts_s = 2
    upstream.answer_with(respond(chat()))
    environ = {"GOOGLE_APPLICATION_CREDENTIALS": str(account(tmp_path, private_key, token_server))}
    text = policy(GOOGLE, f"{upstream.url}/v1", "openai_compatible")
    async with running_proxy(tmp_path / "served", text, environ=environ) as proxy:

        async def call() -> str:
            assert (await proxy.chat(model="m")).status == 200
            return upstream.requests[-1].headers["authorization"]

        first_item = await call()
        await eventually(lambda: len(token_server.asked) > 1)
        renewed = first_item
        while renewed == first_item:
            renewed = await call()

    assert first_item == "Bearer token-1"
    assert renewed.startswith("Bearer token-")
    assert "grant_type=" in token_server.asked[0]


FETCHED = """
import json, os
from proxy.policy.files.cloud_tokens import FETCHER_FACTORIES
for ref in ("azure:https://cognitiveservices.azure.com/.default", "aws:eu-central-1"):
    word, _, what = ref.partition(":")
    print(json.dumps(FETCHER_FACTORIES[word](what, os.environ)()))
"""


def test_azure_and_aws_libraries_get_tokens_from_environment(
    token_server: TokenServer, tmp_path: Path
) -> None:
    environ = {
        "IDENTITY_ENDPOINT": token_server.url,
        "IDENTITY_HEADER": "of-the-service",
        "AWS_ACCESS_KEY_ID": "AKIDEXAMPLE",
        "AWS_SECRET_ACCESS_KEY": "of-nobody",
        "PYTHONPATH": str(Path(__file__).parents[3]),
        "HOME": str(tmp_path),
    }
    command = [sys.executable, "-c", FETCHED]
    ran = subprocess.run(
        command, env=environ, capture_output=True, text=True, check=True, timeout=60
    )
    (azure, azure_s), (aws, aws_s) = map(json.loads, ran.stdout.splitlines())

    assert (azure, azure_s > HOUR_S) == ("token-1", True)
    assert "resource=https" in token_server.asked[0]
    assert (aws.startswith("bedrock-api-key-"), aws_s) == (True, 600)
    signed = base64.b64decode(aws.removeprefix("bedrock-api-key-")).decode()
    assert "X-Amz-Credential=AKIDEXAMPLE" in signed
    assert "eu-central-1%2Fbedrock%2Faws4_request" in signed
    assert "of-nobody" not in signed
