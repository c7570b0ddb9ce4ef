"""A Responses answer in chat's form: whole, and event by event.

For a client of Responses each piece keeps what chat has no word for: a whole answer its items as
they are, an event the rest of itself under ``block``. Of an event that says again what was said
before, that is left out: ``writing`` puts back what was shown. What an answer repeats of its
question is left out, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from proxy.dialects.responses.words import (
    BY_DELTA,
    BY_DONE,
    BY_PART,
    CALLS,
    ECHOED,
    ENDS,
    KINDS,
    OF_RESPONSE,
    Place,
)
from proxy.errors import UpstreamInvalid
from proxy.types import Json

FINISHES: Mapping[str, str] = {
    "max_output_tokens": "length",
    "content_filter": "content_filter",
}
"""Why a response is incomplete, in chat's words; any other reason is an end like any."""

UNFINISHED = ("queued", "in_progress")
"""What a response is that is still made."""

_LETS_GO = (".added", ".done")
_OF_ITEM = frozenset({"response.output_item.added", "response.output_item.done"})
_OF_ARGUMENTS = "_arguments.delta"
PARTIAL_JSON = "partial_json"
"""Where the text of such a delta stands, as in Messages: guards read it as JSON."""
_OVERTAKES = frozenset({"response.output_text.annotation.added"})
IN_CHAT: Mapping[str, str] = {
    "text": "content",
    "refusal": "refusal",
    "thought": "reasoning_content",
    "summary": "reasoning_content",
}
"""Where a chat has a kind of text; what tools are asked has a place by the call that it is of."""

_ELSEWHERE = frozenset({"created_at", "error", "id", "model", "object", "output", "usage"})
_TOP = _ELSEWHERE | ECHOED.keys()
_NOT_KEPT = frozenset({"item_id", "obfuscation", "sequence_number"})


def number(value: Any) -> int:
    return value if type(value) is int else 0


def objects(value: Any) -> list[Json]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def member(value: Any) -> Json:
    return value if isinstance(value, dict) else {}


def type_of(value: Json) -> str:
    kind = value.get("type")
    return kind if isinstance(kind, str) else ""


def chat_usage(response: Json) -> Json | None:
    """Return the usage of a response in chat's form."""
    usage = response.get("usage")
    if not isinstance(usage, dict):
        return None
    made: Json = {
        "prompt_tokens": usage.get("input_tokens"),
        "completion_tokens": usage.get("output_tokens"),
    }
    if "total_tokens" in usage:
        made["total_tokens"] = usage["total_tokens"]
    for own, name in (("input", "prompt"), ("output", "completion")):
        if isinstance(usage.get(f"{own}_tokens_details"), dict):
            made[f"{name}_tokens_details"] = usage[f"{own}_tokens_details"]
    searches = _searches(response)
    return made | ({"server_tool_use": {"web_search_requests": searches}} if searches else {})


def _searches(response: Json) -> int:
    """Return how often the provider has searched the web, as it says or else by its items."""
    count = member(member(response.get("tool_usage")).get("web_search")).get("num_requests")
    if type(count) is int:
        return count
    calls = [item for item in objects(response.get("output")) if _is_search(item)]
    return len(calls)


def _is_search(item: Json) -> bool:
    action = member(item.get("action")).get("type", "search")
    return item.get("type") == "web_search_call" and action == "search"


def is_unfinished(response: Json) -> bool:
    """True if a response is still made, and says no usage, which is all that some servers say."""
    return response.get("status") in UNFINISHED and not response.get("usage")


def own_usage(response: Json) -> Json | None:
    """Return usage in chat's form, and as it came beside that."""
    made = chat_usage(response)
    return None if made is None else {**response["usage"], **made}


def finish_of(response: Json) -> str:
    """Return why a response has ended, in chat's words."""
    if response.get("status") == "incomplete":
        return FINISHES.get(str(member(response.get("incomplete_details")).get("reason")), "stop")
    calls = any(type_of(item) in CALLS for item in objects(response.get("output")))
    return "tool_calls" if calls else "stop"


def _without(value: Json, name: str) -> Json:
    return {each: value[each] for each in value if each != name}


def _head(response: Json, kind: str) -> Json:
    return {
        "id": response.get("id"),
        "object": kind,
        "created": response.get("created_at"),
        "model": response.get("model"),
    }


def _items(response: Json) -> list[Json]:
    output = response.get("output")
    items = output if isinstance(output, list) else []
    if not all(isinstance(item, dict) for item in items):
        raise UpstreamInvalid("The upstream sent an output item that is not an object.")
    return items


def tool_call(item: Json) -> Json:
    """Return an item that asks a tool as a chat's call."""
    called: Json = {"id": item.get("call_id")}
    if item.get("type") == "custom_tool_call":
        return called | {
            "type": "custom",
            "custom": {"name": item.get("name"), "input": item.get("input")},
        }
    function = {"name": item.get("name"), "arguments": item.get("arguments")}
    return called | {"type": "function", "function": function}


def chat_answer(response: Json) -> Json:
    """Return a whole answer in chat's form."""
    texts: dict[str, list[str]] = {name: [] for name in KINDS}
    calls: list[Json] = []
    for item in _items(response):
        if type_of(item) in CALLS:
            calls.append(tool_call(item))
        for part in (*objects(item.get("content")), *objects(item.get("summary"))):
            kind = BY_PART.get(type_of(part))
            if kind is not None and isinstance(part.get(KINDS[kind].member), str):
                texts[kind].append(part[KINDS[kind].member])
    words: Json = {
        "role": "assistant",
        "content": "".join(texts["text"]) or (None if calls else ""),
    }
    if texts["refusal"]:
        words["refusal"] = "".join(texts["refusal"])
    thoughts = "".join(texts["thought"]) or "\n\n".join(texts["summary"])
    words |= {"reasoning_content": thoughts} if thoughts else {}
    words |= {"tool_calls": calls} if calls else {}
    return _whole(response, {"message": words}, chat_usage(response))


def own_answer(response: Json) -> Json:
    """Return a whole answer for a client of Responses: its items as they are."""
    rest = {name: value for name, value in response.items() if name not in _TOP}
    choice = {"message": {"role": "assistant", "content": _items(response)}, "rest": rest}
    if is_unfinished(response) and response.get("background") is True:
        choices = [{"index": 0, **choice, "logprobs": None, "finish_reason": None}]
        return {**_head(response, "chat.completion"), "choices": choices}
    return _whole(response, choice, own_usage(response))


def _whole(response: Json, choice: Json, usage: Json | None) -> Json:
    if is_unfinished(response):
        raise UpstreamInvalid("The upstream sent a response that is not complete.")
    choices = [{"index": 0, **choice, "logprobs": None, "finish_reason": finish_of(response)}]
    made = {**_head(response, "chat.completion"), "choices": choices}
    return made if usage is None else made | {"usage": usage}


class ResponseTurn:
    """Reads the events of one stream, in chat's form. With ``own`` each makes one chunk, which
    keeps what is beside it."""

    __slots__ = ("_begun", "_calls", "_head", "_items", "_named", "_own", "_seen")

    def __init__(self, *, own: bool) -> None:
        from proxy.dialects.responses.begun_texts import BegunTexts  # noqa: PLC0415  # of streams

        self._own = own
        self._head = _head({}, "chat.completion.chunk")
        self._calls: dict[int, int] = {}  # the number of each call among the tools, by its item
        self._items: dict[int, bool] = {}  # that have begun in events of their own: True once over
        self._named: set[int] = set()  # the items of calls whose ids and names were said
        self._seen: set[Place] = set()
        self._begun = BegunTexts()

    def feed(self, event: Json) -> list[Json]:
        """Return an event as chunks; none for one that says nothing in chat's form, nor for one
        whose type could not stand in the line of its name."""
        kind = event.get("type")
        if not isinstance(kind, str) or not kind.isprintable():
            return []
        if kind in BY_DELTA and isinstance(event.get("delta"), str):
            return self._grown(BY_DELTA[kind], event)
        if kind in OF_RESPONSE:
            return self._of_response(kind, event)
        if kind in _OF_ITEM:
            at = number(event.get("output_index"))
            self._items[at] = kind == "response.output_item.done"
        if not self._own:
            return self._crossed(kind, event)
        if kind.endswith(".delta"):
            return self._beyond_chat(kind, event)
        if kind == "response.output_item.added":
            self._called(event)
        rest, new = self._new_of(kind, event)
        lets_go = kind.endswith(_LETS_GO) and kind not in _OVERTAKES
        place = new.pop("block", {})
        return self._delta({**new, "block": {**place, "start" if lets_go else "event": rest}})

    def _beyond_chat(self, kind: str, event: Json) -> list[Json]:
        """Return a delta that has no place in a chat."""
        kept = {name: each for name, each in event.items() if name not in _NOT_KEPT}
        if kind.endswith(_OF_ARGUMENTS) and isinstance(event.get("delta"), str):
            kept[PARTIAL_JSON] = kept.pop("delta")
        return self._delta({"block": {"index": number(event.get("output_index")), "delta": kept}})

    def _of_response(self, kind: str, event: Json) -> list[Json]:
        response = member(event.get("response"))
        self._head = _head(response, "chat.completion.chunk")
        finish = self._finish(response) if kind in ENDS else None
        if self._own:
            rest = {name: value for name, value in response.items() if name not in _TOP}
            missing = [] if finish is None else self._missing(response)
            if missing:
                rest["output"] = missing
            usage = own_usage(response)
            chunks = self._delta({"block": {"start": {"type": kind, "response": rest}}}, finish)
            return chunks if usage is None else [{**chunks[0], "usage": usage}]
        if kind == "response.created":
            return self._delta({"role": "assistant", "content": ""})
        if finish is None:
            return []
        made: list[Json] = []
        for each in self._missing(response):
            made += self._crossed("response.output_item.done", each)
        made += self._delta({}, finish)
        usage = chat_usage(response)
        return made if usage is None else [*made, {**self._head, "choices": [], "usage": usage}]

    def _missing(self, response: Json) -> list[Json]:
        """Return the items that the end of a stream alone has as a whole, each with its number,
        without the texts that were said."""
        return [
            {"output_index": at, "item": self._item(item, at)}
            for at, item in enumerate(_items(response))
            if not self._items.get(at)
        ]

    def _finish(self, response: Json) -> str:
        finish = finish_of(response)
        return "tool_calls" if finish == "stop" and self._calls else finish

    def _called(self, event: Json) -> int | None:
        """Note a call of a tool that begins; return its number among them."""
        item, at = member(event.get("item")), number(event.get("output_index"))
        if type_of(item) not in CALLS:
            return None
        self._named.add(at)
        return self._calls.setdefault(at, len(self._calls))

    def _crossed(self, kind: str, event: Json) -> list[Json]:
        """Return an event that is no delta for a client of another form: a call of a tool begins,
        which some servers say at its end alone, or a text comes that no delta has said."""
        begun: list[Json] = []
        if kind == "response.output_item.added":
            place, item = self._called(event), member(event.get("item"))
            if place is None:
                return begun
            call = tool_call(self._begun.take(item, number(event.get("output_index"))))
            return self._delta({"tool_calls": [{"index": place, **call}]})
        if kind == "response.output_item.done":
            item, at = member(event.get("item")), number(event.get("output_index"))
            begun = [] if at in self._named else self._crossed("response.output_item.added", event)
            made = [self._in_chat(place, text) for place, text in self._new_texts(item, at)]
        else:
            _, new = self._new_of(kind, event)
            made = [new] if new else []
        return begun + [each for delta in made for each in self._delta(_without(delta, "block"))]

    def _new_texts(self, item: Json, at: int) -> list[tuple[Place, str]]:
        """Return the texts of an item that no event before it has said, and note them."""
        texts: list[tuple[Place, Any]] = []
        for within in ("content", "summary"):
            for part_at, part in enumerate(objects(item.get(within))):
                name = BY_PART.get(type_of(part))
                if name is not None:
                    texts.append(((at, name, part_at), part.get(KINDS[name].member)))
        name = CALLS.get(type_of(item))
        if name is not None:
            texts.append(((at, name, 0), item.get(KINDS[name].member)))
        new = [(place, text) for place, text in texts if place not in self._seen and text]
        self._seen.update(place for place, _ in new)
        return [(place, text) for place, text in new if isinstance(text, str)]

    def _grown(self, name: str, event: Json) -> list[Json]:
        kind, at = KINDS[name], number(event.get("output_index"))
        part = number(event.get(kind.part_index)) if kind.part_index else 0
        self._seen.add((at, name, part))
        text = self._begun.with_delta((at, name, part), event["delta"])
        delta = self._in_chat((at, name, part), text)
        delta = delta if self._own else _without(delta, "block")
        listed = event.get("logprobs")
        return self._delta(delta, logprobs={"content": listed} if listed else None)

    def _in_chat(self, place: Place, text: str) -> Json:
        """Return a text where a chat has it, and its place."""
        at, name, part = place
        block: Json = {"index": at, "at": part}
        if name == "summary":
            block["summary"] = True
        if name in IN_CHAT:
            return {IN_CHAT[name]: text, "block": block}
        inner: Json = {"function": {"arguments": text}}
        if name == "input":
            inner = {"custom": {"input": text}}
        called = self._calls.setdefault(at, len(self._calls))
        return {"tool_calls": [{"index": called, **inner}], "block": block}

    def _new_of(self, kind: str, event: Json) -> tuple[Json, Json]:
        """Return an event without what was said before, and in chat's form what it alone says."""
        rest = {name: value for name, value in event.items() if name != "sequence_number"}
        at = number(event.get("output_index"))
        if kind in BY_DONE:
            name = BY_DONE[kind]
            spoken = KINDS[name]
            text = rest.pop(spoken.member, None)
            rest |= {"logprobs": []} if "logprobs" in rest else {}
            part = number(event.get(spoken.part_index)) if spoken.part_index else 0
            if (at, name, part) in self._seen or not isinstance(text, str) or not text:
                return rest, {}
            self._seen.add((at, name, part))
            return rest, self._in_chat((at, name, part), text)
        if isinstance(rest.get("part"), dict):
            part_at = number(event.get("content_index", event.get("summary_index")))
            if kind.endswith(".added"):
                rest["part"] = self._begun.take(rest["part"], at, part_at)
            rest["part"] = self._part(rest["part"], at, part_at)
        if kind == "response.output_item.added":
            rest["item"] = self._begun.take(member(rest.get("item")), at)
        if kind == "response.output_item.done":
            rest["item"] = self._item(member(rest.get("item")), at)
        return rest, {}

    def _part(self, part: Json, at: int, part_at: int) -> Json:
        """Return a part without its text, where that was said."""
        name = BY_PART.get(type_of(part))
        if name is None or (at, name, part_at) not in self._seen:
            return part
        bare = _without(part, KINDS[name].member)
        return bare | {"logprobs": []} if "logprobs" in bare else bare

    def _item(self, item: Json, at: int) -> Json:
        """Return an item without its texts, where they were said."""
        made = dict(item)
        for within in ("content", "summary"):
            if isinstance(item.get(within), list):
                parts = enumerate(item[within])
                made[within] = [
                    self._part(part, at, n) if isinstance(part, dict) else part for n, part in parts
                ]
        name = CALLS.get(type_of(item))
        if name is not None and (at, name, 0) in self._seen:
            made.pop(KINDS[name].member, None)
        return made

    def _delta(
        self, delta: Json, finish: str | None = None, logprobs: Json | None = None
    ) -> list[Json]:
        choice = {"index": 0, "delta": delta, "logprobs": logprobs, "finish_reason": finish}
        return [{**self._head, "choices": [choice]}]
