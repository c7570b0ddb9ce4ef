"""The files of the stack fit their schemas, each other, and what the proxy takes; none is run."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import aiohttp
import jsonschema_rs
import yaml
from click.testing import CliRunner

from proxy.cli import COMMANDS, main
from proxy.policy.store import read_folder
from proxy.settings import LedgerAt, address
from tests.conftest import running_proxy
from tests.dashboards.expressions import BOARDS, RULES
from tests.doubles import ScriptedUpstream, answer, chat
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
MOUNTS = [(name, mount) for name, said in SERVICES.items() for mount in said.get("volumes", ())]


def test_compose_fits_its_specification() -> None:
    assert [e.message for e in jsonschema_rs.validator_for(SCHEMA).iter_errors(COMPOSE)] == []


def test_what_the_specification_does_not_know_is_refused() -> None:
    wrong = {**COMPOSE, "services": {"redis": {"imagine": "redis"}}}

    assert not jsonschema_rs.validator_for(SCHEMA).is_valid(wrong)


def test_every_image_has_a_version() -> None:
    images = [service["image"] for service in SERVICES.values() if "image" in service]

    assert len(images) == len(SERVICES) - 1
    assert all(re.search(r":v?\d+\.\d+\.\d+$", image) for image in images)


@for_each(("service", "mount"), MOUNTS, ids=[f"{s}-{m}" for s, m in MOUNTS])
def test_what_is_mounted_is_there(service: str, mount: str) -> None:
    source = mount.split(":", maxsplit=1)[0]

    assert (DEPLOY / source).exists() if source.startswith(".") else source in COMPOSE["volumes"]


def test_ports_are_published_on_this_machine_alone() -> None:
    published = [port for service in SERVICES.values() for port in service.get("ports", ())]

    assert published
    assert all(port.startswith("127.0.0.1:") for port in published)


def test_the_proxy_takes_what_it_is_told() -> None:
    known_text = (TOP / "proxy" / "settings.py").read_text()
    [command] = re.findall(r"^CMD (\[.*\])$", DOCKERFILE, re.MULTILINE)
    serve, *flags = json.loads(command)
    options = {name for param in COMMANDS[serve].params for name in param.opts}

    for name in SERVICES["headrace"]["environment"]:
        assert name == "OPENAI_API_KEY" or f'"{name}"' in known_text, name
    assert {flag for flag in flags if flag.startswith("--")} <= options
    assert "/etc/headrace/policies" in flags


def test_prometheus_takes_its_configuration(tmp_path: Path) -> None:
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


def test_prometheus_scrapes_the_admin_port_under_the_name_that_rules_know() -> None:
    [job] = read("prometheus.yaml")["scrape_configs"]
    [target] = job["static_configs"][0]["targets"]
    [admin] = re.findall(r'"--admin-listen", "([^"]+)"', DOCKERFILE)

    assert address(target).port == address(admin).port
    assert address(target).host in SERVICES
    assert f'up{{job="{job["job_name"]}"}}' in RULES[0].read_text()


def test_the_admin_port_is_reached_by_others_with_its_token_alone() -> None:
    [admin] = re.findall(r'"--admin-listen", "([^"]+)"', DOCKERFILE)
    [job] = read("prometheus.yaml")["scrape_configs"]
    fields = SERVICES["headrace"]

    assert address(admin).loopback
    assert "--admin-listen=0.0.0.0:8081" in fields["command"]
    assert fields["environment"]["HEADRACE_ADMIN_HOSTS"] == "headrace"
    assert job["authorization"]["credentials_file"].endswith(SERVICES["prometheus"]["secrets"][0])
    assert "HEADRACE_ADMIN_TOKEN" in fields["environment"]
    stored_text = Path(COMPOSE["secrets"]["admin_token"]["file"]).name
    assert f"deploy/{stored_text}" in (TOP / ".gitignore").read_text().split()


def test_grafana_has_its_sources_and_all_dashboards() -> None:
    prometheus, tempo = read("grafana/datasources.yaml")["datasources"]
    [provider] = read("grafana/dashboards.yaml")["providers"]
    mounted = [mount.split(":") for mount in SERVICES["grafana"]["volumes"]]
    boards = {Path(item[1]) for item in mounted if item[0].endswith(".json")}
    [exemplars] = prometheus["jsonData"]["exemplarTraceIdDestinations"]

    assert exemplars == {"name": "trace_id", "datasourceUid": tempo["uid"]}
    assert boards == {Path(provider["options"]["path"]) / path.name for path in BOARDS}
    assert prometheus["url"] == "http://prometheus:9090"


def test_spans_find_their_way_from_the_proxy_to_tempo() -> None:
    collector, tempo = read("collector.yaml"), read("tempo.yaml")
    event = SERVICES["headrace"]["environment"]["HEADRACE_OTLP_ENDPOINT"]
    received = address(collector["receivers"]["otlp"]["protocols"]["http"]["endpoint"])
    sent_value = address(collector["exporters"]["otlp"]["endpoint"])
    taken_items = address(
        tempo["distributor"]["receivers"]["otlp"]["protocols"]["grpc"]["endpoint"]
    )

    assert event == f"http://collector:{received.port}"
    assert (sent_value.host, sent_value.port) == ("tempo", taken_items.port)
    assert read("grafana/datasources.yaml")["datasources"][1]["url"] == (
        f"http://tempo:{tempo['server']['http_listen_port']}"
    )


def test_the_policies_of_the_stack_are_good() -> None:
    snapshot = read_folder(DEPLOY / "policies", {"OPENAI_API_KEY": "sk-1"})

    assert list(snapshot.deployments) == ["support-chat"]


def test_the_image_is_built_of_what_is_there_and_let_in() -> None:
    let_in = {line[1:] for line in (TOP / ".dockerignore").read_text().split() if line[0] == "!"}
    copied = re.findall(r"^COPY (?!--from)(.*) \S+$", DOCKERFILE, re.MULTILINE)

    for source in " ".join(copied).split():
        assert (TOP / source).exists(), source
        assert Path(source).parts[0] in let_in, source


async def test_page_leads_to_the_usage_of_a_team(
    tmp_path: Path, upstream: ScriptedUpstream
) -> None:
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
    upstream.answer_with(answer(chat("Hello.")))
    settings: dict[str, Any] = {"environ": environ, "ledger": LedgerAt("sqlite", ledger)}
    headers = {"authorization": f"Bearer {drawn.stderr.split()[0]}"}
    async with (
        running_proxy(folder, policies, **settings) as proxy,
        aiohttp.ClientSession(base_url=proxy.url, headers=headers) as client,
        client.post(path, json=json.loads(body)) as response,
    ):
        assert response.status == 200, await response.text()
    arguments = usage_command.replace("/var/lib/headrace/ledger.db", str(ledger)).split()
    usage = CliRunner().invoke(main, arguments)

    assert "warning" not in checked.output
    assert usage.exit_code == 0, usage.output
    assert re.search(r"^support +1 ", usage.output, re.MULTILINE)
