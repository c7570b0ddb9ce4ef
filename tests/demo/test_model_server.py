"""The child process that serves the model: one line says that it is ready, or why it is not."""

from __future__ import annotations

import asyncio
import os
import sys
from asyncio.subprocess import PIPE
from pathlib import Path

import pytest

from proxy.settings import Address
from tests.demo.test_model import installed_model
from tests.servers import free_port

RUNTIME = """
class Fields:
    def __getattr__(self, name):
        return self.__dict__.setdefault(name, Fields())
CommonParams = Fields
"""


async def first_line(model: Path, runtime: Path | None = None) -> tuple[str, int | None]:
    """Start the server. Return its first line, and its exit code if it has ended."""
    environ = {**os.environ, **({"PYTHONPATH": str(runtime)} if runtime else {})}
    arguments = ("-m", "proxy.demo.model_server", str(model), "127.0.0.1", str(free_port()))
    process = await asyncio.create_subprocess_exec(
        sys.executable, *arguments, stdin=PIPE, stdout=PIPE, env=environ
    )
    assert process.stdout is not None
    assert process.stdin is not None
    async with asyncio.timeout(60):
        line = await process.stdout.readline()
        process.stdin.close()
        return line.decode().strip(), await process.wait()


@pytest.mark.parametrize("size", [0, 3000, 1_000_000], ids=["empty", "head", "truncated"])
async def test_damaged_model_is_reported(size: int, tmp_path: Path) -> None:
    *_, path, _, _ = installed_model(Address("127.0.0.1", 1))
    damaged = tmp_path / "model.gguf"
    damaged.write_bytes(Path(path).read_bytes()[:size])

    text, code = await first_line(damaged)

    assert text == "cannot load model.gguf: `make clean run` installs it again"
    assert code == 1


async def test_missing_library_is_reported(tmp_path: Path) -> None:
    reason = "libgomp.so.1: cannot open shared object file"
    (tmp_path / "xllamacpp.py").write_text(f"raise ImportError({reason!r})")

    assert await first_line(tmp_path / "model.gguf", tmp_path) == (reason, 1)


async def test_runtime_logs_are_hidden(tmp_path: Path) -> None:
    server = "import os\ndef Server(params):\n    os.write(1, b'loading')\n    return params\n"
    (tmp_path / "xllamacpp.py").write_text(RUNTIME + server)

    assert await first_line(tmp_path / "model.gguf", tmp_path) == ("ready", 0)
