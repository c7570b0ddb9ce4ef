"""Tests of the added API family, run in a copy of the repository."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.conftest import DIGEST, Proxy, running_proxy
from tests.doubles import ScriptedUpstream, chat, chat_events, respond, stream

POLICIES = """
upstreams:
  notes: {{dialect: notes, base_url: '{url}', api_key: '${{UPSTREAM_KEY}}'}}
  plain: {{dialect: openai, base_url: '{url}', api_key: '${{UPSTREAM_KEY}}'}}
keys:
  reader:
    sha256: {digest}
    deployments: [notes, plain, guarded-notes, guarded-plain, kept-notes]
deployments:
  notes: {{targets: [{{upstream: notes, model: m}}]}}
  plain: {{targets: [{{upstream: plain, model: m}}]}}
  guarded-notes: {{targets: [{{upstream: notes, model: m}}], policy: guarded}}
  guarded-plain: {{targets: [{{upstream: plain, model: m}}], policy: guarded}}
  kept-notes: {{targets: [{{upstream: notes, model: m}}], cache: {{ttl: 1h}}}}
policies:
  guarded:
    match: all
    input: [{{guard: pii, entities: [email], action: mask}}]
    output: [{{guard: pii, entities: [email], action: mask}}]
"""
ADDRESS = "ann@example.com"
TEXTS = ("Write to ", "ann@exa", "mple.com.")
FIELDS = "".join(TEXTS)
DOCUMENT = {
    "id": "n1",
    "model": "m",
    "notes": [{"text": FIELDS}],
    "end": "said",
    "used": {"prompt_tokens": 5, "completion_tokens": 3},
}
EVENTS = [
    {"begin": "n1", "model": "m"},
    {"open": {"text": ""}},
    *({"at": 0, "text": text} for text in TEXTS),
    {"close": 0},
    {"end": "said", "used": DOCUMENT["used"]},
]


async def ask_in_client_form(proxy: Proxy, client: str, deployment: str, *, streamed: bool) -> str:
    """Return the text that a client gets."""
    body: dict[str, Any] = {"model": deployment, "stream": streamed}
    if client == "notes":
        path, body["notes"] = "/notes", [{"by": "user", "text": f"Who is {ADDRESS}?"}]
    else:
        path = "/v1/chat/completions"
        body["messages"] = [{"role": "user", "content": f"Who is {ADDRESS}?"}]
    reply = await proxy.send(path, body)
    assert reply.status == 200, reply.raw
    lines = reply.raw.split(b"\n\n") if streamed else [b"data: " + reply.raw]
    docs = [orjson.loads(item[6:]) for item in lines if item.startswith(b"data: {")]
    return "".join([text_of(client, item) for item in docs])


def text_of(client: str, doc: Any) -> str:
    if "error" in doc:
        raise ValueError(doc["error"]["message"])
    if client == "notes":
        return "".join([item["text"] for item in doc.get("notes", ()) or [doc] if "text" in item])
    messages = [item.get("message", item.get("delta")) for item in doc["choices"]]
    return "".join([item.get("content") or "" for item in messages])


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("guarded", [False, True], ids=["bare", "guarded"])
@pytest.mark.parametrize(
    ("client", "family"), [("notes", "notes"), ("notes", "plain"), ("chat", "notes")]
)
async def test_new_family_serves_clients_and_upstreams(
    client: str,
    family: str,
    guarded: bool,
    streamed: bool,
    upstream: ScriptedUpstream,
    tmp_path: Path,
) -> None:
    if family == "notes":
        upstream.answer_with(stream(EVENTS, is_done=False) if streamed else respond(DOCUMENT))
    else:
        upstream.answer_with(stream(chat_events(*TEXTS)) if streamed else respond(chat(FIELDS)))
    deployment = f"guarded-{family}" if guarded else family

    async with running(tmp_path, upstream) as proxy:
        text = await ask_in_client_form(proxy, client, deployment, streamed=streamed)
        await proxy.sink.wait(1)

    [request] = upstream.requests
    assert request.path.endswith("/notes" if family == "notes" else "/chat/completions")
    assert (ADDRESS in request.body.decode()) is not guarded
    assert (ADDRESS in text) is not guarded
    assert text.startswith("Write to ")
    assert text == FIELDS or guarded
    [record] = proxy.records
    bill = record.get_first_used_bill()
    assert bill is not None
    tokens = bill.usage.tokens
    assert (tokens.input, tokens.output) == (5, 3)


async def test_response_of_new_family_is_cached(upstream: ScriptedUpstream, tmp_path: Path) -> None:
    upstream.answer_with(stream(EVENTS, is_done=False))

    async with running(tmp_path, upstream) as proxy:
        texts = [
            await ask_in_client_form(proxy, "notes", "kept-notes", streamed=True) for _ in range(2)
        ]

    assert texts == [FIELDS, FIELDS]
    assert len(upstream.requests) == 1


async def test_incomplete_response_is_an_error(upstream: ScriptedUpstream, tmp_path: Path) -> None:
    upstream.answer_with(stream(EVENTS[:4], is_done=False))

    async with running(tmp_path, upstream) as proxy:
        with pytest.raises(ValueError, match="before all notes were said"):
            await ask_in_client_form(proxy, "chat", "notes", streamed=True)


def running(folder: Path, upstream: ScriptedUpstream) -> Any:
    return running_proxy(folder / "p", POLICIES.format(url=upstream.url, digest=DIGEST))
