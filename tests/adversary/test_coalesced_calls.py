"""Equal concurrent calls request a response that a guard blocks twice, as they do a failing one."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.doubles import ScriptedUpstream, chat, chat_events, gated, respond, stream
from tests.for_each import for_each
from tests.guards.calls import guarded
from tests.servers import eventually

CALLS = 8
POLICY = "cache: {ttl: 1h}, output: [{guard: keywords, words: [hippo], action: ACTION}]"
REQUESTS = {"block": 2, "retry": 4}  # for the leader, and for the call that takes over


@for_each("streamed", [False, True])
@for_each("action", REQUESTS)
async def test_blocked_response_is_requested_twice(
    action: str, streamed: bool, tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    gate = asyncio.Event()
    script = stream(chat_events("hippo ", "a")) if streamed else respond(chat("a hippo"))
    upstream.answer_with(gated(gate, script))
    async with guarded(tmp_path, upstream, POLICY.replace("ACTION", action)) as proxy:
        async with asyncio.TaskGroup() as group:
            calls = [group.create_task(proxy.chat(stream=streamed)) for _ in range(CALLS)]
            await eventually(lambda: proxy.sink.begun == CALLS)
            gate.set()
        records = await proxy.sink.wait(CALLS)

    assert len(upstream.requests) == REQUESTS[action]
    assert {call.result().status for call in calls} == {400}
    assert {record.outcome for record in records} == {"blocked"}
    assert [record.cache for record in records if record.attempts] == ["miss", "miss"]
