"""Drives real SDKs: orders as JSON lines in; a line for each result of an order out, and one that
ends it.

Runs in the environment of the SDKs, apart from the product's. An order names an SDK, the base URL,
the key and steps; each step names what to do and the arguments for the SDK's own method; each
result says what the SDK gave, or the exception it raised. An order is followed by a process of its
own, forked from this one: to import an SDK takes seconds, and is done once for all orders.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import sys
from collections.abc import Callable
from typing import Any

from tests.sdks import frameworks, others

Step = dict[str, Any]
ENDED = "ended\n"


def stay_here(event: str, arguments: tuple[Any, ...]) -> None:
    """No way out of this machine."""
    if event != "socket.connect" or not isinstance(arguments[1], tuple):
        return
    if not str(arguments[1][0]).startswith(("127.", "::1", "localhost")):
        raise ConnectionRefusedError(f"tests stay on this machine: {arguments[1][0]}")


def plain(value: Any) -> Any:
    """Give an SDK's object as plain data."""
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    if hasattr(value, "to_dict"):
        return value.to_dict()
    return value


def text_of(data: Any) -> str:
    """Join the texts of all choices of an answer or chunk, legacy or chat."""
    said = ""
    for choice in (data or {}).get("choices") or ():
        part = choice.get("message") or choice.get("delta") or choice
        said += part.get("content") or part.get("text") or ""
    return said


def whole(answer: Any) -> Step:
    data = plain(answer)
    return {"ok": True, "text": text_of(data), "data": data}


def streamed(chunks: list[Any]) -> Step:
    all_data = [plain(chunk) for chunk in chunks]
    usages = [data.get("usage") for data in all_data if data.get("usage")]
    said = "".join(map(text_of, all_data))
    return {"ok": True, "text": said, "usage": usages[-1] if usages else None, "data": all_data}


def document_of(response: Any) -> Any:
    """What a response says, where it is JSON: an SDK's ``body`` is the inside of ``error``."""
    try:
        return response.json()
    except Exception:
        return None


def failed(error: BaseException) -> Step:
    response = getattr(error, "response", None)
    return {
        "ok": False,
        "exception": type(error).__name__,
        "mro": [kind.__name__ for kind in type(error).__mro__],
        "status": getattr(error, "status_code", getattr(response, "status_code", None)),
        "message": str(error)[:2000],
        "code": getattr(error, "code", None),
        "param": getattr(error, "param", None),
        "body": getattr(error, "body", None),
        "document": document_of(response),
        "request_id": getattr(error, "request_id", None),
    }


def answered(answer: Any, step: Step) -> Step:
    return streamed(list(answer)) if step["with"].get("stream") else whole(answer)


def openai_like(client: Any, step: Step) -> Step:
    """The calls that all SDKs made by the same generator share."""
    said = step["with"]
    if step["do"] == "completion":
        return answered(client.completions.create(**said), step)
    if step["do"] == "chat":
        return answered(client.chat.completions.create(**said), step)
    if step["do"] == "embeddings":
        return whole(client.embeddings.create(**said))
    if step["do"] == "models":
        return whole(client.models.list())
    if step["do"] == "model":
        return whole(client.models.retrieve(said["model"]))
    raise ValueError(step["do"])


def azure(base: str, key: str, step: Step) -> Step:
    """``client`` may name a deployment; else the SDK names that of the step's model."""
    from openai import AzureOpenAI

    options = {"max_retries": 0, "api_version": "2024-10-21", **step.get("client", {})}
    client = AzureOpenAI(azure_endpoint=base, api_key=key, **options)
    if step["do"] == "respond":
        return response(client.responses.create(**step["with"]))
    return openai_like(client, step)


def azure_async(base: str, key: str, step: Step) -> Step:
    from openai import AsyncAzureOpenAI

    async def run() -> Step:
        async with AsyncAzureOpenAI(
            azure_endpoint=base, azure_ad_token=key, api_version="2024-10-21", max_retries=0
        ) as client:
            made = client.chat.completions if step["do"] == "chat" else client.completions
            answer = await made.create(**step["with"])
            if step["with"].get("stream"):
                return streamed([chunk async for chunk in answer])
            return whole(answer)

    return asyncio.run(run())


def openai(base: str, key: str, step: Step) -> Step:
    from openai import OpenAI

    options = {"max_retries": 0, **step.get("client", {})}
    client = OpenAI(base_url=f"{base}/v1", api_key=key, **options)
    if step["do"] == "request_id":
        return {"ok": True, "request_id": client.completions.create(**step["with"])._request_id}
    if step["do"] in ("call", "call-stream"):
        return others.called(client, step)
    if step["do"] == "respond":
        return response(client.responses.create(**step["with"]))
    if step["do"] == "respond-raw":
        events = client.responses.create(stream=True, **step["with"])
        seen = [(type(event).__name__, plain(event)) for event in events]
        return {"ok": True, "text": "", "data": seen}
    if step["do"] == "respond-stream":
        with client.responses.stream(**step["with"]) as stream:
            kinds = [event.type for event in stream]
            return {**response(stream.get_final_response()), "kinds": kinds}
    if step["do"] in ABOUT_RESPONSES:
        return ABOUT_RESPONSES[step["do"]](client.responses, step["with"])
    return openai_like(client, step)


ABOUT_RESPONSES: dict[str, Callable[[Any, Any], Step]] = {
    "retrieve": lambda responses, said: response(responses.retrieve(**said)),
    "cancel": lambda responses, said: response(responses.cancel(**said)),
    "delete": lambda responses, said: {"ok": True, "data": responses.delete(**said)},
    "items": lambda responses, said: {
        "ok": True,
        "data": [plain(item) for item in responses.input_items.list(**said)],
    },
}
"""The calls about a response that its provider keeps; a list is read page by page."""


def response(answer: Any) -> Step:
    """Give an answer of Responses, and of which type of the SDK each of its items is."""
    items = [type(item).__name__ for item in answer.output]
    return {"ok": True, "text": answer.output_text, "data": plain(answer), "items": items}


def openai_async(base: str, key: str, step: Step) -> Step:
    from openai import AsyncOpenAI

    async def run() -> Step:
        async with AsyncOpenAI(base_url=f"{base}/v1", api_key=key, max_retries=0) as client:
            said = step["with"]
            if step["do"] == "respond":
                return response(await client.responses.create(**said))
            if step["do"] == "respond-stream":
                async with client.responses.stream(**said) as stream:
                    kinds = [event.type async for event in stream]
                    return {**response(await stream.get_final_response()), "kinds": kinds}
            made = client.chat.completions if step["do"] == "chat" else client.completions
            answer = await made.create(**said)
            if said.get("stream"):
                return streamed([chunk async for chunk in answer])
            return whole(answer)

    return asyncio.run(run())


def portkey(base: str, key: str, step: Step) -> Step:
    from portkey_ai import Portkey

    options = {"virtual_key": "support-chat", **step.get("client", {})}
    return openai_like(Portkey(base_url=f"{base}/v1", api_key=key, **options), step)


def fireworks(base: str, key: str, step: Step) -> Step:
    from fireworks import Fireworks

    client = Fireworks(base_url=f"{base}/inference", api_key=key, max_retries=0)
    return openai_like(client, step)


def scale(base: str, key: str, step: Step) -> Step:
    from scale_gp import SGPClient

    client = SGPClient(base_url=base, api_key=key, account_id="acc", max_retries=0)
    return openai_like(client.beta, step)


def scale_beta(base: str, key: str, step: Step) -> Step:
    from scale_gp_beta import SGPClient

    client = SGPClient(base_url=base, api_key=key, account_id="acc", max_retries=0)
    return openai_like(client, step)


def langchain(base: str, key: str, step: Step) -> Step:
    from langchain_openai import ChatOpenAI, OpenAI, OpenAIEmbeddings

    said = {**step["with"], "base_url": f"{base}/v1", "api_key": key, "max_retries": 0}
    if step["do"] == "embeddings":
        made = OpenAIEmbeddings(check_embedding_ctx_length=False, **said)
        return {"ok": True, "text": "", "data": made.embed_documents(["hello"])}
    stream = said.pop("stream", False)
    model = OpenAI(**said) if step["do"] == "completion" else ChatOpenAI(**said)
    parts = list(model.stream(step["say"])) if stream else [model.invoke(step["say"])]
    texts = [part if isinstance(part, str) else str(part.content) for part in parts]
    return {"ok": True, "text": "".join(texts), "data": texts}


def langchain_responses(base: str, key: str, step: Step) -> Step:
    from langchain_openai import ChatOpenAI

    body = dict(step["with"])
    stream, tools = body.pop("stream", False), body.pop("tools", [])
    # A tool that OpenAI runs makes it call Responses.
    model = ChatOpenAI(base_url=f"{base}/v1", api_key=key, max_retries=0, **body).bind_tools(tools)
    if stream:
        parts = list(model.stream(step["say"]))
        answer = sum(parts[1:], parts[0])
    else:
        answer = model.invoke(step["say"])
    usage = answer.usage_metadata
    return {"ok": True, "text": answer.text, "calls": answer.tool_calls, "usage": usage}


def thiggle(base: str, key: str, step: Step) -> Step:
    from thiggle import API

    api = API(key)
    api.base_url = base
    answer = api.completion(**step["with"])
    return {"ok": True, "text": text_of(answer), "data": answer}


def enkrypt(base: str, key: str, step: Step) -> Step:
    from enkryptai_sdk import AIProxyClient

    client = AIProxyClient(api_key=key, base_url=base)
    options = {"deployment_name": "support-chat", **step.get("client", {})}
    answer = client.chat(step["with"], **options)
    data = answer.to_dict()
    return {"ok": True, "text": text_of(data), "kind": type(answer).__name__, "data": data}


def anthropic(base: str, key: str, step: Step) -> Step:
    """``with`` are the arguments of the SDK's own method; ``leave`` stops reading after so many
    events of a stream."""
    from anthropic import Anthropic

    client = Anthropic(base_url=base, api_key=key, **{"max_retries": 0, **step.get("client", {})})
    said = step["with"]
    if step["do"] == "count":
        return {"ok": True, "text": "", "data": plain(client.messages.count_tokens(**said))}
    if step["do"] == "models":  # all pages, one after the other
        return {
            "ok": True,
            "text": "",
            "data": [plain(each) for each in client.models.list(**said)],
        }
    if step["do"] == "model":
        return {"ok": True, "text": "", "data": plain(client.models.retrieve(said["model"]))}
    if step["do"] == "raw":
        with client.messages.create(stream=True, **said) as events:
            seen = []
            for event in events:
                seen.append(plain(event))
                if len(seen) == step.get("leave"):
                    break
        return {"ok": True, "text": "", "data": seen}
    if step["do"] == "stream":
        with client.messages.stream(**said) as stream:
            kinds = [event.type for event in stream]
            answer, shown = stream.get_final_message(), stream.response.headers
        return {**message(answer), "kinds": kinds, "request_id": shown.get("request-id")}
    made = client.beta.messages if step["do"] == "beta" else client.messages
    return message(made.create(**said))


def message(answer: Any) -> Step:
    """Give an answer of Messages, and what of it is of no type that the SDK knows."""
    data = plain(answer)
    said = "".join(block.get("text") or "" for block in data["content"])
    blocks = [type(block).__name__ for block in answer.content]
    return {
        "ok": True,
        "text": said,
        "data": data,
        "blocks": blocks,
        "request_id": getattr(answer, "_request_id", None),
    }


def anthropic_async(base: str, key: str, step: Step) -> Step:
    from anthropic import AsyncAnthropic

    async def run() -> Step:
        async with AsyncAnthropic(base_url=base, api_key=key, max_retries=0) as client:
            if step["do"] != "stream":
                return message(await client.messages.create(**step["with"]))
            async with client.messages.stream(**step["with"]) as stream:
                kinds = [event.type async for event in stream]
                shown = stream.response.headers.get("request-id")
                answer = await stream.get_final_message()
                return {**message(answer), "kinds": kinds, "request_id": shown}

    return asyncio.run(run())


def langchain_anthropic(base: str, key: str, step: Step) -> Step:
    from langchain_anthropic import ChatAnthropic

    said = {"max_retries": 0, **step["with"]}
    stream = said.pop("stream", False)
    model = ChatAnthropic(base_url=base, api_key=key, **said)
    if step.get("tools"):
        model = model.bind_tools(step["tools"])
    if not stream:
        answer = model.invoke(step["say"])
    else:
        parts = list(model.stream(step["say"]))
        answer = sum(parts[1:], parts[0])
    return {
        "ok": True,
        "text": answer.text if isinstance(answer.text, str) else answer.text(),
        "calls": [[each["name"], each["args"]] for each in answer.tool_calls],
        "data": plain(answer),
        "usage": answer.usage_metadata,
    }


DRIVERS = {
    "anthropic": anthropic,
    "anthropic-async": anthropic_async,
    "langchain-anthropic": langchain_anthropic,
    "langchain-responses": langchain_responses,
    "openai": openai,
    "openai-async": openai_async,
    "azure": azure,
    "azure-async": azure_async,
    "portkey": portkey,
    "fireworks": fireworks,
    "scale": scale,
    "scale-beta": scale_beta,
    "langchain": langchain,
    "thiggle": thiggle,
    "enkrypt": enkrypt,
    "anthropic-runner": frameworks.anthropic_runner,
    "litellm-anthropic": frameworks.litellm_anthropic,
    "litellm-chat": frameworks.litellm_chat,
    "openai-agents": frameworks.openai_agents,
    "pydantic-anthropic": frameworks.pydantic_anthropic,
    "pydantic-openai": frameworks.pydantic_openai,
}


IMPORTED = {
    "anthropic": "anthropic",
    "anthropic-async": "anthropic",
    "langchain-anthropic": "langchain_anthropic",
    "langchain-responses": "langchain_openai",
    "openai": "openai",
    "openai-async": "openai",
    "azure": "openai",
    "azure-async": "openai",
    "portkey": "portkey_ai",
    "fireworks": "fireworks",
    "scale": "scale_gp",
    "scale-beta": "scale_gp_beta",
    "langchain": "langchain_openai",
    "thiggle": "thiggle",
    "enkrypt": "enkryptai_sdk",
    "anthropic-runner": "anthropic",
    "litellm-anthropic": "litellm",
    "litellm-chat": "litellm",
    "openai-agents": "agents",
    "pydantic-anthropic": "pydantic_ai.models.anthropic",
    "pydantic-openai": "pydantic_ai.models.openai",
}
"""What each driver imports."""


def follow(order: Step) -> None:
    """Do the steps of an order, and write what each gave."""
    driver = DRIVERS[order["sdk"]]
    for step in order["steps"]:
        try:
            result = driver(order["base"], order["key"], step)
        except Exception as error:
            result = failed(error)
        sys.stdout.write(json.dumps(result, default=str) + "\n")
        sys.stdout.flush()


def main() -> None:
    sys.addaudithook(stay_here)
    os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # or it asks the internet for prices
    for line in sys.stdin:
        order = json.loads(line)
        importlib.import_module(IMPORTED[order["sdk"]])
        child = os.fork()
        if child == 0:
            try:
                follow(order)
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        sys.stdout.write(ENDED)
        sys.stdout.flush()


if __name__ == "__main__":
    main()
