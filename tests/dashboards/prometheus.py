"""Runs and queries Prometheus."""

from __future__ import annotations

import json
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.dashboards.expressions import RULES
from tests.servers import free_port, program

PATIENCE_S = 20.0


@dataclass(frozen=True)
class Prometheus:
    """A running Prometheus."""

    url: str

    def get(self, path: str, **parameters: str) -> Any:
        query = urllib.parse.urlencode(parameters)
        with urllib.request.urlopen(f"{self.url}{path}?{query}", timeout=10) as response:  # noqa: S310  # our own
            return json.load(response)["data"]

    def query(self, expr: str, moment: float | None = None) -> list[Any]:
        """Return the series of an expression at a moment. Raises for an invalid expression."""
        time_parameter = {"time": f"{moment:.3f}"} if moment is not None else {}
        try:
            result = self.get("/api/v1/query", query=expr, **time_parameter)
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{expr}: {error.read().decode()}") from None
        if result["resultType"] == "scalar":
            return [{"metric": {}, "value": result["result"]}]
        series: list[Any] = result["result"]
        return series

    def number(self, expr: str, moment: float | None = None) -> float | None:
        """Return the value of an expression with one series, else None."""
        series = self.query(expr, moment)
        return float(series[0]["value"][1]) if len(series) == 1 else None


def eventually(is_true: Callable[[], bool], description: str) -> None:
    """Poll a condition. Fails after ``PATIENCE_S``."""
    deadline = time.monotonic() + PATIENCE_S
    while not is_true():
        assert time.monotonic() < deadline, description
        time.sleep(0.05)


@contextmanager
def prometheus(folder: Path, scraped: str) -> Iterator[Prometheus]:
    """Run Prometheus with the rules of the dashboards and one target."""
    port = free_port()
    config = {
        "global": {"scrape_interval": "500ms", "evaluation_interval": "500ms"},
        "rule_files": [str(path) for path in RULES],
        "scrape_configs": [{"job_name": "headrace", "static_configs": [{"targets": [scraped]}]}],
    }
    (folder / "prometheus.yml").write_text(json.dumps(config))  # JSON is YAML
    command = [
        program("prometheus"),
        f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
        "--enable-feature=exemplar-storage",
        "--log.level=error",
    ]
    process = subprocess.Popen(command)
    server = Prometheus(f"http://127.0.0.1:{port}")
    try:
        eventually(lambda: _ready(server), "Prometheus starts")
        yield server
    finally:
        process.terminate()
        process.wait()


def _ready(server: Prometheus) -> bool:
    try:
        with urllib.request.urlopen(f"{server.url}/-/ready", timeout=1) as response:  # noqa: S310  # our own
            return bool(response.status == 200)
    except OSError:
        return False
