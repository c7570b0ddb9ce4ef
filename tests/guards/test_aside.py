"""Whatever one key has guards do in their threads, another that asks for little is next."""

from __future__ import annotations

import ast
import asyncio
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from proxy import guards
from proxy.app.context import new_record
from proxy.guards.aside import GuardThreads
from proxy.guards.engine import ABOVE, Engine
from proxy.guards.stream.placeholders import Masks, placeholder_key
from proxy.guards.text.text_walker import LIGHT, SHEET, request_texts
from proxy.guards.text.walk import request_walk
from proxy.guards.watch import ValueRestorer
from proxy.runtime.offload import LARGE_BYTES
from proxy.runtime.turns import Turns
from proxy.types.guard import GuardRule
from tests.for_each import for_each
from tests.golden.pipeline import call_of
from tests.guards.doubles import Ticks, rule
from tests.guards.stream import frames as made

MANY = 60
OWN_THREADS = {"onnx.py", "entailed.py"}  # models, in the process's own threads
LONG = {"messages": [{"role": "user", "content": "word " * (SHEET // 5)}]}
[HEAVY] = made.spoken(made.part(), ["word " * LIGHT])

Work = Callable[[Engine], Awaitable[object]]


def patient() -> GuardRule:
    return rule("unfindable", deadline_s=1e9)


def asked(engine: Engine) -> Awaitable[object]:
    return engine.inspect([patient()], request_texts(LONG).texts, caller="one")


def whole(engine: Engine) -> Awaitable[object]:
    return engine.inspect([patient()], request_texts(LONG).texts, caller="many")


def streamed(engine: Engine) -> Awaitable[object]:
    nobody = partial(engine.inquiry, {}, new_record())
    return engine.watch([patient()], nobody, caller="many").inspect(HEAVY)


def put_back(engine: Engine) -> Awaitable[object]:
    masks = Masks.of(placeholder_key(), "key")
    masks.replacement(patient(), "word", "word")
    return ValueRestorer(masks, engine, "many", call_of("chat")).restored([HEAVY])


def put_back_whole(engine: Engine) -> Awaitable[object]:
    masks, call = Masks.of(placeholder_key(), "key"), call_of("chat", stream=False)
    return ValueRestorer(masks, engine, "many", call).restored([HEAVY])


def read(engine: Engine) -> Awaitable[object]:
    return engine.read(request_walk, LONG, LARGE_BYTES + 1, caller="many")


def put_together(engine: Engine) -> Awaitable[object]:
    return engine.aside(ABOVE + 1, lambda: None, "many")


def asked_about(engine: Engine) -> Awaitable[object]:
    inquiry = engine.inquiry({}, new_record())
    return engine.ask([], request_texts(LONG).texts, inquiry, caller="many")


@for_each("work", [whole, streamed, put_back, put_back_whole, read, put_together, asked_about])
async def test_one_who_asks_for_little_does_not_wait_for_all_that_another_has_asked(
    work: Work,
) -> None:
    done = 0
    with ThreadPoolExecutor(1) as pool:
        engine = Engine(Ticks(), pool, turns=Turns(1))

        async def busy() -> None:
            nonlocal done
            await work(engine)
            done += 1

        tasks = [asyncio.ensure_future(busy()) for _ in range(MANY)]
        await asyncio.sleep(0)
        async with asyncio.timeout(60):
            await asked(engine)
            first = done
            await asyncio.gather(*tasks)

    assert first < MANY // 4  # it has some turns of its own, and one of the other goes between


async def test_without_threads_work_is_done_at_once() -> None:
    assert await GuardThreads(None, Turns(0).of("key"))(lambda: 1) == 1


def test_guards_have_no_other_way_to_threads() -> None:
    files: Sequence[Path] = sorted(Path(guards.__file__).parent.glob("*.py"))
    using = {
        file.name
        for file in files
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Attribute)
        and node.attr in ("run_in_executor", "submit", "to_thread")
    }

    assert using - OWN_THREADS == {"aside.py"}
