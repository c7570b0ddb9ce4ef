"""Measured programs: the reference relay, nginx, Headrace with each feature set, other gateways.

Other gateways are measured if they are installed under ``.peers`` (docs/performance.md).
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from bench import policies
from bench.policies import NO_EXTRAS, Sizes
from bench.processes import free_port

PEERS = Path(__file__).parents[1] / ".peers"
LITELLM = PEERS / "litellm/bin/litellm"
TENSORZERO = PEERS / "tensorzero/bin/python"
PORTKEY = PEERS / "portkey/node_modules/@portkey-ai/gateway/build/start-server.js"
READY_S = 300.0  # loading 100,000 keys takes up to a minute
MAX_UPSTREAM_CONNECTIONS = 5000  # the largest number of concurrent streams


class Workspace(NamedTuple):
    """Folder of a program, and the ports of all programs."""

    folder: Path
    port: int
    admin: int
    upstream: int
    collector: int


class Command(NamedTuple):
    """A program and its environment."""

    arguments: tuple[str, ...]
    environment: dict[str, str]
    port_file: Path | None = None
    """File for the port, if the program chooses it itself."""


@dataclass(frozen=True)
class Target:
    """A proxy under test, or the upstream itself."""

    name: str
    command: Callable[[Workspace], Command] | None
    """Writes the configuration. None is the upstream."""
    parts: str | None = None
    """Feature set of Headrace. None is another program."""
    path: str = "/v1/chat/completions"
    model: str = "support-chat"
    headers: Callable[[Workspace], dict[str, str]] = field(default=lambda workspace: {})
    is_installed: Callable[[], bool] = field(default=lambda: True)
    is_peer: bool = False
    ready_s: float = 30.0


def _relay(workspace: Workspace) -> Command:
    upstream = f"http://127.0.0.1:{workspace.upstream}"
    return Command((sys.executable, "-m", "bench.relay", str(workspace.port), upstream), {})


NGINX = """
worker_processes 1; daemon off; master_process off; pid {folder}/pid; error_log stderr crit;
events {{ worker_connections 8192; }}
http {{
  access_log off; keepalive_requests 100000000;
  client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/fastcgi; uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
  upstream provider {{
    server 127.0.0.1:{upstream}; keepalive 256; keepalive_requests 100000000;
  }}
  server {{
    listen 127.0.0.1:{port} backlog=4096; client_body_buffer_size 256k; client_max_body_size 16m;
    location / {{
      proxy_pass http://provider; proxy_http_version 1.1; proxy_set_header Connection "";
      proxy_buffering off;
    }}
  }}
}}
"""


def _nginx(workspace: Workspace) -> Command:
    file = workspace.folder / "nginx.conf"
    file.write_text(
        NGINX.format(folder=workspace.folder, port=workspace.port, upstream=workspace.upstream)
    )
    return Command(("nginx", "-c", str(file), "-p", str(workspace.folder)), {})


def serve(workspace: Workspace, parts: str) -> Command:
    """Return the command that serves the policies in ``policies`` of the workspace."""
    exports = {
        "HEADRACE_LEDGER": f"sqlite:{workspace.folder}/ledger.db",
        "HEADRACE_OTLP_ENDPOINT": f"http://127.0.0.1:{workspace.collector}",
    }
    arguments = (
        *(sys.executable, "-m", "proxy", "serve"),
        *("--policies", str(workspace.folder / "policies")),
        *("--listen", f"127.0.0.1:{workspace.port}"),
        *("--admin-listen", f"127.0.0.1:{workspace.admin}"),
    )
    environment = {"HEADRACE_MAX_UPSTREAM_CONNECTIONS": str(MAX_UPSTREAM_CONNECTIONS)}
    return Command(arguments, environment | (exports if parts in policies.EXPORTING else {}))


def headrace(name: str, parts: str, extra: Sizes = NO_EXTRAS) -> Target:
    """Return Headrace with a feature set and additional objects."""

    def command(workspace: Workspace) -> Command:
        (workspace.folder / "policies").mkdir()
        policies.write(workspace.folder / "policies", parts, workspace.upstream, extra)
        return serve(workspace, parts)

    return Target(name, command, parts, ready_s=READY_S)


LITELLM_CONFIG = """
model_list:
  - model_name: gpt-4o-mini
    litellm_params: {{model: openai/gpt-4o-mini, api_base: "http://127.0.0.1:{upstream}/v1", api_key: none}}
litellm_settings: {{request_timeout: 600, num_retries: 0, telemetry: false}}
"""  # noqa: E501


def _litellm(workspace: Workspace) -> Command:
    file = workspace.folder / "litellm.yaml"
    file.write_text(LITELLM_CONFIG.format(upstream=workspace.upstream))
    options = ("--config", str(file), "--host", "127.0.0.1", "--port", str(workspace.port))
    environment = {
        "LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY": "true",
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "LITELLM_LOG": "ERROR",
        "LITELLM_MODE": "PRODUCTION",
        "LITELLM_TELEMETRY": "False",
        "NO_DOCS": "True",
    }
    return Command((str(LITELLM), *options, "--num_workers", "1"), environment)


TENSORZERO_CONFIG = """
[gateway]
observability.enabled = false
disable_pseudonymous_usage_analytics = true
[models."gpt-4o-mini"]
routing = ["openai"]
[models."gpt-4o-mini".providers.openai]
type = "openai"
model_name = "gpt-4o-mini"
api_base = "http://127.0.0.1:{upstream}/v1/"
api_key_location = "none"
"""
TENSORZERO_SERVE = """
import sys, time, tensorzero
gateway = tensorzero._start_http_gateway(
    config_file=sys.argv[1], clickhouse_url=None, postgres_url=None, valkey_url=None,
    async_setup=False)
with open(sys.argv[2], "w") as file:
    file.write(gateway.base_url.split(":")[2].split("/")[0])
time.sleep(86400)
"""


def _tensorzero(workspace: Workspace) -> Command:
    file = workspace.folder / "tensorzero.toml"
    file.write_text(TENSORZERO_CONFIG.format(upstream=workspace.upstream))
    port_file = workspace.folder / "port"
    return Command(
        (str(TENSORZERO), "-c", TENSORZERO_SERVE, str(file), str(port_file)), {}, port_file
    )


def _portkey(workspace: Workspace) -> Command:
    arguments = ("node", str(PORTKEY), f"--port={workspace.port}", "--headless")
    return Command(
        arguments, {"NODE_ENV": "production", "TRUSTED_CUSTOM_HOSTS": "127.0.0.1,localhost"}
    )


def _portkey_headers(workspace: Workspace) -> dict[str, str]:
    upstream = f"http://127.0.0.1:{workspace.upstream}/v1"
    return {"x-portkey-provider": "openai", "x-portkey-custom-host": upstream}


TARGETS = {
    target.name: target
    for target in (
        Target("direct", None),
        Target("relay", _relay),
        Target("nginx", _nginx, is_installed=lambda: shutil.which("nginx") is not None),
        *(headrace(parts, parts) for parts in policies.PARTS),
        Target(
            "TensorZero",
            _tensorzero,
            path="/openai/v1/chat/completions",
            model="tensorzero::model_name::gpt-4o-mini",
            is_installed=TENSORZERO.exists,
            is_peer=True,
        ),
        Target(
            "Portkey",
            _portkey,
            model="gpt-4o-mini",
            headers=_portkey_headers,
            is_installed=lambda: PORTKEY.exists() and shutil.which("node") is not None,
            is_peer=True,
        ),
        Target(
            "LiteLLM",
            _litellm,
            model="gpt-4o-mini",
            is_installed=LITELLM.exists,
            is_peer=True,
            ready_s=180,
        ),
    )
}


def new_workspace(folder: Path, upstream: int, collector: int) -> Workspace:
    """Create the folder and choose free ports."""
    folder.mkdir()
    return Workspace(folder, free_port(), free_port(), upstream, collector)
