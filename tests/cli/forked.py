"""Runs commands of headrace to their end, each in a process forked from one that has imported what
they need: to import it takes longer than most commands do.

What a variable changes of what is imported, a process of its own has to show, and what a start of
Python's own does is shown by ``tests/test_start.py`` and by what is served.
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
LONGEST_S = 90
FORKS = multiprocessing.get_context("forkserver")


async def forked(arguments: Sequence[str], environ: Mapping[str, str]) -> tuple[int, str]:
    """Run a command with this environment and no other; give its exit code and all it said."""
    FORKS.set_forkserver_preload([__name__, *IMPORTED])  # heard where it has not begun
    with TemporaryDirectory() as folder:
        path = Path(folder) / "said"
        process = FORKS.Process(target=_run, args=(tuple(arguments), dict(environ), path))
        process.start()
        try:
            await asyncio.to_thread(process.join, LONGEST_S)
            assert process.exitcode is not None, f"goes on for {LONGEST_S} s: {arguments}"
            return process.exitcode, path.read_text()
        finally:
            process.kill()
            process.join()
            process.close()


def _run(arguments: tuple[str, ...], environ: dict[str, str], path: Path) -> None:
    """Be ``python -m proxy`` in this process."""
    received = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(received, 1)
    os.dup2(received, 2)
    os.close(received)
    os.chdir(TOP)
    os.environ.clear()
    os.environ.update(environ)
    sys.argv = ["headrace", *arguments]
    runpy.run_module("proxy", run_name="__main__", alter_sys=True)
