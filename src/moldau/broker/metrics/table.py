"""The table of all that /metrics has: names, kinds, labels, what each means. docs/metrics.md is made from it.

Names follow Prometheus' conventions: base units, `_total` for what only grows, and for the process the names that
Prometheus' own client libraries have.
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

Kind = Literal["counter", "gauge", "histogram"]


class Family(NamedTuple):
    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()


def _counter(name: str, text: str, *labels: str) -> Family:
    return Family(name, "counter", text, labels)


def _gauge(name: str, text: str, *labels: str) -> Family:
    return Family(name, "gauge", text, labels)


def _histogram(name: str, text: str, *labels: str) -> Family:
    return Family(name, "histogram", text, labels)


SECTIONS: Final[dict[str, tuple[Family, ...]]] = {
    "Requests": (
        _counter("moldau_requests_total", "Requests received, by API.", "api"),
        _counter(
            "moldau_request_errors_total",
            "Error codes in answers, by API and code; an answer for many partitions may have many.",
            "api",
            "error",
        ),
        _histogram(
            "moldau_request_duration_seconds",
            "Time from when a request is taken up to when its answer is ready. What it waits for counts: new data"
            " (Fetch), other members (JoinGroup, SyncGroup), replicas and disks.",
            "api",
        ),
        _counter("moldau_malformed_requests_total", "Requests that could not be read."),
        _counter("moldau_unsupported_requests_total", "Requests of an API or version not served."),
        _counter(
            "moldau_authorization_denials_total",
            "What was asked for and denied by the ACLs; a request for many topics may be denied many times.",
        ),
    ),
    "Connections": (
        _gauge("moldau_connections", "Connections open now."),
        _counter("moldau_connections_opened_total", "Connections accepted."),
        _counter("moldau_connections_closed_total", "Connections ended."),
        _counter("moldau_connections_held_back_total", "Connections that waited for max.connections."),
        _counter("moldau_tls_handshakes_total", "TLS handshakes of clients that were made."),
        _counter("moldau_tls_handshakes_failed_total", "TLS handshakes of clients that failed."),
        _gauge(
            "moldau_tls_certificate_expiry_timestamp_seconds",
            "When the certificate of a listener expires, in seconds since 1970.",
            "listener",
        ),
        _counter("moldau_authentications_total", "Clients that have said who they are, also again (SASL)."),
        _counter("moldau_authentications_failed_total", "Clients that could not say who they are (SASL)."),
        _counter("moldau_sessions_expired_total", "Connections ended because nobody said again who it is."),
        _counter("moldau_network_received_bytes_total", "Bytes received from clients."),
        _counter("moldau_network_sent_bytes_total", "Bytes sent to clients."),
    ),
    "Client quotas": (
        _counter(
            "moldau_throttled_requests_total",
            "Requests of clients over a quota, by its kind: produce, fetch, request (time), controller_mutation.",
            "quota",
        ),
        _counter("moldau_throttle_seconds_total", "Seconds that these clients had to wait.", "quota"),
        _gauge(
            "moldau_quota_clients", "Users and client ids whose use of a quota is counted of late.", "quota"
        ),
        _counter(
            "moldau_connections_paced_total",
            "New connections that came faster than they may, and waited or were closed.",
        ),
    ),
    "Topics": (
        _counter(
            "moldau_topic_received_bytes_total",
            "Bytes of record batches that clients have appended.",
            "topic",
        ),
        _counter("moldau_topic_received_messages_total", "Messages that clients have appended.", "topic"),
        _counter("moldau_topic_sent_bytes_total", "Bytes of record batches sent to consumers.", "topic"),
        _counter(
            "moldau_topic_sent_messages_total",
            "Messages sent to consumers: the offsets that the answers cover. Compacted away messages and the markers"
            " of transactions count as well.",
            "topic",
        ),
        _gauge(
            "moldau_topic_end_offsets",
            "Sum of the high watermarks of the partitions led here; over all brokers that of the topic.",
            "topic",
        ),
        _gauge("moldau_log_size_bytes", "Size of the logs held here, replicas too.", "topic", "folder"),
        _gauge("moldau_topics", "Topics of the cluster."),
    ),
    "Producing and fetching": (
        _counter("moldau_produced_batches_total", "Record batches appended."),
        _counter("moldau_produced_bytes_total", "Bytes of record batches appended."),
        _counter("moldau_produced_messages_total", "Messages appended."),
        _counter("moldau_produce_refused_total", "Record batches refused with an error."),
        _counter("moldau_flushes_total", "Appends that were acknowledged only after a sync of their log."),
        _counter(
            "moldau_fetched_bytes_total",
            "Bytes of record batches sent to readers, consumers and followers alike.",
        ),
        _counter("moldau_fetches_parked_total", "Fetches that waited for data."),
        _gauge("moldau_fetches_waiting", "Fetches that wait for data now."),
        _gauge("moldau_fetch_sessions", "Incremental fetch sessions."),
        _counter("moldau_cold_reads_total", "Reads that had to wait for the disk."),
        _counter("moldau_read_errors_total", "Reads that a disk failed."),
    ),
    "Partitions and replication": (
        _gauge("moldau_partitions", "Partitions held."),
        _gauge("moldau_partitions_led", "Partitions that this broker leads."),
        _gauge("moldau_partitions_offline", "Partitions whose disk failed."),
        _gauge(
            "moldau_partitions_under_replicated", "Partitions led here of which a replica is not in sync."
        ),
        _gauge(
            "moldau_partitions_under_min_isr",
            "Partitions led here that refuse acks=all for lack of replicas in sync.",
        ),
        _gauge("moldau_partitions_without_leader", "Partitions held here that nobody leads."),
        _gauge("moldau_writes_waiting", "Writes that wait for replicas now."),
        _gauge(
            "moldau_follower_lag_messages",
            "Offsets by which a follower is behind, over all partitions led here.",
            "follower",
        ),
        _gauge(
            "moldau_follower_lag_messages_max",
            "Offsets by which a follower is behind in its slowest partition.",
            "follower",
        ),
        _gauge(
            "moldau_replication_throttled_bytes_per_second", "Bytes of throttled replicas, of late.", "side"
        ),
        _counter("moldau_replicated_bytes_total", "Bytes fetched from leaders."),
        _counter("moldau_in_sync_shrinks_total", "In-sync sets that have lost a replica."),
        _counter("moldau_in_sync_growths_total", "In-sync sets that have won a replica."),
        _counter("moldau_leader_elections_total", "Times that this broker has begun to lead a partition."),
        _counter(
            "moldau_unclean_leader_elections_total",
            "Of these, those in which committed records may have been lost.",
        ),
    ),
    "The cluster": (
        _gauge("moldau_ready", "1 when clients are served."),
        _gauge("moldau_brokers", "Brokers that are alive, as this one knows."),
        _gauge("moldau_active_controller", "1 on the controller."),
        _counter("moldau_controller_elections_total", "Times that this broker has become the controller."),
        _gauge(
            "moldau_controller_fenced_brokers",
            "Registered brokers that are not alive. On the controller only.",
        ),
        _gauge(
            "moldau_controller_offline_partitions",
            "Partitions of the cluster that nobody leads. On the controller only.",
        ),
    ),
    "Groups and transactions": (
        _gauge("moldau_groups", "Groups that this broker coordinates.", "type", "state"),
        _gauge(
            "moldau_group_members",
            "Members of a group that has committed offsets; those of groups without are under other.",
            "group",
        ),
        _gauge(
            "moldau_group_committed_offsets",
            "Sum of a group's committed offsets in a topic.",
            "group",
            "topic",
        ),
        _gauge(
            "moldau_group_lag_messages",
            "Offsets between what a group has committed in a topic and the high watermarks of the partitions.",
            "group",
            "topic",
        ),
        _gauge("moldau_group_lag_messages_max", "The same in the slowest partition.", "group", "topic"),
        _gauge(
            "moldau_group_lag_unknown_partitions",
            "Partitions with a committed offset whose end is not known now: their lag is not counted.",
            "group",
            "topic",
        ),
        _gauge("moldau_transactions", "Transactional ids that this broker coordinates.", "state"),
        _gauge("moldau_coordinators", "Partitions of the coordinators' topics led here.", "topic", "state"),
    ),
    "Disks": (
        _gauge("moldau_data_folder_state", "1 for the state that a data folder is in.", "folder", "state"),
        _gauge("moldau_data_folder_free_bytes", "Room that is left on a data folder's disk.", "folder"),
        _gauge("moldau_data_folder_disk_bytes", "Size of a data folder's disk.", "folder"),
    ),
    "The log cleaner": (
        _counter("moldau_cleaner_compactions_total", "Logs compacted."),
        _counter("moldau_cleaner_failures_total", "Compactions that failed."),
        _counter("moldau_cleaner_removed_records_total", "Records taken away."),
        _counter("moldau_cleaner_removed_bytes_total", "Bytes by which logs have shrunk."),
        _counter("moldau_cleaner_read_bytes_total", "Bytes read by compactions."),
        _counter("moldau_cleaner_written_bytes_total", "Bytes written by compactions."),
        _counter("moldau_cleaner_seconds_total", "Seconds that compactions took."),
        _gauge("moldau_cleaner_running", "Compactions under way."),
        _gauge("moldau_cleaner_dirtiest_ratio", "The largest dirty share at the last look."),
        _gauge("moldau_cleaner_uncleanable_partitions", "Logs left out after a failure."),
    ),
    "The process": (
        _histogram(
            "moldau_event_loop_delay_seconds",
            "How late a timer comes that is due ten times a second: how long the loop that serves everyone was held.",
        ),
        _counter("process_cpu_seconds_total", "CPU time of this process, user and system. On Linux."),
        _gauge("process_resident_memory_bytes", "Memory of this process. On Linux."),
        _gauge("process_virtual_memory_bytes", "Address space of this process. On Linux."),
        _gauge("process_open_fds", "Files and sockets that this process has open. On Linux."),
        _gauge("process_max_fds", "How many it may have open (ulimit -n). On Linux."),
        _gauge("process_threads", "Threads of this process. On Linux."),
        _gauge("process_start_time_seconds", "When this process began, since 1970. On Linux."),
        _gauge("moldau_build_info", "1, with what is running.", "version", "python"),
    ),
}

FAMILIES: Final = {family.name: family for families in SECTIONS.values() for family in families}
