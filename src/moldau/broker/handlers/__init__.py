"""The APIs that a broker serves: one module each, named as Kafka names it."""

from __future__ import annotations

from moldau.broker.dispatch import routes
from moldau.broker.handlers import (
    alter_configs,
    api_versions,
    create_partitions,
    create_topics,
    delete_records,
    delete_topics,
    describe_cluster,
    describe_configs,
    describe_log_dirs,
    describe_producers,
    describe_topic_partitions,
    fetch,
    find_coordinator,
    incremental_alter_configs,
    init_producer_id,
    list_config_resources,
    list_offsets,
    metadata,
    offset_for_leader_epoch,
    produce,
)

ROUTES = routes(
    (
        alter_configs,
        api_versions,
        create_partitions,
        create_topics,
        delete_records,
        delete_topics,
        describe_cluster,
        describe_configs,
        describe_log_dirs,
        describe_producers,
        describe_topic_partitions,
        fetch,
        find_coordinator,
        incremental_alter_configs,
        init_producer_id,
        list_config_resources,
        list_offsets,
        metadata,
        offset_for_leader_epoch,
        produce,
    )
)
