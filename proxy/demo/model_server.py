"""Serves a GGUF model over HTTP. Child process of ``headrace demo``.

Usage: ``python -m proxy.demo.model_server MODEL HOST PORT``. Writes one line to stdout: ``ready``,
or the reason why the model cannot be served. Exits when stdin is closed, thus with its parent.
"""

from __future__ import annotations

import os
import signal
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

READY_LINE = "ready"
MAX_LOAD_S = 60
CONTEXT_TOKENS = 2048
PARALLEL_SLOTS = 2
LOG_SILENT = -1


def main() -> None:
    path, host, port = sys.argv[1:]
    report = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    null = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):  # llama.cpp logs to both
        os.dup2(null, stream.fileno())
    signal.alarm(MAX_LOAD_S)  # stdin is not read while the model is loaded
    try:
        server = start_server(Path(path), host, int(port))
    except (ImportError, RuntimeError) as error:
        print(error, file=report, flush=True)
        raise SystemExit(1) from None
    signal.alarm(0)
    print(READY_LINE, file=report, flush=True)
    sys.stdin.read()
    del server
    os._exit(0)


def start_server(path: Path, host: str, port: int) -> Any:
    """Load the model and serve it in threads of llama.cpp for as long as the result is referenced.

    Raises ``ImportError`` without the runtime or a library of the system that it needs, and
    ``RuntimeError`` if the file is not a model, or the address is in use.
    """
    llama = import_module("xllamacpp")
    params = llama.CommonParams()
    params.model.path = str(path)
    params.model_alias = {"smol"}
    params.hostnames, params.port = [host], port
    params.n_ctx, params.n_parallel = CONTEXT_TOKENS, PARALLEL_SLOTS
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
    params.n_gpu_layers = 0
    params.ui, params.offline, params.verbosity = False, True, LOG_SILENT
    try:
        return llama.Server(params)
    except RuntimeError:
        raise RuntimeError(f"cannot load {path.name}: `make clean run` installs it again") from None


if __name__ == "__main__":
    main()
