"""Drives frameworks that make several calls: OpenAI's agents, pydantic-ai and LiteLLM's SDK.

A step has a task (``do``), a deployment (``to``) and the number of ``retries``. Without ``retries``
the framework creates its client from the environment.
"""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
import os
from collections.abc import Awaitable, Callable
from typing import Any

Step = dict[str, Any]
Did = Awaitable[Step]
PROMPT = "Where is it?"
PICTURE = "iVBORw0KGgo="
TOOL_RESULT = "It is in France."
CITY = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}


PLACE = {"type": "object", "properties": {"place": {"type": "string"}}, "required": ["place"]}


def final_step(text: str, usage: tuple[int, int] | None, **options: Any) -> Step:
    return {"ok": True, "text": text, "usage": usage, **options}


def on_loop(did: Did) -> Step:
    """Run on one event loop per order, because frameworks reuse a client."""
    try:
        loop = asyncio.get_event_loop_policy().get_event_loop()
    except RuntimeError:
        loop = asyncio.new_event_loop()
        asyncio.set_event_loop(loop)
    return loop.run_until_complete(did)


def openai_agents(base: str, key: str, step: Step) -> Step:
    """OpenAI's agents, which use Responses."""
    os.environ |= {"OPENAI_BASE_URL": f"{base}/v1", "OPENAI_API_KEY": key}
    return on_loop(agent_of_openai(base, key, step))


async def agent_of_openai(base: str, key: str, step: Step) -> Step:
    import agents
    from openai import AsyncOpenAI
    from openai.types.shared import Reasoning
    from pydantic import BaseModel

    class City(BaseModel):
        city: str

    def look_up(place: str) -> str:
        """Look a place up."""
        return TOOL_RESULT

    agents.set_tracing_disabled(True)
    if "retries" in step:
        client = AsyncOpenAI(base_url=f"{base}/v1", api_key=key, max_retries=step["retries"])
        agents.set_default_openai_client(client)
    does = step["do"]
    settings = agents.ModelSettings()
    if does == "think":
        settings = agents.ModelSettings(
            store=False,
            reasoning=Reasoning(effort="low", summary="auto"),
            response_include=["reasoning.encrypted_content"],
        )
    agent = agents.Agent(
        name="finder",
        instructions="Be brief.",
        model=step["to"],
        tools=[agents.function_tool(look_up)] if does in ("loop", "think") else [],
        output_type=City if does == "typed" else None,
        model_settings=settings,
    )
    picture = {"type": "input_image", "image_url": f"data:image/png;base64,{PICTURE}"}
    content = [{"type": "input_text", "text": PROMPT}, {**picture, "detail": "auto"}]
    request: Any = [{"role": "user", "content": content}] if does == "look" else PROMPT
    if step.get("stream"):
        run = agents.Runner.run_streamed(agent, request)
        observed = 0
        async for event in run.stream_events():
            observed += event.type == "raw_response_event"
            if observed == step.get("leave"):
                run.cancel()
    else:
        run = await agents.Runner.run(agent, request)
    used = run.context_wrapper.usage
    fields = run.final_output
    typed = fields.model_dump() if isinstance(fields, BaseModel) else None
    return final_step(str(fields), (used.input_tokens, used.output_tokens), typed=typed)


def pydantic_openai(base: str, key: str, step: Step) -> Step:
    """pydantic-ai with the prefix ``openai:``, which uses Responses."""
    os.environ |= {"OPENAI_BASE_URL": f"{base}/v1", "OPENAI_API_KEY": key}

    def model() -> Any:
        from openai import AsyncOpenAI
        from pydantic_ai.models.openai import OpenAIResponsesModel
        from pydantic_ai.providers.openai import OpenAIProvider

        client = AsyncOpenAI(base_url=f"{base}/v1", api_key=key, max_retries=step.get("retries", 2))
        can = {"openai_supports_encrypted_reasoning_content": True}
        provider = OpenAIProvider(openai_client=client)
        return OpenAIResponsesModel(step["to"], provider=provider, profile=can)

    return on_loop(pydantic_agent("openai", model, step))


def pydantic_anthropic(base: str, key: str, step: Step) -> Step:
    """pydantic-ai with the prefix ``anthropic:``, which uses Messages."""
    os.environ |= {"ANTHROPIC_BASE_URL": base, "ANTHROPIC_API_KEY": key}

    def model() -> Any:
        from anthropic import AsyncAnthropic
        from pydantic_ai.models.anthropic import AnthropicModel
        from pydantic_ai.providers.anthropic import AnthropicProvider

        client = AsyncAnthropic(base_url=base, api_key=key, max_retries=step.get("retries", 2))
        can = {"supports_json_schema_output": True}
        provider = AnthropicProvider(anthropic_client=client)
        return AnthropicModel(step["to"], provider=provider, profile=can)

    return on_loop(pydantic_agent("anthropic", model, step))


async def pydantic_agent(provider: str, model: Callable[[], Any], step: Step) -> Step:
    from pydantic import BaseModel
    from pydantic_ai import Agent, BinaryContent, NativeOutput

    class City(BaseModel):
        city: str

    does = step["do"]
    thinks: dict[str, Step] = {
        "openai": {"openai_reasoning_effort": "low", "openai_reasoning_summary": "auto"},
        "anthropic": {"anthropic_thinking": {"type": "enabled", "budget_tokens": 1024}},
    }

    def look_up(place: str) -> str:
        """Look a place up."""
        return TOOL_RESULT

    # pydantic-ai derives abilities from model names, so they are given explicitly.
    is_own = "retries" in step or does in ("typed", "think")
    agent: Any = Agent(
        model() if is_own else f"{provider}:{step['to']}",
        instructions="Be brief.",
        tools=[look_up] if does in ("loop", "think") else [],
        output_type=NativeOutput(City) if does == "typed" else str,
        model_settings=thinks[provider] if does == "think" else {},
    )
    picture = BinaryContent(base64.b64decode(PICTURE), media_type="image/png")
    request = [PROMPT, picture] if does == "look" else PROMPT
    if not step.get("stream"):
        run = await agent.run(request)
        fields = run.output
    else:
        async with agent.run_stream(request) as run:
            if step.get("leave"):
                await anext(aiter(run.stream_text(delta=True, debounce_by=None)))
                return final_step("", None)
            fields = await run.get_output()
    used = run.usage
    typed = fields.model_dump() if isinstance(fields, BaseModel) else None
    parts = [part for turn in run.all_messages() for part in turn.parts]
    thought = "".join(part.content for part in parts if part.part_kind == "thinking")
    return final_step(
        str(fields), (used.input_tokens, used.output_tokens), typed=typed, thought=thought
    )


def anthropic_runner(base: str, key: str, step: Step) -> Step:
    """The tool loop of Anthropic's SDK, which uses a provider thread if possible."""
    from anthropic import Anthropic, beta_tool

    def look_up(place: str) -> str:
        """Look a place up."""
        return TOOL_RESULT

    runner = Anthropic(base_url=base, api_key=key, max_retries=0).beta.messages.tool_runner(
        model=step["to"],
        max_tokens=2048,
        messages=[{"role": "user", "content": PROMPT}],
        tools=[beta_tool(look_up)],
        stream=bool(step.get("stream")),
    )
    turns = [turn.get_final_message() if step.get("stream") else turn for turn in runner]
    used = [(turn.usage.input_tokens, turn.usage.output_tokens) for turn in turns]
    text = "".join(block.text for block in turns[-1].content if block.type == "text")
    return final_step(text, (sum(item[0] for item in used), sum(item[1] for item in used)))


def litellm_chat(base: str, key: str, step: Step) -> Step:
    """LiteLLM's SDK with a chat endpoint."""
    return litellm_call("openai", f"{base}/v1", key, step)


def litellm_anthropic(base: str, key: str, step: Step) -> Step:
    """LiteLLM's SDK with a Messages endpoint."""
    return litellm_call("anthropic", base, key, step)


def litellm_call(provider: str, base: str, key: str, step: Step) -> Step:
    import litellm

    options: Step = {"model": f"{provider}/{step['to']}", "api_base": base, "api_key": key}
    options |= litellm_options(step)
    turns: list[Any] = [{"role": "user", "content": litellm_content(step["do"])}]
    fields, thought, used = "", "", (0, 0)
    for _ in range(2 if "tools" in options else 1):
        answer = litellm.completion(messages=turns, **options)
        if step.get("stream"):
            chunks = list(itertools.islice(answer, step.get("leave")))
            if step.get("leave"):
                return final_step("", None)
            answer = litellm.stream_chunk_builder(chunks, messages=turns)
        message = answer.choices[0].message
        fields = message.content or ""
        thought += getattr(message, "reasoning_content", None) or ""
        used = used[0] + answer.usage.prompt_tokens, used[1] + answer.usage.completion_tokens
        turns.append(message)
        calls = message.tool_calls or ()
        turns += [
            {"role": "tool", "tool_call_id": call.id, "content": TOOL_RESULT} for call in calls
        ]
    typed = json.loads(fields) if step["do"] == "typed" else None
    return final_step(fields, used, typed=typed, thought=thought)


def litellm_content(does: str) -> Any:
    picture = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PICTURE}"}}
    return [{"type": "text", "text": PROMPT}, picture] if does == "look" else PROMPT


def litellm_options(step: Step) -> Step:
    does = step["do"]
    options: Step = {"max_retries": step["retries"]} if "retries" in step else {}
    if does == "typed":
        schema = {"name": "city", "schema": CITY, "strict": True}
        options["response_format"] = {"type": "json_schema", "json_schema": schema}
    if does in ("loop", "think"):
        look_up = {"name": "look_up", "description": "Look a place up.", "parameters": PLACE}
        options["tools"] = [{"type": "function", "function": look_up}]
    if does == "think":
        options["thinking"] = {"type": "enabled", "budget_tokens": 1024}
        options["allowed_openai_params"] = ["thinking"]  # it knows reasoning models only by name
    if step.get("stream"):
        options |= {"stream": True, "stream_options": {"include_usage": True}}
    return options
