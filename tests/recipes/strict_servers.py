"""Servers that refuse what real providers refuse, with their public error messages.

Each responds to the first request of a tool loop with a tool call, and to the second with text.
"""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

from tests.doubles import ReceivedRequest, Script, Wire, respond, stream

Json = dict[str, Any]
Refusal = tuple[int, Any]
THOUGHT = "France has one capital: look it up."
SIGNATURE = b64encode(b"".join(sha256(bytes([number])).digest() for number in range(50))).decode()
"""A thought signature: longer than an id, in letters that no id may have."""
ANSWER = "Paris."
COMMON = frozenset(
    {"max_tokens", "messages", "model", "response_format", "stop", "stream", "temperature"}
    | {"tool_choice", "tools", "top_p"}
)


def openai_error(status: int, message: str) -> Refusal:
    return status, {
        "error": {"message": message, "type": "invalid_request_error", "param": None, "code": None}
    }


def _assistants(body: Json) -> Iterator[tuple[int, Json]]:
    for index, message in enumerate(body["messages"]):
        if message["role"] == "assistant":
            yield index, message


def mistral(body: Json) -> Refusal | None:
    known_names = COMMON | {
        *("frequency_penalty", "metadata", "n", "parallel_tool_calls", "prediction"),
        *("presence_penalty", "random_seed", "reasoning_effort"),
    }
    extra: list[list[Any]] = [["body", name] for name in body if name not in known_names]
    for index, message in _assistants(body):
        members = message.keys() - {"role", "content", "tool_calls", "prefix"}
        extra += [["body", "messages", index, "assistant", name] for name in sorted(members)]
    if extra:
        problem = {"type": "extra_forbidden", "msg": "Extra inputs are not permitted"}
        detail = [{**problem, "loc": place, "input": None} for place in extra]
        refused = {"object": "error", "message": {"detail": detail}}
        return 422, {**refused, "type": "invalid_request_error", "param": None, "code": None}
    for _, message in _assistants(body):
        for call in message.get("tool_calls") or ():
            if not re.fullmatch("[A-Za-z0-9]{9}", call["id"]):
                text = (
                    f"Tool call id was {call['id']} but must be a-z, A-Z, 0-9, with a length of 9."
                )
                refusal = {"object": "error", "message": text, "type": "invalid_function_call"}
                return 400, {**refusal, "param": None, "code": "3280"}
    return None


def _roles(body: Json, *roles: str) -> Refusal | None:
    for index, message in enumerate(body["messages"]):
        if message["role"] not in roles:
            expected = ", ".join(f"`{role}`" for role in roles)
            return openai_error(
                400,
                "Failed to deserialize the JSON body into the target type: "
                f"messages[{index}].role: unknown variant `{message['role']}`, expected one of "
                f"{expected} at line 1 column 85",
            )
    return None


def deepseek(body: Json) -> Refusal | None:
    refused = _roles(body, "system", "user", "assistant", "tool", "latest_reminder")
    if refused is not None:
        return refused
    for _, message in _assistants(body):
        if message.get("tool_calls") and not message.get("reasoning_content"):
            text = "The `reasoning_content` in the thinking mode must be passed back to the API."
            return openai_error(400, text)
    return None


def kimi(body: Json) -> Refusal | None:
    for index, message in _assistants(body):
        if message.get("tool_calls") and not message.get("reasoning_content"):
            return openai_error(
                400,
                "thinking is enabled but reasoning_content is missing in assistant tool call "
                f"message at index {index}",
            )
    return _roles(body, "system", "user", "assistant", "tool")


def _google_error(message: str) -> Refusal:
    return 400, [{"error": {"code": 400, "message": message, "status": "INVALID_ARGUMENT"}}]


def google(body: Json) -> Refusal | None:
    known_names = COMMON | {"max_completion_tokens", "n", "reasoning_effort", "stream_options"}
    known_names |= {"parallel_tool_calls"}
    unknown = [name for name in body if name not in known_names]
    if unknown:
        words = (
            f'Invalid JSON payload received. Unknown name "{name}": Cannot find field.'
            for name in unknown
        )
        return _google_error("\n".join(words))
    for index, message in _assistants(body):
        for call in (message.get("tool_calls") or ())[:1]:
            signed = call.get("extra_content", {}).get("google", {}).get("thought_signature")
            if signed is None:
                return _google_error(
                    "Function call is missing a thought_signature in functionCall parts. This is "
                    "required for tools to work correctly, and missing thought_signature may lead "
                    "to degraded model performance. Additional data, function call "
                    f"`default_api:{call['function']['name']}` , position {index}."
                )
            if signed not in (SIGNATURE, "skip_thought_signature_validator"):
                return _google_error("Corrupted thought signature.")
    return None


def groq(body: Json) -> Refusal | None:
    known_names = COMMON | {
        *("frequency_penalty", "max_completion_tokens", "metadata", "n", "parallel_tool_calls"),
        *("presence_penalty", "reasoning_effort", "seed", "service_tier", "stream_options", "user"),
    }
    members = {"type": "invalid_request_error"}
    for name in body:
        if name not in known_names:
            return 400, {"error": {"message": f"property '{name}' is unsupported", **members}}
    for index, message in _assistants(body):
        for name in message.keys() - {"role", "content", "tool_calls", "name"}:
            text = (
                f"'messages.{index}' : for 'role:assistant' the following must be "
                f"satisfied[('messages.{index}' : property '{name}' is unsupported)]"
            )
            return 400, {"error": {"message": text, **members}}
    return None


def cerebras(body: Json) -> Refusal | None:
    known_names = COMMON | {
        *("logprobs", "max_completion_tokens", "parallel_tool_calls", "reasoning_effort", "seed"),
        *("service_tier", "top_logprobs", "user"),
    }
    unknown = [f"body.{name}" for name in body if name not in known_names]
    for index, message in _assistants(body):
        members = message.keys() - {"role", "content", "tool_calls", "name"}
        unknown += [f"messages.{index}.assistant.{name}" for name in sorted(members)]
    if not unknown:
        return None
    text = "\n".join(f"{place}: property '{place}' is unsupported" for place in unknown)
    extra = {"type": "invalid_request_error", "param": "validation_error"}
    return 400, {"message": text, **extra, "code": "wrong_api_format"}


def together(body: Json) -> Refusal | None:
    return None


@dataclass(frozen=True)
class StrictServer:
    """A provider's server. ``thinks`` and ``signs`` say what it shows beside a call.

    ``bound`` is the field by which it bounds an answer; it ignores other names for that.
    """

    refuses: Callable[[Json], Refusal | None]
    bound: str = "max_completion_tokens"
    thinks: bool = False
    signs: bool = False
    call_id: str = "call_1"
    model: str = "model-1"


SERVERS: Mapping[str, StrictServer] = {
    "mistral": StrictServer(mistral, "max_tokens", call_id="D681PevKs"),
    "deepseek": StrictServer(deepseek, "max_tokens", thinks=True, model="deepseek-v4-pro"),
    "moonshotai": StrictServer(kimi, thinks=True, call_id="get_capital:0", model="kimi-k2.6"),
    "google": StrictServer(google, signs=True, call_id="function-call-1", model="gemini-3-pro"),
    "groq": StrictServer(groq, thinks=True, model="qwen3-32b"),
    "cerebras": StrictServer(cerebras, thinks=True),
    "together": StrictServer(together, "max_tokens"),
}
"""By the provider of an upstream; each is served below a path of its name."""


@dataclass
class Provider:
    """Serves all of ``SERVERS`` to one proxy and stores the accepted bodies."""

    accepted_bodies: list[Json] = field(default_factory=list)

    async def script(self, request: ReceivedRequest, wire: Wire) -> None:
        await self._reply(request)(request, wire)

    def _reply(self, request: ReceivedRequest) -> Script:
        _, name, path = request.path.split("/", 2)
        server = SERVERS[name]
        if path != "v1/chat/completions":
            return respond({"detail": "Not Found"}, 404)
        body = json.loads(request.body)
        refused = server.refuses(body)
        if refused is not None:
            return respond(refused[1], refused[0])
        self.accepted_bodies.append(body)
        is_second = body["messages"][-1]["role"] == "tool"
        message = {"content": ANSWER} if is_second else _calling(server)
        return _streamed(message) if body.get("stream") else _complete_answer(message)


def _calling(server: StrictServer) -> Json:
    call: Json = {"id": server.call_id, "type": "function"}
    call["function"] = {"name": "get_capital", "arguments": '{"of": "France"}'}
    if server.signs:
        call["extra_content"] = {"google": {"thought_signature": SIGNATURE}}
    thought = {"reasoning_content": THOUGHT} if server.thinks else {}
    return {"content": None, **thought, "tool_calls": [call]}


HEAD = {"id": "chatcmpl-1", "created": 1_763_000_000, "model": "model-1"}
USAGE = {"prompt_tokens": 12, "completion_tokens": 4, "total_tokens": 16}


def _finish(message: Json) -> str:
    return "tool_calls" if "tool_calls" in message else "stop"


def _complete_answer(message: Json) -> Script:
    fields = {"role": "assistant", **message}
    choice = {"index": 0, "message": fields, "finish_reason": _finish(message)}
    return respond({**HEAD, "object": "chat.completion", "choices": [choice], "usage": USAGE})


def _streamed(message: Json) -> Script:
    deltas: list[Json] = [{"role": "assistant", "content": ""}]
    if message.get("reasoning_content"):
        thought = message["reasoning_content"]
        deltas += [{"reasoning_content": part} for part in (thought[:9], thought[9:])]
    if message.get("content"):
        deltas += [{"content": message["content"]}]
    for index, call in enumerate(message.get("tool_calls", ())):
        deltas.append({"tool_calls": [{"index": index, **call}]})

    chunks = [_chunk(delta, None) for delta in deltas]
    return stream([*chunks, {**_chunk({}, _finish(message)), "usage": USAGE}])


def _chunk(delta: Json, finish: str | None) -> Json:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return {**HEAD, "object": "chat.completion.chunk", "choices": [choice]}
