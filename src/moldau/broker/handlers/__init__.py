"""The APIs that a broker serves: one module each, named as Kafka names it, and imported when it is first asked for.

The table has what must be known before. The modules declare it too; a test holds both equal.
"""

from __future__ import annotations

from moldau.broker.dispatch import Route

_TABLE = (
    Route("produce", 0, (3, 13), advertised_min_version=0),
    Route("fetch", 1, (4, 18)),
    Route("list_offsets", 2, (1, 11)),
    Route("metadata", 3, (0, 13)),
    Route("offset_commit", 8, (2, 10)),
    Route("offset_fetch", 9, (1, 10)),
    Route("find_coordinator", 10, (0, 6)),
    Route("join_group", 11, (0, 9)),
    Route("heartbeat", 12, (0, 4)),
    Route("leave_group", 13, (0, 5)),
    Route("sync_group", 14, (0, 5)),
    Route("describe_groups", 15, (0, 6)),
    Route("list_groups", 16, (0, 5)),
    Route("sasl_handshake", 17, (0, 1)),
    Route("api_versions", 18, (0, 4)),
    Route("create_topics", 19, (2, 7)),
    Route("delete_topics", 20, (1, 6)),
    Route("delete_records", 21, (0, 2)),
    Route("init_producer_id", 22, (0, 5)),
    Route("offset_for_leader_epoch", 23, (2, 4)),
    Route("add_partitions_to_txn", 24, (0, 5)),
    Route("add_offsets_to_txn", 25, (0, 4)),
    Route("end_txn", 26, (0, 5)),
    Route("write_txn_markers", 27, (1, 2)),
    Route("txn_offset_commit", 28, (0, 5)),
    Route("describe_acls", 29, (1, 3)),
    Route("create_acls", 30, (1, 3)),
    Route("delete_acls", 31, (1, 3)),
    Route("describe_configs", 32, (1, 4)),
    Route("alter_configs", 33, (0, 2)),
    Route("alter_replica_log_dirs", 34, (1, 2)),
    Route("describe_log_dirs", 35, (1, 5)),
    Route("sasl_authenticate", 36, (0, 2)),
    Route("create_partitions", 37, (0, 3)),
    Route("delete_groups", 42, (0, 2)),
    Route("elect_leaders", 43, (0, 2)),
    Route("incremental_alter_configs", 44, (0, 1)),
    Route("alter_partition_reassignments", 45, (0, 1)),
    Route("list_partition_reassignments", 46, (0, 0)),
    Route("offset_delete", 47, (0, 0)),
    Route("describe_user_scram_credentials", 50, (0, 0)),
    Route("alter_user_scram_credentials", 51, (0, 0)),
    Route("alter_partition", 56, (2, 3), is_internal=True),
    Route("envelope", 58, (0, 0), is_internal=True),
    Route("describe_cluster", 60, (0, 2)),
    Route("describe_producers", 61, (0, 0)),
    Route("broker_heartbeat", 63, (0, 1), is_internal=True),
    Route("unregister_broker", 64, (0, 0)),
    Route("describe_transactions", 65, (0, 0)),
    Route("list_transactions", 66, (0, 2)),
    Route("allocate_producer_ids", 67, (0, 0), is_internal=True),
    Route("consumer_group_heartbeat", 68, (0, 1)),
    Route("consumer_group_describe", 69, (0, 1)),
    Route("list_config_resources", 74, (0, 1)),
    Route("describe_topic_partitions", 75, (0, 0)),
    Route("cluster", 31000, (0, 0), is_internal=True, name="Cluster"),
)

ROUTES = {route.api_key: route for route in _TABLE}
