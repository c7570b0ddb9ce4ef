"""Runs ``headrace`` commands in forks of a process that has imported their modules.

Imports take longer than most commands. ``tests/test_start.py`` covers starts of new processes.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import runpy
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

TOP = Path(__file__).parents[2]
IMPORTED = ("proxy.app", "proxy.cli.ledger", "proxy.cli.policies", "proxy.cli.serve")
TIMEOUT_S = 90
FORKS = multiprocessing.get_context("forkserver")


async def forked(arguments: Sequence[str], environ: Mapping[str, str]) -> tuple[int, str]:
    """Run a command with exactly this environment. Return its exit code and output."""
    FORKS.set_forkserver_preload([__name__, *IMPORTED])  # ignored if it runs
    with TemporaryDirectory() as folder:
        path = Path(folder) / "output"
        process = FORKS.Process(target=_run, args=(tuple(arguments), dict(environ), path))
        process.start()
        try:
            await asyncio.to_thread(process.join, TIMEOUT_S)
            assert process.exitcode is not None, f"runs longer than {TIMEOUT_S} s: {arguments}"
            return process.exitcode, path.read_text()
        finally:
            process.kill()
            process.join()
            process.close()


def _run(arguments: tuple[str, ...], environ: dict[str, str], path: Path) -> None:
    """Run ``python -m proxy`` in this process."""
    output = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.close(output)
    os.chdir(TOP)
    os.environ.clear()
    os.environ.update(environ)
    sys.argv = ["headrace", *arguments]
    runpy.run_module("proxy", run_name="__main__", alter_sys=True)
