"""What is measured: the reference, a plain proxy, Headrace with each part, and peers.

Peers are measured where they are found, under ``.peers`` (docs/performance.md says how they
get there): nothing of the project needs them.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from bench import policies
from bench.policies import NO_MORE, Sizes
from bench.processes import free_port

PEERS = Path(__file__).parents[1] / ".peers"
LITELLM = PEERS / "litellm/bin/litellm"
TENSORZERO = PEERS / "tensorzero/bin/python"
PORTKEY = PEERS / "portkey/node_modules/@portkey-ai/gateway/build/start-server.js"
READY_S = 300.0  # a hundred thousand keys are read in a minute
CONNECTIONS = 5000  # to the upstream: as many as streams are measured at once


class Place(NamedTuple):
    """Where a program of a measurement is: a folder of its own, and the ports."""

    folder: Path
    port: int
    admin: int
    upstream: int
    collector: int


class Command(NamedTuple):
    """How a program is started, and the file that it writes its port to if it chooses one."""

    words: tuple[str, ...]
    environment: dict[str, str]
    port: Path | None = None


@dataclass(frozen=True)
class Target:
    """A program that passes calls on. ``command`` writes what it needs; without one it is the
    upstream itself. ``parts`` are those of Headrace, which tells of its cache on its admin port."""

    name: str
    command: Callable[[Place], Command] | None
    parts: str | None = None
    path: str = "/v1/chat/completions"
    model: str = "support-chat"
    headers: Callable[[Place], dict[str, str]] = field(default=lambda place: {})
    is_found: Callable[[], bool] = field(default=lambda: True)
    peer: bool = False
    ready_s: float = 30.0


def _relay(place: Place) -> Command:
    upstream = f"http://127.0.0.1:{place.upstream}"
    return Command((sys.executable, "-m", "bench.relay", str(place.port), upstream), {})


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


def _nginx(place: Place) -> Command:
    file = place.folder / "nginx.conf"
    file.write_text(NGINX.format(folder=place.folder, port=place.port, upstream=place.upstream))
    return Command(("nginx", "-c", str(file), "-p", str(place.folder)), {})


def serve(place: Place, parts: str) -> Command:
    """Return how Headrace serves the policies in the folder ``policies`` of its own; with all of
    them there are a ledger and a collector."""
    kept = {
        "HEADRACE_LEDGER": f"sqlite:{place.folder}/ledger.db",
        "HEADRACE_OTLP_ENDPOINT": f"http://127.0.0.1:{place.collector}",
    }
    words = (
        *(sys.executable, "-m", "proxy", "serve", "--policies", str(place.folder / "policies")),
        *("--listen", f"127.0.0.1:{place.port}", "--admin-listen", f"127.0.0.1:{place.admin}"),
    )
    more = {"HEADRACE_MAX_UPSTREAM_CONNECTIONS": str(CONNECTIONS)}
    return Command(words, more | (kept if parts in policies.KEPT else {}))


def headrace(name: str, parts: str, more: Sizes = NO_MORE) -> Target:
    """Return Headrace with these parts of a policy, and more of some of them."""

    def command(place: Place) -> Command:
        (place.folder / "policies").mkdir()
        policies.write(place.folder / "policies", parts, place.upstream, more)
        return serve(place, parts)

    return Target(name, command, parts, ready_s=READY_S)


LITELLM_CONFIG = """
model_list:
  - model_name: gpt-4o-mini
    litellm_params: {{model: openai/gpt-4o-mini, api_base: "http://127.0.0.1:{upstream}/v1", api_key: none}}
litellm_settings: {{request_timeout: 600, num_retries: 0, telemetry: false}}
"""  # noqa: E501


def _litellm(place: Place) -> Command:
    file = place.folder / "litellm.yaml"
    file.write_text(LITELLM_CONFIG.format(upstream=place.upstream))
    where = ("--config", str(file), "--host", "127.0.0.1", "--port", str(place.port))
    production = {
        "LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY": "true",
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "LITELLM_LOG": "ERROR",
        "LITELLM_MODE": "PRODUCTION",
        "LITELLM_TELEMETRY": "False",
        "NO_DOCS": "True",
    }
    return Command((str(LITELLM), *where, "--num_workers", "1"), production)


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


def _tensorzero(place: Place) -> Command:
    file = place.folder / "tensorzero.toml"
    file.write_text(TENSORZERO_CONFIG.format(upstream=place.upstream))
    port = place.folder / "port"
    return Command((str(TENSORZERO), "-c", TENSORZERO_SERVE, str(file), str(port)), {}, port)


def _portkey(place: Place) -> Command:
    words = ("node", str(PORTKEY), f"--port={place.port}", "--headless")
    return Command(words, {"NODE_ENV": "production", "TRUSTED_CUSTOM_HOSTS": "127.0.0.1,localhost"})


def _portkey_headers(place: Place) -> dict[str, str]:
    upstream = f"http://127.0.0.1:{place.upstream}/v1"
    return {"x-portkey-provider": "openai", "x-portkey-custom-host": upstream}


TARGETS = {
    target.name: target
    for target in (
        Target("direct", None),
        Target("relay", _relay),
        Target("nginx", _nginx, is_found=lambda: shutil.which("nginx") is not None),
        *(headrace(parts, parts) for parts in policies.PARTS),
        Target(
            "TensorZero",
            _tensorzero,
            path="/openai/v1/chat/completions",
            model="tensorzero::model_name::gpt-4o-mini",
            is_found=TENSORZERO.exists,
            peer=True,
        ),
        Target(
            "Portkey",
            _portkey,
            model="gpt-4o-mini",
            headers=_portkey_headers,
            is_found=lambda: PORTKEY.exists() and shutil.which("node") is not None,
            peer=True,
        ),
        Target(
            "LiteLLM",
            _litellm,
            model="gpt-4o-mini",
            is_found=LITELLM.exists,
            peer=True,
            ready_s=180,
        ),
    )
}


def placed_in(folder: Path, upstream: int, collector: int) -> Place:
    """Return a place with free ports of its own."""
    folder.mkdir()
    return Place(folder, free_port(), free_port(), upstream, collector)
