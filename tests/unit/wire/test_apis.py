"""The API table agrees with kio's message classes."""

from __future__ import annotations

import subprocess
import sys

import pytest
from kio.index import load_request_schema, load_response_schema
from kio.schema.index import api_key_map, schema_name_map

from moldau.wire.apis import APIS, FLEXIBLE_FROM, RESPONSE_HEADER_FLEXIBLE_FROM, Api, is_known


def test_every_api_of_kio_is_in_the_table() -> None:
    assert {key: api.module for key, api in APIS.items()} == dict(api_key_map)


@pytest.mark.parametrize("api", APIS.values(), ids=lambda api: api.name)
def test_versions_and_flexibility_are_kios(api: Api) -> None:
    versions = sorted(schema_name_map[api.module])
    assert versions == list(range(api.min_version, api.max_version + 1))
    for version in versions:
        request, response = load_request_schema(api.key, version), load_response_schema(api.key, version)
        assert request.__name__ == api.name + "Request"
        assert response.__name__ == api.name + "Response"
        flexible = version >= FLEXIBLE_FROM[api.key]
        assert request.__flexible__ == response.__flexible__ == flexible
        assert request.__header_schema__.__flexible__ == flexible
        assert response.__header_schema__.__flexible__ == (version >= RESPONSE_HEADER_FLEXIBLE_FROM[api.key])


def test_what_is_outside_the_table_is_unknown() -> None:
    assert is_known(0, 3)
    assert not is_known(0, 2)
    assert not is_known(0, 14)
    assert not is_known(4, 0)
    assert not is_known(-1, 0)


def test_the_table_imports_no_messages() -> None:
    """A broker pays for a version of an API when it is first asked for, not at its start."""
    script = "import sys, moldau.wire.codec; print(*[m for m in sys.modules if m.startswith('kio.schema.')])"
    loaded = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    ).stdout.split()
    assert not [module for module in loaded if module.endswith((".request", ".response"))]
