"""Fair scheduling of callers in the threads of guards and models."""

from __future__ import annotations

import ast
import asyncio
import gc
import threading
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from proxy import guards
from proxy.call.record import new_record
from proxy.guards.engine import MAX_LOOP_WEIGHT, Engine
from proxy.guards.guard_threads import MAX_MODEL_CALLS, MODEL_THREADS, GuardThreads, ModelThreadPool
from proxy.guards.output import StreamInspector, ValueRestorer
from proxy.guards.stream.placeholders import Masks, derive_placeholder_key
from proxy.guards.text.documents import BATCH_CHARS, LOOP_WEIGHT, collect_request_texts
from proxy.guards.text.walk import walk_request
from proxy.runtime.fair_queue import LARGE_BYTES, FairSemaphore
from proxy.types.guard import Busy, GuardRule, StageRules
from tests.for_each import for_each
from tests.golden.pipeline import call_of
from tests.guards.doubles import Ticks, rule
from tests.guards.stream import frames as made

COUNT = 60
LONG = {"messages": [{"role": "user", "content": "word " * (BATCH_CHARS // 5)}]}
[HEAVY] = made.text_frames(made.part(), ["word " * LOOP_WEIGHT])

Work = Callable[[Engine], Awaitable[object]]


def patient() -> GuardRule:
    return rule("unfindable", deadline_s=1e9)


def inspect_request(engine: Engine) -> Awaitable[object]:
    return engine.inspect([patient()], collect_request_texts(LONG).texts, caller="one")


def inspect_response(engine: Engine) -> Awaitable[object]:
    return engine.inspect([patient()], collect_request_texts(LONG).texts, caller="many")


def inspect_stream(engine: Engine) -> Awaitable[object]:
    record = new_record()
    record.key = "many"
    return StreamInspector(engine, StageRules.from_rules((patient(),)), {}, record).inspect(HEAVY)


def restore_stream(engine: Engine) -> Awaitable[object]:
    masks = Masks.for_virtual_key(derive_placeholder_key(), "key")
    masks.make_replacement(patient(), "word", "word")
    return ValueRestorer(masks, engine, "many", call_of("chat")).restore([HEAVY])


def restore_response(engine: Engine) -> Awaitable[object]:
    masks = Masks.for_virtual_key(derive_placeholder_key(), "key")
    call = call_of("chat", stream=False)
    return ValueRestorer(masks, engine, "many", call).restore([HEAVY])


def read(engine: Engine) -> Awaitable[object]:
    return engine.read_texts(walk_request, LONG, LARGE_BYTES + 1, caller="many")


def join_messages(engine: Engine) -> Awaitable[object]:
    return engine.run_or_offload(MAX_LOOP_WEIGHT + 1, lambda: None, "many")


def for_prompt(engine: Engine) -> Awaitable[object]:
    calls = engine.build_service_caller({}, new_record())
    return engine.ask_services([], collect_request_texts(LONG), calls, caller="many")


@for_each(
    "work",
    [
        inspect_response,
        inspect_stream,
        restore_stream,
        restore_response,
        read,
        join_messages,
        for_prompt,
    ],
)
async def test_small_caller_does_not_wait_for_a_large_one(work: Work) -> None:
    result = 0
    with ThreadPoolExecutor(1) as pool:
        engine = Engine(Ticks(), pool, slots=FairSemaphore(1))

        async def busy() -> None:
            nonlocal result
            await work(engine)
            result += 1

        tasks = [asyncio.ensure_future(busy()) for _ in range(COUNT)]
        await asyncio.sleep(0)
        async with asyncio.timeout(60):
            await inspect_request(engine)
            first_value = result
            await asyncio.gather(*tasks)

    # The large caller gets its first slots, and one more before the small caller.
    assert first_value < COUNT // 4


async def test_without_threads_work_is_inline() -> None:
    assert await GuardThreads(None, FairSemaphore(0).make_slot("key"))(lambda: 1) == 1


def test_guards_use_no_other_threads() -> None:
    files: Sequence[Path] = sorted(Path(guards.__file__).parent.rglob("*.py"))
    using = {
        file.name
        for file in files
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Attribute)
        and node.attr in ("run_in_executor", "submit", "to_thread")
    }

    assert using == {"guard_threads.py"}


async def test_full_queue_refuses_its_own_caller() -> None:
    pool = ModelThreadPool()
    with ExitStack() as calls:
        for caller, maximum in (("a", MAX_MODEL_CALLS), ("b", MAX_MODEL_CALLS // 2)):
            for _ in range(maximum):
                calls.enter_context(pool.reserve_threads(caller))
        for caller in ("a", "b"):
            with pytest.raises(Busy), pool.reserve_threads(caller):
                raise AssertionError
        with pool.reserve_threads("c") as threads:
            assert await threads(lambda: 7) == 7
    with pool.reserve_threads("a") as threads:
        assert await threads(lambda: 7) == 7


async def test_busy_caller_delays_others_by_one_slot() -> None:
    pool, order = ModelThreadPool(threads=1), list[str]()
    event, pending = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def hold() -> None:
        loop.call_soon_threadsafe(event.set)
        pending.wait(30)

    async def work(caller: str) -> None:
        with pool.reserve_threads(caller) as threads:
            await threads(lambda: order.append(caller))

    with pool.reserve_threads("busy") as first_threads:
        holding = asyncio.create_task(first_threads(hold))
        await event.wait()
        waiting = [asyncio.create_task(work("busy")) for _ in range(20)]
        waiting.append(asyncio.create_task(work("other")))
        await asyncio.sleep(0)
        pending.set()
        await asyncio.gather(holding, *waiting)

    assert order.index("other") <= 1


async def test_two_models_do_not_wait_for_each_other() -> None:
    pool, other_pool, event = ModelThreadPool(), ModelThreadPool(), threading.Event()
    with pool.reserve_threads("a") as threads, other_pool.reserve_threads("a") as extra:
        jobs = [threads(lambda: event.wait(30)) for _ in range(MODEL_THREADS)]
        holding = [*map(asyncio.create_task, jobs)]
        await asyncio.sleep(0)
        assert await extra(lambda: "judged") == "judged"
        event.set()
        assert await asyncio.gather(*holding) == [True] * MODEL_THREADS


async def test_threads_end_with_the_pool() -> None:
    pool = ModelThreadPool()
    with pool.reserve_threads("a") as threads:
        thread = await threads(threading.current_thread)
    assert thread.is_alive()

    del pool, threads
    gc.collect()
    await asyncio.to_thread(thread.join, 10)

    assert not thread.is_alive()
