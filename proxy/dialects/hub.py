"""Between OpenAI's two forms: legacy completions and chat, requests and answers, both ways.
Also what turns an answer into the form of its client's endpoint.

A client of one can be served by a target that speaks only the other. What has no counterpart is
refused by ``translation``, never guessed. A stream for a client of another form is put in sequence
as well.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from proxy.dialects.logprobs import LegacyLogprobs, Lengths, chat_form, legacy_form
from proxy.errors import BadField, UpstreamInvalid
from proxy.index import index_of
from proxy.types import Call, Endpoint, Json

if TYPE_CHECKING:
    from proxy.dialects.base import Client, Dialect
    from proxy.dialects.chat_order import ChatOrder
    from proxy.types.events import FamilyName

Turn = Callable[[Json], Json | None]
"""Returns a document in another form, which may be changed in place; None for one that says nothing
there."""
IN_CHAT: Mapping[Endpoint, Endpoint] = {"responses": "chat"}
"""Endpoints whose answers are read as those of another."""
UNDATED = "messages"
"""The form of answers that do not say when they were made."""


def finishes(data: Json) -> bool:
    """True if a choice of an answer, or of a chunk of one, has its finish reason."""
    if "choices" not in data or type(data["choices"]) is not list:
        return False
    for choice in data["choices"]:
        if type(choice) is not dict or "finish_reason" not in choice:
            continue
        if choice["finish_reason"]:  # some servers say an empty one in each chunk
            return True
    return False


def unmark(data: Json) -> bool:
    """Take ``block`` out of what a chunk says, in place; True if it was there. Readers of other
    forms mark by it where a block begins, before which guards let go what they hold: what an
    upstream of chats writes there itself is no such mark."""
    choices, found = data.get("choices"), False
    for choice in choices if isinstance(choices, list) else ():
        delta = choice.get("delta") if isinstance(choice, dict) else None
        if isinstance(delta, dict):
            found = delta.pop("block", None) is not None or found
    return found


def logprobs_as_count(body: Json) -> Json:
    """Legacy form: the number of alternatives; ``true`` alone asks for the chosen token only."""
    asked = body.get("logprobs")
    if type(asked) is not bool:
        return body
    count = (body.get("top_logprobs") or 0) if asked else None
    rest = {k: v for k, v in body.items() if k not in ("logprobs", "top_logprobs")}
    return rest if count is None else rest | {"logprobs": count}


def logprobs_as_flag(body: Json) -> Json:
    """Chat form: a flag, and the number of alternatives beside it."""
    asked = body.get("logprobs")
    if type(asked) is not int:
        return body
    return body | {"logprobs": True, "top_logprobs": asked}


def _one_text(prompt: Any) -> str:
    if isinstance(prompt, list) and len(prompt) == 1:
        prompt = prompt[0]
    if not isinstance(prompt, str):
        problem = "must be one string, because the upstream of this model supports chat only"
        raise BadField("prompt", problem)
    return prompt


def chat_request(body: Json) -> Json:
    """Put a legacy request as chat: the prompt is what the user says."""
    message = {"role": "user", "content": _one_text(body.get("prompt"))}
    rest = {k: v for k, v in body.items() if k != "prompt"}
    return logprobs_as_flag({**rest, "messages": [message]})


def _text(message: Json) -> str:
    content = message.get("content")
    if content is None:
        content = ""
    if isinstance(content, list):
        parts = [p.get("text") for p in content if isinstance(p, dict) and p.get("type") == "text"]
        content = (
            "".join(p for p in parts if isinstance(p, str)) if len(parts) == len(content) else None
        )
    if not isinstance(content, str) or message.get("tool_calls") or message.get("function_call"):
        problem = "must have only text, because the upstream of this model has no chat endpoint"
        raise BadField("messages", problem)
    return content


def legacy_request(body: Json) -> Json:
    """Put a chat request as one prompt: ``role: text`` paragraphs, open at the assistant's turn."""
    turns = [f"{message['role']}: {_text(message)}" for message in body.get("messages") or ()]
    prompt = "\n\n".join([*turns, "assistant:"])
    rest = {k: v for k, v in body.items() if k not in ("messages", "max_completion_tokens")}
    if body.get("max_completion_tokens") is not None:
        rest["max_tokens"] = body["max_completion_tokens"]
    return logprobs_as_count({**rest, "prompt": prompt})


def _choices(data: Json) -> list[Json]:
    choices = data.get("choices")
    return [c for c in choices if isinstance(c, dict)] if isinstance(choices, list) else []


def _spoken(choice: Json) -> Json:
    """Return the message or the delta of a choice. Raises ``UpstreamInvalid``."""
    message = choice.get("message") or choice.get("delta") or {}
    if not isinstance(message, dict):
        raise UpstreamInvalid("The upstream sent a choice whose message is not an object.")
    return message


class FinishWords:
    """Rewords the finish reasons of answers, which ``then`` are turned."""

    __slots__ = ("_then", "_words")

    def __init__(
        self, words: Mapping[str, str], then: Callable[[Json], Json | None] | None
    ) -> None:
        self._words = words
        self._then = then

    def feed(self, data: Json) -> Json | None:
        choices = [self._choice(choice) for choice in _choices(data)]
        reworded = {**data, "choices": choices}
        return reworded if self._then is None else self._then(reworded)

    def _choice(self, choice: Json) -> Json:
        word = choice.get("finish_reason")
        known = self._words.get(word.lower()) if isinstance(word, str) else None
        return choice if known is None else {**choice, "finish_reason": known}


class ChatToLegacy:
    """Reword chat answers, whole or chunk by chunk, as legacy completions.

    What a message holds beside its text (tool calls, refusal, reasoning) stays on the choice.
    """

    __slots__ = ("_lengths",)

    def __init__(self) -> None:
        self._lengths = Lengths()

    def feed(self, data: Json) -> Json | None:
        """Return the reworded answer, or None for a chunk that is empty in the other form."""
        choices = [self._choice(choice) for choice in _choices(data)]
        empty = all(not c["text"] and c["finish_reason"] is None and len(c) == 4 for c in choices)
        if choices and empty and not data.get("usage"):
            return None
        return {**data, "object": "text_completion", "choices": choices}

    def _choice(self, choice: Json) -> Json:
        message = _spoken(choice)
        beside = {k: v for k, v in message.items() if k not in ("role", "content") and v}
        text = message.get("content") or ""
        begin = self._lengths.pass_by(choice, text)
        return {
            "index": choice.get("index", 0),
            "text": text,
            "logprobs": legacy_form(choice.get("logprobs"), begin),
            "finish_reason": choice.get("finish_reason"),
            **beside,
        }


class LegacyToChat:
    """Reword legacy answers, whole or chunk by chunk, as chat; each choice opens with its role."""

    __slots__ = ("_opened", "_streamed")

    def __init__(self, *, streamed: bool) -> None:
        self._streamed = streamed
        self._opened: set[int] = set()

    def feed(self, data: Json) -> Json | None:
        kind = "chat.completion.chunk" if self._streamed else "chat.completion"
        return {**data, "object": kind, "choices": [self._choice(c) for c in _choices(data)]}

    def _choice(self, choice: Json) -> Json:
        index = choice.get("index", 0)
        place = index_of(choice, 0)
        message: Json = {"content": choice.get("text") or ""}
        if not self._streamed or place not in self._opened:
            self._opened.add(place)
            message = {"role": "assistant", **message}
        return {
            "index": index,
            ("delta" if self._streamed else "message"): message,
            "logprobs": chat_form(choice.get("logprobs")),
            "finish_reason": choice.get("finish_reason"),
        }


def as_stream(data: Json) -> list[Json]:
    """Cut a whole answer into the events of a stream, for an upstream that cannot stream."""
    whole_chat = data.get("object") == "chat.completion"
    choices = [_delta(choice) if whole_chat else choice for choice in _choices(data)]
    chat = whole_chat or data.get("object") == "chat.completion.chunk"
    kind = "chat.completion.chunk" if chat else "text_completion"
    head = {k: v for k, v in data.items() if k not in ("choices", "usage", "object")}
    events: list[Json] = [{**head, "object": kind, "choices": choices}]
    if data.get("usage") is not None:
        events.append({**head, "object": kind, "choices": [], "usage": data["usage"]})
    return events


def _delta(choice: Json) -> Json:
    message = _spoken(choice)
    calls = message.get("tool_calls")
    if isinstance(calls, list):
        numbered = [
            {**call, "index": at} for at, call in enumerate(calls) if isinstance(call, dict)
        ]
        message = message | {"tool_calls": numbered}
    rest = {k: v for k, v in choice.items() if k != "message"}
    return {**rest, "delta": message}


def turning(call: Call, endpoint: Endpoint, client: Dialect, upstream: Dialect) -> Turn | None:
    """Return what turns a target's answer into the form of the client's endpoint, if need be."""
    asked, words = call.head.endpoint, upstream.server.finishes
    wanted, given = IN_CHAT.get(asked, asked), IN_CHAT.get(endpoint, endpoint)
    same = wanted == given and wanted != "completions"
    turn = None if same else _turning(call, wanted, given, client.client)
    form, spoken = client.families.get(asked), upstream.families.get(endpoint)
    if spoken == UNDATED and form != spoken:
        turn = _dated(call) if turn is None else _then(_dated(call), turn)
    if form is not None and form != spoken:
        turn = _then(_then(turn, _joined_parts()), _whole_calls())
    return FinishWords(words, turn).feed if words and client is not upstream else turn


def chat_order(call: Call, form: FamilyName, *, waits: bool) -> ChatOrder | None:
    """Return what puts a stream in sequence for a client of another form than its upstream's, which
    reads one block or item after the other; None for a call without a stream. It ``waits`` where
    what comes may take turns: in the chunks of a chat, but not in a whole answer."""
    if not call.stream:
        return None
    from proxy.dialects.chat_order import ChatOrder  # noqa: PLC0415  # few calls cross

    return ChatOrder(waits=waits, apart=form == "responses")


def _dated(call: Call) -> Turn:
    """Return what dates an answer whose form has no time: by when the call came."""
    created = int(call.head.at.timestamp())

    def feed(data: Json) -> Json:
        data["created"] = created
        return data

    return feed


def _then(turn: Turn | None, second: Turn) -> Turn:
    """Return a turn after which there is another."""
    if turn is None:
        return second
    first = turn

    def feed(data: Json) -> Json | None:
        turned = first(data)
        return None if turned is None else second(turned)

    return feed


def _joined_parts() -> Turn:
    """Return what turns lists of parts, which other forms than chat's have no place for, into
    texts."""
    from proxy.dialects.content_parts import joined_answer  # noqa: PLC0415  # few calls cross

    return joined_answer


def _whole_calls() -> Turn:
    """Return what gives the calls of whole answers what other forms want of each."""
    from proxy.dialects.call_numbers import in_other_forms  # noqa: PLC0415  # few calls cross

    return in_other_forms


def _turning(call: Call, wanted: Endpoint, endpoint: Endpoint, client: Client) -> Turn | None:
    if wanted == "completions" and endpoint == "chat":
        return _then(_joined_parts(), ChatToLegacy().feed)
    if wanted == "chat" and endpoint == "completions":
        return LegacyToChat(streamed=call.stream).feed
    counts = wanted == "completions" and call.body.get("logprobs") is not None
    return LegacyLogprobs().feed if counts and not client.reads_any_logprobs else None
