"""The captured exchanges on disk: a JSON lines file per API, an exchange a line, frames without size in base64."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parent / "frames"


@dataclass(frozen=True)
class Exchange:
    api: str
    version: int
    case: str
    request: bytes
    response: bytes

    @property
    def title(self) -> str:
        return f"{self.api} v{self.version}, {self.case}"


def save(name: str, exchanges: Iterable[Exchange]) -> None:
    FOLDER.mkdir(exist_ok=True)
    with (FOLDER / f"{name}.jsonl").open("w") as file:
        for exchange in exchanges:
            line = {
                "api": exchange.api,
                "version": exchange.version,
                "case": exchange.case,
                "request": b64encode(exchange.request).decode(),
                "response": b64encode(exchange.response).decode(),
            }
            file.write(json.dumps(line) + "\n")


def load() -> list[Exchange]:
    exchanges = []
    for path in sorted(FOLDER.glob("*.jsonl")):
        for text in path.read_text().splitlines():
            line = json.loads(text)
            frames = b64decode(line["request"]), b64decode(line["response"])
            exchanges.append(Exchange(line["api"], line["version"], line["case"], *frames))
    return exchanges
