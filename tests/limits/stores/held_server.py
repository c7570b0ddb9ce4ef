"""A Redis server whose replies a test can hold back or refuse."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from proxy.runtime.redis import CommandWord, RedisServer
from tests.servers import eventually


@dataclass
class HeldServer:
    """A server whose replies wait at ``gates`` while ``is_holding``. It refuses commands while it
    ``is_away``."""

    server: RedisServer
    is_holding: bool = False
    is_away: bool = False
    gates: list[asyncio.Event] = field(default_factory=list)
    commands: list[str] = field(default_factory=list)

    async def wait(self, count: int) -> None:
        """Wait until ``count`` replies are held."""
        await eventually(lambda: len(self.gates) == count)

    async def run_command(self, key: str | bytes, *command: CommandWord) -> Any:
        if self.is_away:
            raise ConnectionRefusedError
        reply = await self.server.run_command(key, *command)
        self.commands.append(str(command[-1]))
        if self.is_holding:
            gate = asyncio.Event()
            self.gates.append(gate)
            await gate.wait()
        return reply

    async def run_commands(self, commands: Iterable[Sequence[CommandWord]]) -> None:
        await self.server.run_commands(commands)

    async def aclose(self) -> None:
        await self.server.aclose()
