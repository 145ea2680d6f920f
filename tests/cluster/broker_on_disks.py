"""A broker process with several data folders, as its own process, for tests of its disks."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from bench.server import MoldauServer
from moldau.runtime.real.free_ports import free_port


class BrokerOnDisks(MoldauServer):
    """`moldau broker` with data folders of its own, and the cluster's state elsewhere."""

    def __init__(self, folder: Path, *log_dirs: Path, **settings: object) -> None:
        super().__init__(folder)
        self.http_port = free_port()
        self.settings = {
            "node.id": 1,
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port}",
            "log.dirs": ",".join(map(str, log_dirs)),
            "moldau.store": f"sqlite:{folder / 'cluster.sqlite'}",
            "moldau.http.host": "127.0.0.1",
            "moldau.http.port": self.http_port,
            "log.flush.offset.checkpoint.interval.ms": 1000,
            "log.flush.interval.messages": 1,
            **{key.replace("_", "."): value for key, value in settings.items()},
        }

    def command(self) -> list[str]:
        config = self.folder / "broker.properties"
        config.write_text("".join(f"{key}={value}\n" for key, value in self.settings.items()))
        return [super().command()[0], "broker", "--config", str(config)]

    def health(self) -> tuple[int, dict[str, Any]]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.http_port}/health", timeout=5) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as refused:
            return refused.code, json.load(refused)

    def metrics(self) -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.http_port}/metrics", timeout=5) as answer:
            text: str = answer.read().decode()
            return text

    def log(self) -> str:
        return (self.folder / "stderr.txt").read_text()
