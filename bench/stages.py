"""``python -m bench.stages``: single stages of a call by themselves, in this process."""

from __future__ import annotations

import asyncio

from bench import decide, guards, limits
from bench.processes import free_port, listens


async def main() -> None:
    decide.report()
    await guards.report()
    await limits.report(free_port, listens)


if __name__ == "__main__":
    asyncio.run(main())
