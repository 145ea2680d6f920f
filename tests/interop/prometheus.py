"""A Prometheus of Debian's package beside a cluster under test: scrapes and evaluates every half second."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.error import URLError
from urllib.parse import urlencode
from urllib.request import urlopen

from moldau.runtime.real.free_ports import FreePorts

MONITORING = Path(__file__).parents[2] / "monitoring"
START_S_MAX = 60
WAIT_S_MAX = 90
POLL_S = 0.25


def expressions() -> list[tuple[str, str]]:
    """The dashboard's: what each is for, and what Grafana would ask where everything is chosen."""
    dashboard = json.loads((MONITORING / "grafana-dashboard.json").read_text())
    choices = {"$job": "moldau", "$broker": ".*", "$topic": ".*", "$group": ".*", "$__rate_interval": "1m"}
    found = []
    for panel in dashboard["panels"]:
        for target in panel.get("targets", ()):
            expression = target["expr"]
            for name, value in choices.items():
                expression = expression.replace(name, value)
            assert "$" not in expression
            found.append((f"{panel['title']}: {target['legendFormat']}", expression))
    return found


def documented() -> str:
    """What docs/monitoring.md says to ask."""
    page = (MONITORING.parent / "docs" / "monitoring.md").read_text()
    (expression,) = re.findall(r"```promql\n\s*(.*)\n", page)
    return str(expression)


def impatient_rules() -> str:
    """The rules as they are, but that a condition need not have been true for a while."""
    return re.sub(r"^\s+for: .*\n", "", (MONITORING / "alerts.yml").read_text(), flags=re.MULTILINE)


class Prometheus:
    def __init__(self, folder: Path, targets: list[str]) -> None:
        (folder / "alerts.yml").write_text(impatient_rules())
        config = {
            "global": {"scrape_interval": "500ms", "scrape_timeout": "500ms", "evaluation_interval": "500ms"},
            "rule_files": ["alerts.yml"],
            "scrape_configs": [{"job_name": "moldau", "static_configs": [{"targets": targets}]}],
        }
        (folder / "prometheus.yml").write_text(json.dumps(config))  # which is YAML as well
        self._folder = folder
        self._ports = FreePorts("127.0.0.1")
        self._address = f"127.0.0.1:{self._ports.take()}"
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Prometheus:
        self._ports.let_servers_have_them()
        program = shutil.which("prometheus")
        assert program is not None
        with (self._folder / "log").open("wb") as log:
            self._process = subprocess.Popen(
                [
                    program,
                    f"--config.file={self._folder / 'prometheus.yml'}",
                    f"--storage.tsdb.path={self._folder / 'data'}",
                    f"--web.listen-address={self._address}",
                ],
                stdout=log,
                stderr=log,
            )
        self.wait_for(self._is_ready, "Prometheus to be ready", START_S_MAX)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()
        self._ports.close()

    def _is_ready(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, (self._folder / "log").read_text()
        try:
            with urlopen(f"http://{self._address}/-/ready", timeout=5) as answer:
                return bool(answer.status == 200)
        except (URLError, OSError):
            return False

    def wait_for(self, condition: Callable[[], object], what: str, time_s: float = WAIT_S_MAX) -> None:
        deadline_s = time.monotonic() + time_s
        while not condition():
            assert time.monotonic() < deadline_s, f"waited for {what}"
            time.sleep(POLL_S)

    def ask(self, path: str, **parameters: str) -> Any:
        with urlopen(f"http://{self._address}/api/v1/{path}?{urlencode(parameters)}", timeout=10) as answer:
            return json.load(answer)["data"]

    def query(self, expression: str) -> list[Any]:
        result: list[Any] = self.ask("query", query=expression)["result"]
        return result

    def firing(self) -> set[str]:
        alerts = self.ask("alerts")["alerts"]
        return {alert["labels"]["alertname"] for alert in alerts if alert["state"] == "firing"}
