"""Capture golden bytes from a live Apache Kafka: every version of every API below, with a few cases each.

    PYTHONPATH=tests python -m golden.capture HOST:PORT [API ...]

Run it by hand against a fresh single broker that makes no topics by itself (auto.create.topics.enable=false) and whose
data folder may be named in public: DescribeLogDirs answers with its path. Topics of its own are made if they are
absent. For the answers to fenced and diverging leader epochs run it, restart the broker, and run it again: each start
raises the epochs.

To add an API, write a function under `@cases("ItsName")` in apis.py that asks what is worth keeping. It is called once
for every version that the broker serves and the codec knows.
"""

from __future__ import annotations

import sys

from moldau.wire.apis import APIS_BY_NAME

from . import apis as _apis  # noqa: F401  (fills CASES)
from .recorder import CASES, Kafka, Recorder
from .stage import set_the_stage
from .store import Exchange, save


def main(address: str, *api_names: str) -> None:
    host, _, port = address.rpartition(":")
    kafka = Kafka(host, int(port))
    served = {
        api.api_key: api
        for api in kafka.ask(
            "ApiVersions", 4, {"client_software_name": "moldau", "client_software_version": "1"}
        ).api_keys
    }
    set_the_stage(kafka)
    for api_name in api_names or CASES:
        api = APIS_BY_NAME[api_name]
        first = max(api.min_version, served[api.key].min_version)
        last = served[api.key].max_version
        kept: list[Exchange] = []
        for version in range(first, last + 1):
            CASES[api_name](Recorder(kafka, api_name, version, kept))
        save(api_name, kept)
        print(f"{api_name}: versions {first} to {last}, {len(kept)} exchanges")


if __name__ == "__main__":
    main(*sys.argv[1:])
