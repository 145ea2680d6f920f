"""ApiVersions: what it tells of features, and to whom."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from moldau.broker.handlers import api_versions


def ask(version: int) -> Any:
    context = SimpleNamespace(version=version, connection=SimpleNamespace())
    request = SimpleNamespace(client_software_name="apache-kafka-java", client_software_version="3.4.1")
    return api_versions.handle(SimpleNamespace(routes={}), context, request)


def test_a_feature_supported_from_version_0_is_told_from_v4_on_only() -> None:
    """Java clients from 3.2 to 3.8 ask in v3, and their network threads end at a supported range from 0."""
    assert [feature.min_version for feature in ask(4).supported_features] == [0, 0, 0]
    assert all(feature.min_version >= 1 for feature in ask(3).supported_features)


def test_the_features_in_force_are_told_in_v3_too() -> None:
    told = {feature.name: feature.max_version_level for feature in ask(3).finalized_features}
    assert told == {"eligible.leader.replicas.version": 1, "group.version": 1, "transaction.version": 2}
