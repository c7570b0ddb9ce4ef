"""Cost of a start, independent of the machine: imported modules and called functions."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from bench import policies

START = """
import asyncio, json, os, sys
from pathlib import Path

calls = 0

def count(frame, event, _):
    global calls
    calls += event == "call" and "/proxy/" in frame.f_code.co_filename

sys.setprofile(count)
from proxy.cli import COMMANDS
COMMANDS["serve"]
from proxy import app
from proxy.settings import Address, LedgerLocation, Settings

async def start(folder, everything):
    here = Address("127.0.0.1", 0)
    ledger = LedgerLocation("sqlite", folder / "l.db")
    more = {"otlp_endpoint": "http://127.0.0.1:9", "ledger": ledger}
    settings = Settings(folder / "policies", here, here, **(more if everything else {}))
    async with app.run_proxy(settings, log_fd=os.open(os.devnull, os.O_WRONLY)):
        sys.setprofile(None)

asyncio.run(start(Path(sys.argv[1]), sys.argv[2] == "everything"))
print(json.dumps({"modules": sorted(sys.modules), "calls": calls}))
"""
READY = """
import asyncio, os, sys
from pathlib import Path

from proxy import app
from proxy.settings import Address, Settings

compiled = 0

def count(frame, event, _):
    global compiled
    compiled += event == "call" and frame.f_code.co_name in ("compile", "Compile")

def counted(load):
    global compiled
    compiled = 0
    sys.setprofile(count)
    load()
    sys.setprofile(None)
    print(compiled)

async def start(folder):
    here, loaded = Address("127.0.0.1", 0), asyncio.Event()
    settings, log = Settings(folder / "policies", here, here), os.open(os.devnull, os.O_WRONLY)
    async with app.run_proxy(settings, log_fd=log, on_loaded=loaded.set) as running:
        snapshot = running.policies.current
        counted(snapshot.prepare)
        await loaded.wait()
        counted(lambda: list(snapshot.iter_loading_steps()))

asyncio.run(start(Path(sys.argv[1])))
"""
"""Prints how many sets of patterns are left to compile once the process listens, and how many
patterns once it is ready."""
NEEDLESS = (
    "google.protobuf", "jsonschema_rs", "numpy", "onnxruntime", "opentelemetry", "phonenumbers",
    "prometheus_client", "proxy.demo.serving", "proxy.guards.engine", "proxy.guards.kinds.",
    "proxy.guards.matching.gitleaks", "proxy.guards.stream", "proxy.guards.whole",
    "proxy.policytest", "proxy.prices", "redis", "requests", "stdnum", "tokenizers",
)  # fmt: skip
"""What no start needs that sends no spans, and whose policies have no guards."""
LATER = ("proxy.guards.services.judge",)
"""What is imported when a guard asks somebody else."""
MODULES, CALLS = 325, 14_500


@dataclass(frozen=True)
class Start:
    """Modules imported and functions of the product called until a process is ready."""

    modules: frozenset[str]
    calls: int


def measure_start(folder: Path, parts: str) -> Start:
    (folder / "policies").mkdir()
    policies.write(folder / "policies", parts, 9)
    arguments = [sys.executable, "-c", START, str(folder), parts]
    ran = subprocess.run(arguments, capture_output=True, text=True, check=True, timeout=60)
    printed = json.loads(ran.stdout)
    return Start(frozenset(printed["modules"]), printed["calls"])


@pytest.mark.process
def test_start_without_guards_stays_within_budget(tmp_path: Path) -> None:
    start = measure_start(tmp_path, "bare")
    ours = [name for name in start.modules if name.startswith("proxy")]

    assert [name for name in start.modules if name.startswith(NEEDLESS)] == []
    assert len(ours) <= MODULES
    assert start.calls <= CALLS


@pytest.mark.process
def test_guard_modules_are_imported_before_readiness(tmp_path: Path) -> None:
    start = measure_start(tmp_path, "everything")

    kinds = {name.rpartition(".")[2] for name in start.modules if f"{name}.".startswith(NEEDLESS)}
    assert {"injection", "keywords", "pii", "secrets", "phonenumbers", "stdnum"} <= kinds
    assert not {"code", "json_schema", "onnx", "wordlist"} & kinds
    assert {"proxy.guards.engine", "proxy.guards.run"} <= start.modules
    assert not [name for name in start.modules if name.startswith(LATER)]


@pytest.mark.process
def test_patterns_are_compiled_before_readiness(tmp_path: Path) -> None:
    (tmp_path / "policies").mkdir()
    policies.write(tmp_path / "policies", "guards", 9)

    arguments = [sys.executable, "-c", READY, str(tmp_path)]
    ran = subprocess.run(arguments, capture_output=True, text=True, check=True, timeout=60)

    assert ran.stdout == "0\n0\n"
