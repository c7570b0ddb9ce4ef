"""Runs real SDKs in their own environment, by orders that are lines of JSON.

An order has an SDK, a base URL, a key and steps. A step has a task and the arguments of a method of
the SDK. Its result is a line: what the SDK returned, or the exception that it raised. Each order
runs in a forked process, so that the slow imports of an SDK are done once for all orders.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Callable
from typing import Any

from tests.sdks import anthropic_clients, frameworks, langchain_clients, openai_clients
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


DRIVERS: dict[str, tuple[str, Callable[[str, str, Step], Step]]] = {
    "anthropic": ("anthropic", anthropic_clients.anthropic),
    "anthropic-async": ("anthropic", anthropic_clients.anthropic_async),
    "langchain-anthropic": ("langchain_anthropic", langchain_clients.langchain_anthropic),
    "langchain-responses": ("langchain_openai", langchain_clients.langchain_responses),
    "openai": ("openai", openai_clients.openai),
    "openai-async": ("openai", openai_clients.openai_async),
    "azure": ("openai", openai_clients.azure),
    "azure-async": ("openai", openai_clients.azure_async),
    "portkey": ("portkey_ai", portkey),
    "fireworks": ("fireworks", fireworks),
    "scale": ("scale_gp", scale),
    "scale-beta": ("scale_gp_beta", scale_beta),
    "langchain": ("langchain_openai", langchain_clients.langchain),
    "thiggle": ("thiggle", thiggle),
    "enkrypt": ("enkryptai_sdk", enkrypt),
    "anthropic-runner": ("anthropic", frameworks.anthropic_runner),
    "litellm-anthropic": ("litellm", frameworks.litellm_anthropic),
    "litellm-chat": ("litellm", frameworks.litellm_chat),
    "openai-agents": ("agents", frameworks.openai_agents),
    "pydantic-anthropic": ("pydantic_ai.models.anthropic", frameworks.pydantic_anthropic),
    "pydantic-openai": ("pydantic_ai.models.openai", frameworks.pydantic_openai),
}
"""The module that a driver imports, and the driver."""


def follow(order: Step) -> None:
    _, driver = DRIVERS[order["sdk"]]
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
        importlib.import_module(DRIVERS[order["sdk"]][0])
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
