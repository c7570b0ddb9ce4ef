"""``headrace demo`` with the real model and without it, and the examples that it prints."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import signal
import socket
import sys
from asyncio.subprocess import PIPE, STDOUT, Process
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
from click.testing import CliRunner

from proxy.cli import main
from proxy.demo.serving import run_model_or_simulation
from proxy.demo.simulated import RESPONSE_TEXT
from proxy.settings import Address
from tests.demo.test_model import ENDS, RUNTIME, WAIT, installed_model, killed_by, script
from tests.for_each import for_each
from tests.sdks.conftest import PYTHON
from tests.servers import eventually, free_port, program

TOP = Path(__file__).parents[2]


@pytest.fixture
async def printed(tmp_path: Path) -> AsyncIterator[str]:
    """Start the demo and yield its output until it is ready."""
    installed_model(Address("127.0.0.1", 1))
    async with demo(tmp_path) as running:
        await running.wait_for("/metrics")
        yield running.printed
        assert await running.stop() == 0, running.printed


def commands(printed: str) -> list[str]:
    """Return the printed examples as shell commands."""
    indented = re.findall(r"(?:^  .*\n(?:^  .*\n|^\s*\n(?=  ))*)", printed, re.MULTILINE)
    text = "\n".join("".join(indented).splitlines())
    parts = re.split(r"\n(?=  (?:curl|python))", text)
    return ["\n".join(line[2:] for line in part.splitlines()) for part in parts]


async def shell(command: str) -> str:
    """Run an example with the ``python`` of the environment with the SDKs."""
    path = f"{PYTHON.parent}:{os.environ['PATH']}"
    process = await asyncio.create_subprocess_exec(
        "bash", "-c", command, stdout=PIPE, stderr=PIPE, env={**os.environ, "PATH": path}
    )
    async with asyncio.timeout(60):
        out, error = await process.communicate()
    assert process.returncode == 0, error.decode()
    return out.decode()


async def test_printed_examples_work(printed: str) -> None:
    program("curl")
    legacy, chat, messages, responses, sdk, models, metrics = commands(printed)

    completed = json.loads(await shell(legacy))
    streamed = await shell(chat)
    message = json.loads(await shell(messages))
    response = json.loads(await shell(responses))
    sdk_output = await shell(sdk)
    compared = json.loads(await shell(models))
    scraped = await shell(metrics)

    assert completed["choices"][0]["text"].startswith(" Paris.")
    assert completed["usage"]["completion_tokens"] == 8
    assert streamed.rstrip().endswith("data: [DONE]")
    assert '"usage"' not in streamed
    assert (message["type"], message["content"][0]["type"]) == ("message", "text")
    assert 0 < message["usage"]["output_tokens"] <= 16
    assert (response["object"], response["output"][0]["type"]) == ("response", "message")
    assert 0 < response["usage"]["output_tokens"] <= 16
    assert len(sdk_output.strip()) > 10
    assert [c["model"] for c in compared["choices"]] == ["smol-base", "smol-chat"]
    assert all(c["usage"]["completion_tokens"] > 0 for c in compared["choices"])
    assert 'headrace_requests_total{deployment="support-chat"' in scraped
    assert 'headrace_cost_usd_total{cost_type="input",deployment="compare"' in scraped


FREE = "127.0.0.1:0"
BEARER = {"authorization": "Bearer hr-demo-key"}
SIMULATED = "Continuing with simulated responses."
PROXIES = dict.fromkeys(("HTTP_PROXY", "http_proxy", "all_proxy"), "http://127.0.0.1:9")
RUNTIMES = {
    "before-ready": f"import os\ndef Server(params): {killed_by(signal.SIGILL)}\n",
    "after-ready": "def Server(params): return params\n",
    "never-ready": "import time\ndef Server(params): time.sleep(600)\n",
}


class Demo:
    """A running ``headrace demo`` and what it has printed so far."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self.printed = ""

    async def wait_for(self, text: str) -> None:
        assert self.process.stdout is not None
        while text not in self.printed:
            line = await self.process.stdout.readline()
            assert line, self.printed
            self.printed += line.decode()

    async def stop(self) -> int:
        assert self.process.stdout is not None
        self.process.send_signal(signal.SIGINT)
        self.printed += (await self.process.stdout.read()).decode()
        return await self.process.wait()

    async def complete(self) -> str:
        [url] = re.findall(r"ready at (http://[0-9.:]+) ", self.printed)
        body = {"model": "support-chat", "prompt": "Hi"}
        async with (
            aiohttp.ClientSession(headers=BEARER) as client,
            client.post(f"{url}/v1/completions", json=body) as response,
        ):
            return str((await response.json())["choices"][0]["text"])


def policies_with(folder: Path, model_port: int) -> Path:
    """Return a copy of the shipped policies that expect the model at another port."""
    policies = folder / "policies"
    shutil.copytree(TOP / "policies", policies)
    upstreams = policies / "upstreams.yaml"
    upstreams.write_text(upstreams.read_text().replace(":8089", f":{model_port}"))
    return policies


@asynccontextmanager
async def demo(folder: Path, runtime: str | None = None, **environ: str) -> AsyncIterator[Demo]:
    """Run the demo, by default with the real model.

    A fake ``runtime`` of the model writes its process id to a file. The HTTP proxies of the
    environment do not exist: a demo that used them could not answer.
    """
    if runtime is not None:
        note = f"import os\nopen({str(folder / 'pid')!r}, 'w').write(str(os.getpid()))\n"
        (folder / "xllamacpp.py").write_text(f"{note}{RUNTIME}{runtime}")
    policies = policies_with(folder, free_port())
    arguments = ("--policies", str(policies), "--listen", FREE, "--admin-listen", FREE)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "proxy", "demo", *arguments),
        stdout=PIPE,
        stderr=STDOUT,
        cwd=TOP,
        env={**os.environ, **PROXIES, **environ, "PYTHONPATH": str(folder), "TMPDIR": str(folder)},
    )
    try:
        async with asyncio.timeout(100):
            yield Demo(process)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


def model_pid(folder: Path) -> int:
    """Return the process id of the model, 0 before it runs."""
    file = folder / "pid"
    return int(file.read_text() or 0) if file.exists() else 0


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.parametrize("moment", ["before-ready", "after-ready"])
async def test_simulated_responses_replace_a_killed_model(moment: str, tmp_path: Path) -> None:
    ledger = {"HEADRACE_LEDGER": f"sqlite:{tmp_path / 'usage.db'}"}
    environ = ledger if moment == "after-ready" else {}
    async with demo(tmp_path, RUNTIMES[moment], **environ) as running:
        await running.wait_for("/metrics")
        if moment == "after-ready":
            os.kill(model_pid(tmp_path), signal.SIGILL)
        await running.wait_for(SIMULATED)

        text = await running.complete()
        code = await running.stop()

    assert text == RESPONSE_TEXT
    assert code == 0
    reason = "The local model stopped (illegal instruction). Continuing with simulated responses."
    assert running.printed.count(reason) == 1
    assert "Traceback" not in running.printed
    assert re.search(r"\nsupport-chat +1 +1 +16 +\$0\.00000033 ", running.printed)
    assert ("The ledger was temporary" in running.printed) == (not environ)
    assert (tmp_path / "usage.db").exists() == bool(environ)
    assert not list(tmp_path.glob("headrace-demo-*"))


async def test_ctrl_c_stops_a_loading_demo(tmp_path: Path) -> None:
    async with demo(tmp_path, RUNTIMES["never-ready"]) as running:
        await running.wait_for("Starting")
        await eventually(lambda: model_pid(tmp_path) > 0)

        code = await running.stop()

    assert code == 0
    assert "Traceback" not in running.printed
    await eventually(lambda: not is_running(model_pid(tmp_path)))


USED_PORTS = [
    ("serve", "--listen", "--listen"),
    ("demo", "--admin-listen", "--admin-listen"),
    ("demo", "model", "the base_url of upstream local in {policies}"),
]


@for_each(("command", "option", "source"), USED_PORTS)
def test_used_port_is_reported_first(
    command: str, option: str, source: str, tmp_path: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        policies = policies_with(tmp_path, port if option == "model" else free_port())
        addresses = {"--listen": FREE, "--admin-listen": FREE, option: f"127.0.0.1:{port}"}
        options = [
            part for name in ("--listen", "--admin-listen") for part in (name, addresses[name])
        ]

        result = CliRunner().invoke(main, [command, "--policies", str(policies), *options])

    address = f"127.0.0.1:{port} ({source.format(policies=policies)})"
    advice = "Stop the program that uses it, or choose another address."
    assert result.output.startswith(f"Error: {address}: Address already in use. {advice}\n")
    assert "Starting" not in result.output
    assert result.exit_code == 1


@pytest.mark.parametrize(("text", "message"), ENDS.values(), ids=ENDS)
async def test_end_of_model_is_one_line(text: str, message: str) -> None:
    messages: list[str] = []
    address = Address("127.0.0.1", free_port())
    ready_s = 0.2 if text == WAIT else 20

    def command(_: Address) -> Sequence[str]:
        return script(text)

    async with (
        run_model_or_simulation(address, messages.append, command, ready_s),
        aiohttp.ClientSession() as client,
        client.post(f"http://{address}/v1/completions", json={}) as response,
    ):
        choice = (await response.json())["choices"][0]

    assert choice["text"] == RESPONSE_TEXT
    assert messages[1:] == [f"The local model {message}. {SIMULATED}"]


async def test_address_in_use_is_an_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = Address("127.0.0.1", listener.getsockname()[1])

        with pytest.raises(OSError, match="in use"):
            async with run_model_or_simulation(
                address, lambda _: None, lambda _: script("sys.exit(1)")
            ):
                pytest.fail("nothing is served")
