"""Searches for guarded words that an upstream hides by splitting them over the chunks of a chat.

No client may assemble the word, whichever members, parts and indexes of the chunks it reads.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from tests.adversary.word_guard import ACTIONS, CLIENTS, choice, chunk, stream_deltas, word_guard
from tests.doubles import Json, Script, ScriptedUpstream, chat, respond, stream
from tests.for_each import for_each

CHAT_CLIENTS = ("chat", "completions")
START, END = "We go to hydro", "polis now"
Form = Callable[[str], Json]
"""Returns a delta with a text."""


def thinking_parts(text: str) -> list[Any]:
    return [{"type": "thinking", "thinking": [{"type": "text", "text": text}]}]


def text_parts(text: str) -> list[Any]:
    return [{"type": "text", "text": text}]


CONTENT: Mapping[str, Form] = {
    "text": lambda text: {"content": text},
    "typed part": lambda text: {"content": text_parts(text)},
    "refusal": lambda text: {"refusal": text},
}
REASONING: Mapping[str, Form] = {
    "reasoning_content": lambda text: {"reasoning_content": text},
    "reasoning": lambda text: {"reasoning": text},
    "thinking part": lambda text: {"content": thinking_parts(text)},
    "both": lambda text: {"reasoning_content": text, "reasoning": text},
    "both, unequal": lambda text: {"reasoning_content": text, "reasoning": text[::-1]},
    "both, unequal, backwards": lambda text: {"reasoning_content": text[::-1], "reasoning": text},
}
UNTYPED_CONTENT: Mapping[str, Form] = {
    "part without a type": lambda text: {"content": [{"text": text}]},
    "string in a list": lambda text: {"content": [text]},
    "object": lambda text: {"content": {"text": text}},
}
OTHER_MEMBERS: Mapping[str, Form] = {
    "transcript": lambda text: {"audio": {"transcript": text}},
    "details of reasoning": lambda text: {
        "reasoning_details": [{"index": 0, "type": "reasoning.text", "text": text}]
    },
    "unknown member": lambda text: {"zzz": text},
    "arguments": lambda text: {"function_call": {"arguments": text}},
}
LISTS: Mapping[str, list[Any]] = {
    "thoughts": [thinking_parts(START), thinking_parts(END), "So be it."],
    "texts after a thought": [thinking_parts("Where to?"), text_parts(START), text_parts(END)],
    "a list, then a text": [text_parts(START), END],
    "one list": [[*text_parts(START), *text_parts(END)]],
}


class Split(NamedTuple):
    """A response with a split word. ``is_found``: guards find it whatever the client reads."""

    name: str
    script: Script
    clients: Collection[str] = CHAT_CLIENTS
    is_found: bool = False
    shown: str = ""
    """Text that a masking guard leaves."""
    api: str = "chat"
    fields: Mapping[str, Any] = {"stream": True}


def splits_that_are_found() -> Iterator[Split]:
    for name, contents in LISTS.items():
        script = stream_deltas(*({"content": item} for item in contents), {"content": ""})
        yield Split(name, script, CLIENTS, is_found=True)
    last_forms = {"text": CONTENT["text"], **UNTYPED_CONTENT, **OTHER_MEMBERS}
    for (name, form), finish in product(last_forms.items(), ("stop", {"x": None})):
        script = stream_deltas(form(START), form(END), finish=finish)
        yield Split(f"last chunk with {name}, {finish}", script, is_found=True)
    parts = text_parts(START), text_parts(END)
    whole = {"choices": [{"index": 0, "text": [*parts[0], *parts[1]], "finish_reason": "stop"}]}
    events = [{"choices": [{"index": 0, "text": part}]} for part in parts]
    legacy: dict[str, Any] = {"is_found": True, "api": "completions"}
    yield Split("parts of a legacy stream", stream(events), **legacy)
    yield Split("parts of a legacy event", stream([whole]), **legacy)
    yield Split("parts of a legacy response", respond(whole), fields={}, **legacy)
    for index in range(3):
        listed = [part for text in ("to hydro", "polis", " now") for part in text_parts(text)]
        del listed[index]["type"]
        message = {"role": "assistant", "content": listed}
        whole = chat(choices=[{"index": 0, "message": message, "finish_reason": "stop"}])
        yield Split(f"part {index} without a type", respond(whole), CLIENTS, True, fields={})


def splits_over_members() -> Iterator[Split]:
    for forms in (CONTENT, REASONING):
        for names in product(forms, repeat=3):
            texts = zip(names, (START, " XX ", END), strict=True)
            script = stream_deltas(
                *(forms[name](text) for name, text in texts), {"content": "Yes."}, {}
            )
            yield Split(", ".join(names), script, shown="Yes.")
    forms = {**CONTENT, **UNTYPED_CONTENT}
    for first, second in product(forms, repeat=2):
        script = stream_deltas(forms[first](START), forms[second](END), {})
        shown = "We go to" if first == "text" else ""
        yield Split(f"{first}, then {second}", script, CLIENTS, shown=shown)
    message, delta = {"content": START}, {"content": END}
    for name, choices in {
        "message, then delta": [{"index": 0, "message": message}, choice(delta)],
        "delta, then message": [choice(message), {"index": 0, "message": delta}],
        "message and delta": [{**choice(delta), "message": message}],
    }.items():
        yield Split(name, stream(map(chunk, choices)), CLIENTS)


def splits_at_a_finish() -> Iterator[Split]:
    """Yield streams in which text follows a finish reason."""
    for name, form in {**CONTENT, **REASONING}.items():
        start, end, stop = form(START), form(END), choice({}, "stop")
        for label, listed in {
            "the end, then a text": ([choice(start)], [stop, choice(end)]),
            "the end alone, then a text": ([choice(start)], [stop], [choice(end)]),
            "a text with the end, then a text": ([choice(start, "stop"), choice(end)],),
            "a text, the end, a text": ([choice(start), stop, choice(end)],),
            "other spellings of the index": (
                [choice(start)],
                [choice({}, "stop", "0"), choice(end, index=0.0)],
            ),
            "a text of another choice between": (
                [choice(start, "length")],
                [choice({"content": "x"}, index=1)],
                [choice(end, "stop")],
            ),
        }.items():
            for count in (1, 2):
                script = stream([chunk(*choices) for choices in listed])
                fields = {"stream": True, "n": count}
                yield Split(f"{name}: {label}, {count}", script, fields=fields)
    letters = [chunk(choice({"content": letter}, "stop")) for letter in START + END]
    yield Split("a finish reason with each letter", stream(letters), CLIENTS)


SPLITS = (*splits_that_are_found(), *splits_over_members(), *splits_at_a_finish())


@ACTIONS
@for_each("client", CLIENTS)
async def test_split_word_is_hidden(
    client: str, action: str, tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    async with word_guard(tmp_path, upstream, action) as calls:
        for split in SPLITS:
            if client not in split.clients:
                continue
            response = await calls.send(client, split.script, split.api, **split.fields)

            response.require_hidden(split.name)
            texts = [text for key, text in response.texts.items() if key != "as written"]
            if action == "mask":
                assert response.reply.status == 200, split.name
                assert any(split.shown in text for text in texts), (split.name, texts)
            if split.is_found:
                assert b"polis" not in response.reply.raw, split.name
                assert (b"[WORD]" in response.reply.raw) == (action == "mask"), split.name
                assert (response.record.outcome == "blocked") == (action == "block"), split.name


ABSENT = "absent"
INDEXES: tuple[object, ...] = (
    ABSENT, None, 0, 0.0, -0.0, "0", False, 1, 1.0, "1", True, -1, 1.5, 10**30, "x", {"a": 1}, [],
)  # fmt: skip


def with_index(index: object, member: Json) -> Json:
    return member if index == ABSENT else {**member, "index": index}


def choice_at(index: object, text: str) -> Json:
    return with_index(index, {"delta": {"content": text}, "finish_reason": None})


@ACTIONS
@for_each("count", [1, 2])
async def test_indexes_of_choices_hide_no_word(
    count: int, action: str, tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    async with word_guard(tmp_path, upstream, action) as calls:
        for first, second in product(INDEXES, repeat=2):
            start, end = choice_at(first, START), choice_at(second, END)
            between, late_end = choice_at(second, " XX "), choice_at(first, END)
            final = chunk({**choice_at(first, ""), "finish_reason": "stop"})
            for listed in ([[start], [end]], [[start, end]], [[start], [between], [late_end]]):
                script = stream([*(chunk(*choices) for choices in listed), final])
                response = await calls.send("chat", script, stream=True, n=count)

                response.require_hidden(first, second)
                assert (count == 1 and action == "mask") <= (response.reply.status == 200)


def call_at(index: object, arguments: str, **names: object) -> Json:
    return with_index(index, {"function": {"arguments": arguments, **names}})


@ACTIONS
async def test_indexes_of_tool_calls_hide_no_word(
    action: str, tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    async with word_guard(tmp_path, upstream, action) as calls:
        for first, second in product(INDEXES, repeat=2):
            start = call_at(first, '{"a": "to hydro', name="f")
            end, late_end = call_at(second, 'polis"}'), call_at(first, 'polis"}')
            between = call_at(second, ' X", "b": "', name="f")
            for listed in ([[start], [end]], [[start, end]], [[start], [between], [late_end]]):
                deltas = ({"tool_calls": part} for part in listed)
                script = stream_deltas(*deltas, {}, finish="tool_calls")
                response = await calls.send("chat", script, stream=True)

                response.require_hidden(first, second)
