"""Start, failures and end of the model process."""

from __future__ import annotations

import asyncio
import os
import select
import signal
import sys
from asyncio.subprocess import PIPE
from pathlib import Path

import pytest

from proxy.demo.serving import ModelUnavailable, build_model_command, run_model_server
from proxy.settings import Address
from tests.servers import free_port

READY = "print('ready', flush=True); "
WAIT = "sys.stdin.read()"
DEMO = """
import asyncio, sys
from proxy.demo.serving import run_model_server
async def demo():
    async with run_model_server(sys.argv[1:]) as process:
        print(process.pid, flush=True)
        await asyncio.Event().wait()
{run}(demo())
"""


def installed_model(address: Address) -> tuple[str, ...]:
    """Return the command of the real model. Skip the test if it is not installed; fail on CI."""
    try:
        return build_model_command(address)
    except ModelUnavailable as error:
        reason = f"the model {error}"
    assert not os.environ.get("CI"), reason
    pytest.skip(reason)


def script(text: str) -> tuple[str, ...]:
    return (sys.executable, "-c", f"import os, sys; {text}")


def killed_by(number: signal.Signals) -> str:
    return f"os.kill(os.getpid(), {int(number)})"


ENDS = {
    "illegal-instruction": (killed_by(signal.SIGILL), "stopped (illegal instruction)"),
    "killed": (killed_by(signal.SIGKILL), "stopped (killed)"),
    "exit-code": ("sys.exit(1)", "stopped (exit code 1)"),
    "reason": ("print('cannot load x'); sys.exit(1)", "stopped (cannot load x)"),
    "closes-stdout": ("os.close(1); sys.exit(3)", "stopped (exit code 3)"),
    "never-ready": (WAIT, "was not ready within 0.2 seconds"),
}


async def test_model_is_killed_at_exit() -> None:
    ignoring = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); "

    async with run_model_server(script(ignoring + READY + "signal.pause()")) as process:
        pass

    assert process.returncode == -signal.SIGKILL


@pytest.mark.parametrize("run", ["asyncio.run", "__import__('uvloop').run"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL], ids=["term", "kill"])
async def test_model_ends_with_its_parent(number: signal.Signals, run: str) -> None:
    model = installed_model(Address("127.0.0.1", free_port()))
    code = DEMO.format(run=run)
    demo = await asyncio.create_subprocess_exec(sys.executable, "-c", code, *model, stdout=PIPE)
    assert demo.stdout is not None
    async with asyncio.timeout(60):
        model_end = os.pidfd_open(int(await demo.stdout.readline()))

        demo.send_signal(number)
        await demo.wait()
        ended, *_ = await asyncio.to_thread(select.select, [model_end], [], [], 20)

    os.close(model_end)
    assert ended


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
