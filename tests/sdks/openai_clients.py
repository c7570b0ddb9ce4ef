"""Drives OpenAI's SDK and SDKs from the same generator."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from tests.sdks import openai_methods
from tests.sdks.results import Step, plain, streamed, whole_answer


def answered(answer: Any, step: Step) -> Step:
    return streamed(list(answer)) if step["with"].get("stream") else whole_answer(answer)


def openai_like(client: Any, step: Step) -> Step:
    """Calls of all SDKs from the same generator."""
    fields = step["with"]
    if step["do"] == "completion":
        return answered(client.completions.create(**fields), step)
    if step["do"] == "chat":
        return answered(client.chat.completions.create(**fields), step)
    if step["do"] == "embeddings":
        return whole_answer(client.embeddings.create(**fields))
    if step["do"] == "models":
        return whole_answer(client.models.list())
    if step["do"] == "model":
        return whole_answer(client.models.retrieve(fields["model"]))
    raise ValueError(step["do"])


def azure(base: str, key: str, step: Step) -> Step:
    """``client`` may name a deployment. Otherwise the SDK uses the model as deployment."""
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
            result = client.chat.completions if step["do"] == "chat" else client.completions
            answer = await result.create(**step["with"])
            if step["with"].get("stream"):
                return streamed([chunk async for chunk in answer])
            return whole_answer(answer)

    return asyncio.run(run())


def openai(base: str, key: str, step: Step) -> Step:
    from openai import OpenAI

    options = {"max_retries": 0, **step.get("client", {})}
    client = OpenAI(base_url=f"{base}/v1", api_key=key, **options)
    if step["do"] == "request_id":
        return {"ok": True, "request_id": client.completions.create(**step["with"])._request_id}
    if step["do"] in ("call", "call-stream"):
        return openai_methods.call_client(client, step)
    if step["do"] == "respond":
        return response(client.responses.create(**step["with"]))
    if step["do"] == "respond-raw":
        events = client.responses.create(stream=True, **step["with"])
        observed = [(type(event).__name__, plain(event)) for event in events]
        return {"ok": True, "text": "", "data": observed}
    if step["do"] == "respond-stream":
        with client.responses.stream(**step["with"]) as stream:
            kinds = [event.type for event in stream]
            return {**response(stream.get_final_response()), "kinds": kinds}
    if step["do"] == "chat-stream":
        with client.chat.completions.stream(**step["with"]) as stream:
            kinds = [event.type for event in stream]
            return {**whole_answer(stream.get_final_completion()), "kinds": kinds}
    if step["do"] in ABOUT_RESPONSES:
        return ABOUT_RESPONSES[step["do"]](client.responses, step["with"])
    return openai_like(client, step)


ABOUT_RESPONSES: dict[str, Callable[[Any, Any], Step]] = {
    "retrieve": lambda responses, fields: response(responses.retrieve(**fields)),
    "cancel": lambda responses, fields: response(responses.cancel(**fields)),
    "delete": lambda responses, fields: {"ok": True, "data": responses.delete(**fields)},
    "items": lambda responses, fields: {
        "ok": True,
        "data": [plain(item) for item in responses.input_items.list(**fields)],
    },
}
"""The calls about a response that its provider keeps; a list is read page by page."""


def response(answer: Any) -> Step:
    """Return a response, and the SDK type of each item."""
    items = [type(item).__name__ for item in answer.output]
    return {"ok": True, "text": answer.output_text, "data": plain(answer), "items": items}


def openai_async(base: str, key: str, step: Step) -> Step:
    from openai import AsyncOpenAI

    async def run() -> Step:
        async with AsyncOpenAI(base_url=f"{base}/v1", api_key=key, max_retries=0) as client:
            fields = step["with"]
            if step["do"] == "respond":
                return response(await client.responses.create(**fields))
            if step["do"] == "respond-stream":
                async with client.responses.stream(**fields) as stream:
                    kinds = [event.type async for event in stream]
                    return {**response(await stream.get_final_response()), "kinds": kinds}
            if step["do"] == "chat-stream":
                async with client.chat.completions.stream(**fields) as chunks:
                    kinds = [event.type async for event in chunks]
                    return {**whole_answer(await chunks.get_final_completion()), "kinds": kinds}
            result = client.chat.completions if step["do"] == "chat" else client.completions
            answer = await result.create(**fields)
            if fields.get("stream"):
                return streamed([chunk async for chunk in answer])
            return whole_answer(answer)

    return asyncio.run(run())
