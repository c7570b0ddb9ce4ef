"""Files of the Compose stack: valid and consistent. The stack is not started."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import jsonschema_rs
import yaml
from click.testing import CliRunner

from proxy.cli import COMMANDS, main
from proxy.policy.store import read_folder
from proxy.settings import LedgerLocation, parse_address
from tests.conftest import running_proxy
from tests.dashboards.expressions import BOARDS, RULES
from tests.doubles import ScriptedUpstream, chat, respond
from tests.for_each import for_each
from tests.servers import program

TOP = Path(__file__).parents[2]
DEPLOY = TOP / "deploy"
SCHEMA = json.loads((Path(__file__).parent / "compose" / "compose_spec.json").read_text())
DOCKERFILE = (DEPLOY / "Dockerfile").read_text()


def read(name: str) -> Any:
    return yaml.safe_load((DEPLOY / name).read_text())


COMPOSE = read("compose.yaml")
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
MOUNTS = [
    (name, mount) for name, service in SERVICES.items() for mount in service.get("volumes", ())
]


def test_compose_file_matches_its_schema() -> None:
    validator = jsonschema_rs.validator_for(SCHEMA)

    assert [error.message for error in validator.iter_errors(COMPOSE)] == []
    assert not validator.is_valid({**COMPOSE, "services": {"redis": {"imagine": "redis"}}})


def test_images_have_versions_and_ports_are_local() -> None:
    images = [service["image"] for service in SERVICES.values() if "image" in service]
    ports = [port for service in SERVICES.values() for port in service.get("ports", ())]

    assert len(images) == len(SERVICES) - 1
    assert all(re.search(r":v?\d+\.\d+\.\d+$", image) for image in images)
    assert ports
    assert all(port.startswith("127.0.0.1:") for port in ports)


@for_each(("service", "mount"), MOUNTS, ids=[f"{s}-{m}" for s, m in MOUNTS])
def test_mounted_paths_exist(service: str, mount: str) -> None:
    source = mount.split(":", maxsplit=1)[0]

    assert (DEPLOY / source).exists() if source.startswith(".") else source in COMPOSE["volumes"]


def test_proxy_settings_are_valid() -> None:
    settings = (TOP / "proxy" / "settings.py").read_text()
    [command] = re.findall(r"^CMD (\[.*\])$", DOCKERFILE, re.MULTILINE)
    serve, *flags = json.loads(command)
    options = {name for param in COMMANDS[serve].params for name in param.opts}

    for name in SERVICES["headrace"]["environment"]:
        assert name == "OPENAI_API_KEY" or f'"{name}"' in settings, name
    assert {flag for flag in flags if flag.startswith("--")} <= options
    assert "/etc/headrace/policies" in flags


def test_prometheus_accepts_its_configuration(tmp_path: Path) -> None:
    text = (DEPLOY / "prometheus.yaml").read_text()
    path = tmp_path / "prometheus.yaml"
    (tmp_path / "token").write_text("x")
    text = text.replace("/run/secrets/admin_token", str(tmp_path / "token"))
    path.write_text(text.replace("/etc/prometheus/rules", str(RULES[0].parent)))

    process = subprocess.run(
        [program("promtool"), "check", "config", str(path)],
        capture_output=True,
        text=True,
        check=False,
    )

    assert process.returncode == 0, process.stderr
    assert f"SUCCESS: {len(RULES)} rule files found" in process.stdout


def test_prometheus_job_matches_the_rules() -> None:
    [job] = read("prometheus.yaml")["scrape_configs"]
    [target] = job["static_configs"][0]["targets"]
    [admin] = re.findall(r'"--admin-listen", "([^"]+)"', DOCKERFILE)

    assert parse_address(target).port == parse_address(admin).port
    assert parse_address(target).host in SERVICES
    assert f'up{{job="{job["job_name"]}"}}' in RULES[0].read_text()


def test_admin_port_requires_its_token() -> None:
    [admin] = re.findall(r'"--admin-listen", "([^"]+)"', DOCKERFILE)
    [job] = read("prometheus.yaml")["scrape_configs"]
    service = SERVICES["headrace"]

    assert parse_address(admin).is_loopback
    assert "--admin-listen=0.0.0.0:8081" in service["command"]
    assert service["environment"]["HEADRACE_ADMIN_HOSTS"] == "headrace"
    assert job["authorization"]["credentials_file"].endswith(SERVICES["prometheus"]["secrets"][0])
    assert "HEADRACE_ADMIN_TOKEN" in service["environment"]
    token_file = Path(COMPOSE["secrets"]["admin_token"]["file"]).name
    assert f"deploy/{token_file}" in (TOP / ".gitignore").read_text().split()


def test_grafana_is_provisioned() -> None:
    prometheus, tempo = read("grafana/datasources.yaml")["datasources"]
    [provider] = read("grafana/dashboards.yaml")["providers"]
    mounted = [mount.split(":") for mount in SERVICES["grafana"]["volumes"]]
    boards = {Path(item[1]) for item in mounted if item[0].endswith(".json")}
    [exemplars] = prometheus["jsonData"]["exemplarTraceIdDestinations"]

    assert exemplars == {"name": "trace_id", "datasourceUid": tempo["uid"]}
    assert boards == {Path(provider["options"]["path"]) / path.name for path in BOARDS}
    assert prometheus["url"] == "http://prometheus:9090"


def test_spans_reach_tempo() -> None:
    collector, tempo = read("collector.yaml"), read("tempo.yaml")
    endpoint = SERVICES["headrace"]["environment"]["HEADRACE_OTLP_ENDPOINT"]
    receiver = parse_address(collector["receivers"]["otlp"]["protocols"]["http"]["endpoint"])
    exporter = parse_address(collector["exporters"]["otlp"]["endpoint"])
    storage = parse_address(
        tempo["distributor"]["receivers"]["otlp"]["protocols"]["grpc"]["endpoint"]
    )

    assert endpoint == f"http://collector:{receiver.port}"
    assert (exporter.host, exporter.port) == ("tempo", storage.port)
    assert read("grafana/datasources.yaml")["datasources"][1]["url"] == (
        f"http://tempo:{tempo['server']['http_listen_port']}"
    )


def test_policies_are_valid() -> None:
    snapshot = read_folder(DEPLOY / "policies", {"OPENAI_API_KEY": "sk-1"})

    assert list(snapshot.deployments) == ["support-chat"]


def test_image_sources_exist() -> None:
    included = {line[1:] for line in (TOP / ".dockerignore").read_text().split() if line[0] == "!"}
    copied = re.findall(r"^COPY (?!--from)(.*) \S+$", DOCKERFILE, re.MULTILINE)

    for source in " ".join(copied).split():
        assert (TOP / source).exists(), source
        assert Path(source).parts[0] in included, source


async def test_usage_link_works(tmp_path: Path, upstream: ScriptedUpstream) -> None:
    """The steps of the page work as written: key, check, call, usage."""
    page = (DEPLOY / "README.md").read_text()
    [key_command] = re.findall(r"^ +headrace (key .*)$", page, re.MULTILINE)
    [placeholder] = re.findall(r"Replace the line `(.*?)` with the entry", page)
    [[path, body]] = re.findall(r"curl http://127\.0\.0\.1:8080(\S+) .*\s+-d '(.*)'", page)
    [usage_command] = re.findall(r" headrace (usage .*)$", page, re.MULTILINE)
    folder, ledger = tmp_path / "policies", tmp_path / "ledger.db"
    shutil.copytree(DEPLOY / "policies", folder)

    drawn = CliRunner().invoke(main, key_command.replace("deploy", str(tmp_path)).split())
    policies = (folder / "policies.yaml").read_text().replace(f"{placeholder}\n", drawn.stdout)
    policies = policies.replace("https://api.openai.com", upstream.url)
    (folder / "policies.yaml").write_text(policies)
    environ = {"OPENAI_API_KEY": "sk-1", "HEADRACE_SECRET": "0123456789abcdef"}
    checked = CliRunner().invoke(main, ["check", str(folder)], env=environ)
    upstream.answer_with(respond(chat("Hello.")))
    settings: dict[str, Any] = {"environ": environ, "ledger": LedgerLocation("sqlite", ledger)}
    headers = {"authorization": f"Bearer {drawn.stderr.split()[0]}"}
    async with running_proxy(folder, policies, **settings) as proxy:
        reply = await proxy.send(path, json.loads(body), headers)
        assert reply.status == 200, reply.raw
    arguments = usage_command.replace("/var/lib/headrace/ledger.db", str(ledger)).split()
    usage = CliRunner().invoke(main, arguments)

    assert "warning" not in checked.output
    assert usage.exit_code == 0, usage.output
    assert re.search(r"^support +1 ", usage.output, re.MULTILINE)
