"""The recipe of each provider: target, credential and prices of a chat, and its responses."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from proxy.dialects import DIALECTS
from proxy.dialects.requests.upstream_request import make_url_and_headers
from proxy.money.usage import TOKEN_TYPES, find_price_on
from proxy.policy.decide.snapshot import Snapshot
from proxy.policy.store import read_folder
from proxy.types import Target
from tests.conftest import DIGEST, Proxy, running_proxy
from tests.doubles import ScriptedUpstream, respond
from tests.for_each import for_each
from tests.recipes.provider_responses import ANSWERS, MISTRAL_THINKING, THOUGHT, streamed

PAGE = (Path(__file__).parents[2] / "docs" / "cookbook.md").read_text()
BEDROCK = "https://bedrock-runtime.eu-central-1.amazonaws.com/openai/v1"
GEMINI = "https://generativelanguage.googleapis.com/v1beta/openai"
BASES = {
    "bedrock": (BEDROCK, "aws"),
    "gemini": (GEMINI, "google"),
    "mistral": ("https://api.mistral.ai/v1", "mistral"),
    "groq": ("https://api.groq.com/openai/v1", "groq"),
    "xai": ("https://api.x.ai/v1", "x-ai"),
    "deepseek": ("https://api.deepseek.com/v1", "deepseek"),
    "together": ("https://api.together.xyz/v1", "together"),
    "openrouter": ("https://openrouter.ai/api/v1", "openrouter"),
    "huggingface": ("https://router.huggingface.co/v1", "huggingface"),
    "fireworks": ("https://api.fireworks.ai/inference/v1", "fireworks"),
    "sglang": ("http://127.0.0.1:30000/v1", "sglang"),
    "llamacpp": ("http://127.0.0.1:8080/v1", "llamacpp"),
    "ollama": ("http://127.0.0.1:11434/v1", "ollama"),
}
AT_HOME = ("sglang", "llamacpp", "ollama")


def recipe() -> str:
    section = PAGE.partition("## Other providers\n")[2].partition("\n## ")[0]
    [text] = re.findall(r"```yaml\n(.*?)```", section, re.DOTALL)
    return str(text)


@pytest.fixture(scope="module")
def snapshot(tmp_path_factory: pytest.TempPathFactory) -> Snapshot:
    text = recipe()
    folder = tmp_path_factory.mktemp("providers")
    (folder / "policies.yaml").write_text(text)
    return read_folder(folder, dict.fromkeys(re.findall(r"\$\{(\w+)\}", text), "sk-1"))


@pytest.fixture(scope="module")
def targets(snapshot: Snapshot) -> dict[str, Target]:
    every = (
        item for deployment in snapshot.deployments.values() for item in deployment.routes.targets
    )
    return {target.upstream.name: target for target in every}


def test_each_documented_provider_has_a_target(targets: dict[str, Target]) -> None:
    assert targets.keys() == BASES.keys()


@for_each("name", BASES)
def test_chat_is_sent_with_credential(name: str, targets: dict[str, Target]) -> None:
    upstream = targets[name].upstream
    dialect = DIALECTS[upstream.dialect]

    url, headers = make_url_and_headers(upstream, dialect.server.paths["chat"])

    assert (url, upstream.provider) == (f"{BASES[name][0]}/chat/completions", BASES[name][1])
    assert headers.get("authorization") == (None if name in AT_HOME else "Bearer sk-1")


@for_each("name", BASES)
def test_prices_of_each_provider_are_known(name: str, targets: dict[str, Target]) -> None:
    assert targets[name].describe_missing_price() is None


def address_of(url: str) -> str:
    """Return the recipe with all providers at one address, with their paths."""
    text = re.sub(r"https?://[a-z0-9.:-]+", url, recipe())
    text = re.sub(r"sha256: [0-9a-f]{64}", f"sha256: {DIGEST}", text)
    return re.sub(r"\$\{\w+\}", "${UPSTREAM_KEY}", text)


@pytest.fixture
async def serving(upstream: ScriptedUpstream, tmp_path: Path) -> AsyncIterator[Proxy]:
    async with running_proxy(tmp_path / "served", address_of(upstream.url)) as running:
        yield running


def test_each_documented_provider_has_a_response() -> None:
    assert ANSWERS.keys() == BASES.keys()


def text_of(raw: bytes, member: str, *, is_whole: bool) -> str:
    """Return what an OpenAI client reads in a member of the messages of a chat."""
    if is_whole:
        return json.loads(raw)["choices"][0]["message"].get(member) or ""
    lines = [line[6:] for line in raw.splitlines() if line.startswith(b"data: {")]
    choices = [choice for line in lines for choice in json.loads(line)["choices"]]
    return "".join(choice["delta"].get(member) or "" for choice in choices)


async def ask(proxy: Proxy, target: Target, path: str, **options: Any) -> bytes:
    fields = {"messages": [{"role": "user", "content": "France?"}]}
    if path in ("/v1/completions", "/v1/responses"):
        fields = {}
    reply = await proxy.send(path, {"model": target.model, **fields, **options})
    assert reply.status == 200, reply.raw
    return reply.raw


@pytest.mark.parametrize("is_whole", [True, False], ids=["is_whole", "streamed"])
@pytest.mark.parametrize("name", BASES)
async def test_responses_are_read_counted_and_priced(
    name: str,
    is_whole: bool,
    serving: Proxy,
    targets: dict[str, Target],
    upstream: ScriptedUpstream,
) -> None:
    item, target = ANSWERS[name], targets[name]
    upstream.answer_with(respond(item.whole) if is_whole else streamed(item))

    raw = await ask(serving, target, "/v1/chat/completions", stream=not is_whole)

    assert text_of(raw, "content", is_whole=is_whole) == " Paris."
    assert text_of(raw, "reasoning_content", is_whole=is_whole) == (THOUGHT if item.thought else "")
    [request] = upstream.requests
    assert request.path == f"/{BASES[name][0].split('/', 3)[3]}/chat/completions"
    [record] = await serving.sink.wait()
    assert record.head is not None
    assert (record.outcome, record.billing.usage_source) == ("success", "provider")
    assert record.billing.tokens == item.tokens
    rates = dict(zip(TOKEN_TYPES, item.tokens.list_counts_by_type(), strict=True))
    price = find_price_on(target.prices, record.head.received_at.date())
    assert price is not None
    micro = sum(count * (price.get_rate(kind) or 0) for kind, count in rates.items())
    assert record.billing.cost == round(micro * 1000)


@pytest.mark.parametrize("is_whole", [True, False], ids=["is_whole", "streamed"])
@pytest.mark.parametrize("name", BASES)
async def test_messages_client_reads_the_responses(
    name: str,
    is_whole: bool,
    serving: Proxy,
    targets: dict[str, Target],
    upstream: ScriptedUpstream,
) -> None:
    item = ANSWERS[name]
    upstream.answer_with(respond(item.whole) if is_whole else streamed(item))

    raw = await ask(serving, targets[name], "/v1/messages", stream=not is_whole, max_tokens=99)

    if is_whole:
        message = json.loads(raw)
        texts = [block["text"] for block in message["content"] if block["type"] == "text"]
    else:
        events = [json.loads(line[6:]) for line in raw.splitlines() if line.startswith(b"data: ")]
        assert events[-1] == {"type": "message_stop"}
        message = events[-2]
        texts = [event["delta"]["text"] for event in events if "text" in event.get("delta", {})]
    assert "".join(texts) == " Paris."
    used = message["usage"]
    counts = [used["input_tokens"], used.get("cache_read_input_tokens", 0), used["output_tokens"]]
    tokens = item.tokens
    assert counts == [tokens.input, tokens.cached_input, tokens.completion_total]


def thoughts_and_text(path: str, raw: bytes, *, is_whole: bool) -> tuple[str, str]:
    """Return the thoughts and the text of a response."""
    if not is_whole:
        events = [json.loads(line[6:]) for line in raw.splitlines() if line.startswith(b"data: {")]
        if path == "/v1/completions":
            choices = [item for event in events for item in event["choices"]]
            thoughts = [item.get("reasoning_content", "") for item in choices]
            return "".join(thoughts), "".join(item["text"] for item in choices)
        kinds = {"thinking": "thinking_delta", "text": "text_delta"}
        if path == "/v1/messages":
            deltas = [event["delta"] for event in events if "delta" in event]
            of = {m: [d[m] for d in deltas if d.get("type") == k] for m, k in kinds.items()}
            return "".join(of["thinking"]), "".join(of["text"])
        [answered] = [event["response"] for event in events if event["type"].endswith("completed")]
    else:
        answered = json.loads(raw)
    if path == "/v1/completions":
        [choice] = answered["choices"]
        return choice["reasoning_content"], choice["text"]
    if path == "/v1/messages":
        thinking, text = answered["content"]
        return thinking["thinking"], text["text"]
    reasoning, message = answered["output"]
    return reasoning["content"][0]["text"], message["content"][0]["text"]


@pytest.fixture
async def by_chat(upstream: ScriptedUpstream, tmp_path: Path) -> AsyncIterator[Proxy]:
    text = address_of(upstream.url)
    prompt = text.replace("{upstream: mistral,", "{upstream: mistral, endpoint: chat,")
    assert prompt != text
    async with running_proxy(tmp_path / "by_chat", prompt) as running:
        yield running


@pytest.mark.parametrize("is_whole", [True, False], ids=["is_whole", "streamed"])
@pytest.mark.parametrize(
    ("path", "question"),
    [
        ("/v1/messages", {"max_tokens": 99}),
        ("/v1/responses", {"input": "France?"}),
        ("/v1/completions", {"prompt": "France?"}),
    ],
)
async def test_any_client_reads_thoughts_of_mistral(
    path: str,
    question: dict[str, Any],
    is_whole: bool,
    by_chat: Proxy,
    targets: dict[str, Target],
    upstream: ScriptedUpstream,
) -> None:
    item = MISTRAL_THINKING
    upstream.answer_with(respond(item.whole) if is_whole else streamed(item))

    raw = await ask(by_chat, targets["mistral"], path, stream=not is_whole, **question)

    assert thoughts_and_text(path, raw, is_whole=is_whole) == (THOUGHT, " Paris.")


async def test_chat_client_gets_mistral_parts_unchanged(
    serving: Proxy, targets: dict[str, Target], upstream: ScriptedUpstream
) -> None:
    upstream.answer_with(respond(MISTRAL_THINKING.whole))

    raw = await ask(serving, targets["mistral"], "/v1/chat/completions")

    assert json.loads(raw) == MISTRAL_THINKING.whole
    [record] = await serving.sink.wait()
    assert record.billing.tokens == MISTRAL_THINKING.tokens
