"""All that one broker tells Prometheus, looked up when it is asked for."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from moldau import __version__
from moldau.base.errors import ErrorCode
from moldau.base.ids import TopicPartition
from moldau.broker.client_quotas import ClientQuotas
from moldau.broker.data_folders import folder_samples
from moldau.broker.metrics.cleaner import cleaner_samples
from moldau.broker.metrics.counters import Metrics
from moldau.broker.metrics.ends import Ends
from moldau.broker.metrics.groups import GroupFigures, coordinator_samples, transaction_samples
from moldau.broker.metrics.loop_delay import LoopDelay
from moldau.broker.metrics.machine import Machine
from moldau.broker.metrics.text import Sample, Samples, buckets, exposition, labelled, plain
from moldau.broker.metrics.topics import topic_samples
from moldau.broker.standing import standing_samples
from moldau.metadata.records import NO_LEADER
from moldau.runtime.line import Slices

if TYPE_CHECKING:
    from moldau.broker.node import Broker


class BrokerMetrics:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._machine = Machine(broker.runtime)
        self._ends = Ends(broker.tasks, broker.peers, self._other_leader)
        self._groups = GroupFigures(broker.partitions_of, self._ends.of)
        self.loop_delay = LoopDelay(broker.runtime)

    async def exposition(self) -> Slices[str]:
        """The text, which is made in slices: what has to be waited for is known by now."""
        await self._machine.look(self._folders)
        await self._ends.look(list(self._groups.elsewhere))
        return exposition(self.samples())

    def _other_leader(self, place: TopicPartition) -> int | None:
        topic = self._broker.image.topics.get(place.topic)
        if topic is None or place.partition >= len(topic.partitions):
            return None
        leader = topic.partitions[place.partition].leader
        return None if leader in (NO_LEADER, self._broker.node_id) else leader

    @property
    def _folders(self) -> list[str]:
        return [folder.path for folder in self._broker.log_manager.folders] if self._broker.is_ready else []

    def samples(self) -> Samples:
        broker = self._broker
        yield from counter_samples(broker.metrics)
        yield from quota_samples(broker.metrics, broker.client_quotas)
        yield from topic_samples(broker.replicas.traffic, list(broker.partitions.values()))
        yield from standing_samples(broker)
        denials = 0 if broker.guard is None else broker.guard.denials
        yield plain("moldau_authorization_denials_total", denials)
        yield plain("moldau_connections", broker.connection_count)
        ends = [(labelled(listener=name), one.not_after_s) for name, one in broker.tls.certificates.items()]
        yield Sample("moldau_tls_certificate_expiry_timestamp_seconds", tuple(ends))
        yield plain("moldau_partitions", len(broker.partitions))
        yield plain("moldau_partitions_offline", len(broker.offline))
        yield plain("moldau_topics", len(broker.image.topics))
        yield plain("moldau_fetch_sessions", len(broker.fetch_sessions))
        yield plain("moldau_fetches_waiting", broker.long_polls.count)
        yield plain("moldau_ready", int(broker.is_ready))
        if hasattr(broker, "coordinators"):
            groups, transactions = broker.coordinators.groups, broker.coordinators.transactions
            yield from self._groups.samples(groups)
            yield from transaction_samples(transactions)
            yield from coordinator_samples(groups, transactions)
        if hasattr(broker, "log_cleaner"):
            yield from cleaner_samples(broker.log_cleaner)
        if broker.is_ready:
            yield from folder_samples(broker.log_manager.folders)
        yield from self._machine.samples(self._folders)
        yield Sample("moldau_event_loop_delay_seconds", tuple(buckets(self.loop_delay.delays)))
        build = labelled(version=__version__, python=sys.version.split()[0])
        yield Sample("moldau_build_info", ((build, 1),))


def counter_samples(metrics: Metrics) -> Samples:
    for name, value in (
        ("moldau_network_received_bytes_total", metrics.bytes_in),
        ("moldau_network_sent_bytes_total", metrics.bytes_out),
        ("moldau_connections_opened_total", metrics.connections_opened),
        ("moldau_connections_closed_total", metrics.connections_closed),
        ("moldau_connections_held_back_total", metrics.connections_held_back),
        ("moldau_tls_handshakes_total", metrics.tls_handshakes),
        ("moldau_tls_handshakes_failed_total", metrics.tls_handshakes_failed),
        ("moldau_connections_paced_total", metrics.connections_paced),
        ("moldau_malformed_requests_total", metrics.malformed_requests),
        ("moldau_unsupported_requests_total", metrics.unsupported_requests),
        ("moldau_authentications_total", metrics.authentications),
        ("moldau_authentications_failed_total", metrics.authentications_failed),
        ("moldau_sessions_expired_total", metrics.sessions_expired),
        ("moldau_produce_refused_total", metrics.produce_refused),
        ("moldau_fetched_bytes_total", metrics.fetched_bytes),
        ("moldau_fetches_parked_total", metrics.fetches_parked),
        ("moldau_cold_reads_total", metrics.cold_reads),
        ("moldau_flushes_total", metrics.flushes),
        ("moldau_read_errors_total", metrics.read_errors),
    ):
        yield plain(name, value)
    yield from _api_samples(metrics)


def quota_samples(metrics: Metrics, quotas: ClientQuotas) -> Samples:
    for name, counts in (
        ("moldau_throttled_requests_total", metrics.throttled),
        ("moldau_throttle_seconds_total", metrics.throttle_s),
        ("moldau_quota_clients", quotas.meters.counted),
    ):
        yield Sample(name, tuple((labelled(quota=quota), count) for quota, count in sorted(counts.items())))


def _api_samples(metrics: Metrics) -> Samples:
    """Errors and durations only of what was asked for."""
    apis = sorted(metrics.apis.items())
    yield Sample(
        "moldau_requests_total", tuple((labelled(api=api), figures.requests) for api, figures in apis)
    )
    errors = (
        (labelled(api=api, error=_name_of(error)), count)
        for api, figures in apis
        for error, count in sorted(figures.errors.items())
    )
    yield Sample("moldau_request_errors_total", tuple(errors))
    durations = (
        value
        for api, figures in apis
        if figures.requests
        for value in buckets(figures.durations, labelled(api=api))
    )
    yield Sample("moldau_request_duration_seconds", tuple(durations))


def _name_of(error: int) -> str:
    return ErrorCode(error).name.upper()
