"""Finding and starting the model's server: what is missing is told."""

from __future__ import annotations

import asyncio
import os
import select
import signal
import sys
from asyncio.subprocess import PIPE
from pathlib import Path

import pytest

from proxy.demo.model import ModelFiles, NoModel, running_model
from proxy.settings import Address
from tests.demo.test_init import free_port
from tests.doubles import ScriptedUpstream


async def test_a_taken_address_is_told(upstream: ScriptedUpstream) -> None:
    port = int(upstream.url.rpartition(":")[2])

    with pytest.raises(NoModel, match="something else listens"):
        async with running_model(ModelFiles("true", Path("none")), Address("127.0.0.1", port)):
            pass


async def test_a_server_that_ends_is_told() -> None:
    with pytest.raises(NoModel, match="ended with status"):
        async with running_model(ModelFiles("false", Path("none")), Address("127.0.0.1", 9)):
            pass


SERVER = """#!{python}
import http.server, os, sys
class Healthy(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
    def log_message(self, *said):
        pass
at = sys.argv[sys.argv.index("--host") + 1], int(sys.argv[sys.argv.index("--port") + 1])
open({pid!r}, "w").write(str(os.getpid()))
http.server.HTTPServer(at, Healthy).serve_forever()
"""
DEMO = """
import asyncio, sys
from pathlib import Path
from proxy.demo.model import ModelFiles, running_model
from proxy.settings import Address
async def demo():
    at = Address("127.0.0.1", int(sys.argv[2]))
    async with running_model(ModelFiles(sys.argv[1], Path("none")), at):
        print("ready", flush=True)
        await asyncio.Event().wait()
{run}(demo())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not tell a child")
@pytest.mark.parametrize("run", ["asyncio.run", "__import__('uvloop').run"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL], ids=["term", "kill"])
async def test_no_server_outlives_a_demo_that_is_killed(
    number: signal.Signals, run: str, tmp_path: Path
) -> None:
    server, pid = tmp_path / "server", tmp_path / "pid"
    server.write_text(SERVER.format(python=sys.executable, pid=str(pid)))
    server.chmod(0o700)
    arguments = ("-c", DEMO.format(run=run), str(server), str(free_port()))
    demo = await asyncio.create_subprocess_exec(sys.executable, *arguments, stdout=PIPE)
    assert demo.stdout is not None
    async with asyncio.timeout(20):
        assert await demo.stdout.readline() == b"ready\n"
        server_ends = os.pidfd_open(int(pid.read_text()))

        demo.send_signal(number)
        await demo.wait()
        ended, *_ = await asyncio.to_thread(select.select, [server_ends], [], [], 10)

    os.close(server_ends)
    assert ended
