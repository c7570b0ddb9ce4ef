"""Drives real SDKs: orders as JSON lines in; a line for each result of an order out, and one that
ends it.

Runs in the environment of the SDKs, apart from the product's. An order names an SDK, the base URL,
the key and steps; each step names what to do and the arguments for the SDK's own method; each
result says what the SDK gave, or the exception it raised. An order is followed by a process of its
own, forked from this one: to import an SDK takes seconds, and is done once for all orders.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from typing import Any

from tests.sdks import anthropic_clients, frameworks, langchains, openai_clients
from tests.sdks.openai_clients import openai_like
from tests.sdks.results import Step, failed, text_of

ENDED = "ended\n"


def stay_here(event: str, arguments: tuple[Any, ...]) -> None:
    """Refuse connections to other machines."""
    if event != "socket.connect" or not isinstance(arguments[1], tuple):
        return
    if not str(arguments[1][0]).startswith(("127.", "::1", "localhost")):
        raise ConnectionRefusedError(f"tests stay on this machine: {arguments[1][0]}")


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


DRIVERS = {
    "anthropic": anthropic_clients.anthropic,
    "anthropic-async": anthropic_clients.anthropic_async,
    "langchain-anthropic": langchains.langchain_anthropic,
    "langchain-responses": langchains.langchain_responses,
    "openai": openai_clients.openai,
    "openai-async": openai_clients.openai_async,
    "azure": openai_clients.azure,
    "azure-async": openai_clients.azure_async,
    "portkey": portkey,
    "fireworks": fireworks,
    "scale": scale,
    "scale-beta": scale_beta,
    "langchain": langchains.langchain,
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
    os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # otherwise it downloads prices
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
