"""Drives Anthropic's SDK."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.sdks.results import Step, plain


def anthropic(base: str, key: str, step: Step) -> Step:
    """``with`` has the SDK method's arguments. ``leave`` is the number of events to read."""
    from anthropic import Anthropic

    client = Anthropic(base_url=base, api_key=key, **{"max_retries": 0, **step.get("client", {})})
    fields = step["with"]
    if step["do"] == "count":
        return {"ok": True, "text": "", "data": plain(client.messages.count_tokens(**fields))}
    if step["do"] == "models":  # reads all pages
        return {
            "ok": True,
            "text": "",
            "data": [plain(item) for item in client.models.list(**fields)],
        }
    if step["do"] == "model":
        return {"ok": True, "text": "", "data": plain(client.models.retrieve(fields["model"]))}
    if step["do"] == "raw":
        with client.messages.create(stream=True, **fields) as events:
            observed = []
            for event in events:
                observed.append(plain(event))
                if len(observed) == step.get("leave"):
                    break
        return {"ok": True, "text": "", "data": observed}
    if step["do"] == "stream":
        with client.messages.stream(**fields) as stream:
            kinds = [event.type for event in stream]
            answer, output = stream.get_final_message(), stream.response.headers
        return {**message(answer), "kinds": kinds, "request_id": output.get("request-id")}
    result = client.beta.messages if step["do"] == "beta" else client.messages
    return message(result.create(**fields))


def message(answer: Any) -> Step:
    """Return a message, and its parts of types unknown to the SDK."""
    data = plain(answer)
    string = "".join(block.get("text") or "" for block in data["content"])
    blocks = [type(block).__name__ for block in answer.content]
    return {
        "ok": True,
        "text": string,
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
                output = stream.response.headers.get("request-id")
                answer = await stream.get_final_message()
                return {**message(answer), "kinds": kinds, "request_id": output}

    return asyncio.run(run())
