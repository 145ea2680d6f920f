"""The broker: the composition root that puts the parts together, and the life of a node.

Start: cluster image from the store, logs from the data folder, then the listeners; clients are served when
`start` returns. Stop: no new connections, answers under way are given up, every log is synced and closed
cleanly. A broken invariant stops the node at once, without a clean close: what is on the disk is recovered at
the next start. So does the failure of all data folders; one that fails takes its partitions offline.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.ids import TopicPartition
from moldau.broker import data_folders, metrics
from moldau.broker.cleaner_metrics import cleaner_samples
from moldau.broker.coordinators import Coordinators
from moldau.broker.data_folders import KnownFolders, Seldom
from moldau.broker.dispatch import Dispatcher
from moldau.broker.handlers import ROUTES
from moldau.broker.http import HttpServer
from moldau.broker.metrics import Metrics, Sample
from moldau.broker.parked import LongPolls
from moldau.broker.server import Server
from moldau.config.broker import BrokerConfig
from moldau.config.topic import TopicConfig, topic_config
from moldau.controller.brokers import NO_EPOCH, Registration
from moldau.controller.controller import Controller
from moldau.controller.persistence import PersistentImage
from moldau.log import names
from moldau.log.cleaner.cleaner import CleanerSettings, LogCleaner
from moldau.log.disk_errors import reason
from moldau.log.folder import AllFoldersFailed
from moldau.log.log import Log
from moldau.log.manager import LogManager
from moldau.metadata.image import ClusterImage, Topic, image_from, snapshot_of
from moldau.metadata.records import (
    ConfigChanged,
    Delta,
    PartitionsAdded,
    PartitionsChanged,
    Record,
    ResourceType,
    TopicCreated,
    TopicDeleted,
)
from moldau.replication.fetch_session import FetchSessions, TopicRef
from moldau.replication.partition import Partition
from moldau.runtime.ports import Listener, Runtime
from moldau.store.port import Store

log = logging.getLogger(__name__)

LOGS_DELETED_PER_TURN = 16
"""So that a topic with thousands of partitions holds nobody up; making a log takes longer, and a turn of its own."""


class Broker:
    def __init__(self, config: BrokerConfig, runtime: Runtime, store: Store, *, process_id: int = 0) -> None:
        self.config = config
        self.node_id = config.node_id
        self.runtime = runtime
        self.clock = runtime.clock
        self.tasks = runtime.tasks
        self.metrics = Metrics()
        self.routes = ROUTES
        self.image: ClusterImage
        self.controller: Controller
        self.log_manager: LogManager
        self.log_cleaner: LogCleaner
        self.coordinators: Coordinators
        self.partitions: dict[TopicPartition, Partition] = {}
        self.offline: set[TopicPartition] = set()
        self.partitions_of: dict[TopicRef, list[Partition]] = {}  # by name, and by the bytes of the topic id
        self.long_polls = LongPolls(runtime.tasks, runtime.clock)
        self.fetch_sessions = FetchSessions(
            runtime.random.fork("fetch sessions"), config["max.incremental.fetch.session.cache.slots"]
        )
        self.fetch_bytes_max: int = config["fetch.max.bytes"]
        self.listeners: dict[str, Listener] = {}
        self.http: Listener | None = None
        self.is_ready = False
        self.broker_epoch = NO_EPOCH
        self.failure: BaseException | None = None
        self._failed: asyncio.Event = asyncio.Event()
        self._store = store
        self._seldom = Seldom(runtime.clock)
        self._process_id = process_id  # only told to people, in the lock of the data folder
        self._server = Server(
            runtime,
            self.metrics,
            Dispatcher(self, ROUTES),
            self.fail,
            frame_bytes_max=config["socket.request.max.bytes"],
            connections_max=config["max.connections"],
            connections_per_ip_max=config["max.connections.per.ip"],
            idle_ms_max=config["connections.max.idle.ms"],
        )
        self._http = HttpServer(runtime, self._exposition, self._health)

    # ---- life ---------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Serve clients. On an error (a port in use, a locked folder) nothing is left running."""
        try:
            await self._start()
        except BaseException:
            await self._give_up()
            raise

    async def stop(self) -> None:
        """End cleanly: the next start finds every log closed, and has nothing to recover."""
        self.is_ready = False
        self._server.close()
        self._http.close()
        self.long_polls.close()
        self.coordinators.close()
        await self.log_cleaner.stop()
        await self.log_manager.close(self.broker_epoch)

    def crash(self) -> None:
        """End without a clean close, as a killed process would."""
        self.is_ready = False
        self._server.close()
        self._http.close()
        self.long_polls.close()
        self.coordinators.close()
        self.log_manager.release()

    def fail(self, error: BaseException) -> None:
        """A broken invariant: going on would put promises at risk."""
        if self.failure is None:
            log.critical("the broker stops: %s", error, exc_info=error)
            self.failure = error
            self.is_ready = False
            self._server.close()
            self._failed.set()

    async def wait_failed(self) -> BaseException:
        await self._failed.wait()
        assert self.failure is not None
        return self.failure

    @property
    def bootstrap_servers(self) -> str:
        """The addresses that clients can start from."""
        addresses = []
        for name, listener in self.listeners.items():
            host, port = self.config.advertised_listeners.get(name, listener.address)
            host = "localhost" if host in ("0.0.0.0", "::", "") else host
            addresses.append(f"[{host}]:{port}" if ":" in host else f"{host}:{port}")
        return ",".join(addresses)

    # ---- partitions ---------------------------------------------------------------------------------------

    def partition(self, topic: TopicRef, index: int) -> Partition:
        """A partition by its topic's name or the bytes of its id; KafkaError where this broker does not
        hold it.
        """
        partitions = self.partitions_of.get(topic)
        if partitions is None:
            unknown = (
                ErrorCode.unknown_topic_id if type(topic) is bytes else ErrorCode.unknown_topic_or_partition
            )
            raise KafkaError(unknown)
        if not 0 <= index < len(partitions):
            raise KafkaError(ErrorCode.unknown_topic_or_partition)
        return partitions[index]

    async def on_delta(self, delta: Delta) -> None:
        """The controller's decisions, durable: into this broker's image, and act on them."""
        self.image.apply_delta(delta)
        await self.on_change(delta.records)
        self.controller.applied(self.node_id, delta.position)

    async def on_change(self, records: Sequence[Record]) -> None:
        for record in records:
            match record:
                case TopicCreated() | PartitionsAdded():
                    await self._open_partitions(self.image.topics[record.name], is_new=True)
                    self._coordinate(self.partitions_of[record.name])
                    self.coordinators.on_topic_changed(record.name)
                case TopicDeleted():
                    await self._delete_partitions(record)
                case PartitionsChanged():
                    changed = [self.partition(record.name, index) for index in record.states]
                    for partition, state in zip(changed, record.states.values(), strict=True):
                        partition.change(state)
                    self._coordinate(changed)
                case ConfigChanged():
                    self._configure(record)

    async def _open_partitions(self, topic: Topic, *, is_new: bool) -> None:
        """Open or make the logs of a topic's partitions that this broker does not hold yet."""
        partitions = self.partitions_of.get(topic.name, [])
        config = topic_config(self.config, topic.configs)
        for index in range(len(partitions), len(topic.partitions)):
            place = TopicPartition(topic.name, index)
            held = await self._log_of(place, topic, config, is_new=is_new)
            partition = Partition(self.node_id, topic.topic_id, topic.partitions[index], held)
            self.partitions[place] = partition
            partitions.append(partition)
            if held.failure is not None:
                self._take_offline(partition)
        self.partitions_of[topic.name] = partitions
        self.partitions_of[topic.topic_id.bytes] = partitions

    def _coordinate(self, partitions: Iterable[Partition]) -> None:
        """Coordinate what is led here, and in this epoch. At the start not before the epochs have begun."""
        for partition in partitions:
            self.coordinators.on_partition(partition)

    async def _log_of(self, place: TopicPartition, topic: Topic, config: TopicConfig, *, is_new: bool) -> Log:
        """The log of a partition: found in a data folder, or made. One that was there before and may lie in a
        folder that is offline is not made anew in another.
        """
        manager = self.log_manager
        held = manager.logs.get(place)
        its_ids = (topic.topic_id,) if is_new else (topic.topic_id, None)
        if held is not None and held.topic_id not in its_ids:
            if is_new and held.topic_id is not None:
                manager.delete(place)  # of a topic that had this name before
            else:
                manager.set_aside(place)  # its id may be damaged, or lost: nothing is deleted for that
            held = None
        if held is not None:
            if held.topic_id is None and held.failure is None:
                log.warning(
                    "%s does not say to which topic it belongs: its partition.metadata is written anew", place
                )
                held.adopt_topic_id(topic.topic_id)
            return held
        await manager.vacated(place)
        if not is_new:
            if manager.has_failed_folders:
                log.error("%s is offline: it may lie in the data folder that cannot be used", place)
                return manager.create_offline(place)
            log.warning("%s is in no data folder: it begins anew, empty", place)
        held = manager.create(place, topic.topic_id, config)
        await self.tasks.sleep(0)
        return held

    async def _delete_partitions(self, record: TopicDeleted) -> None:
        self.partitions_of.pop(record.topic_id.bytes, None)
        for number, partition in enumerate(self.partitions_of.pop(record.name, []), 1):
            del self.partitions[partition.topic_partition]
            self.offline.discard(partition.topic_partition)
            self.long_polls.on_change(partition)
            self.log_manager.delete(partition.topic_partition)
            if number % LOGS_DELETED_PER_TURN == 0:
                await self.tasks.sleep(0)
        self.coordinators.on_topic_deleted(record.name)

    def _configure(self, record: ConfigChanged) -> None:
        """Settings changed: a topic's own, or the broker's, which every topic falls back to."""
        resource = record.resource
        if resource.type is ResourceType.TOPIC:
            self._configure_topic(self.image.topics[resource.name])
        elif resource.type is ResourceType.BROKER:
            self._load_dynamic_config()
            for topic in self.image.topics.values():
                self._configure_topic(topic)

    def _configure_topic(self, topic: Topic) -> None:
        config = topic_config(self.config, topic.configs)
        for partition in self.partitions_of.get(topic.name, ()):
            partition.log.configure(config)

    def _load_dynamic_config(self) -> None:
        configs = self.image.broker_configs
        self.config = self.config.with_dynamic(configs.get("", {}), configs.get(str(self.node_id), {}))
        self.fetch_bytes_max = self.config["fetch.max.bytes"]
        self._server.set_limits(self.config["max.connections"], self.config["max.connections.per.ip"])

    # ---- disks that fail ----------------------------------------------------------------------------------

    def _on_log_failure(self, failed: Log, error: OSError) -> None:
        partition = self.partitions.get(failed.topic_partition)
        if partition is not None:
            self._take_offline(partition)

    def _take_offline(self, partition: Partition) -> None:
        self.offline.add(partition.topic_partition)
        partition.take_offline()
        self.coordinators.on_partition(partition)
        self.long_polls.on_change(partition)

    def _on_log_made(self, made: Log) -> None:
        """There was no room for the log when its topic was created, and now there is."""
        partition = self.partitions[made.topic_partition]
        self.offline.discard(made.topic_partition)
        partition.come_online(made)
        self.coordinators.on_partition(partition)

    def _on_all_folders_failed(self, error: OSError) -> None:
        paths = ", ".join(folder.path for folder in self.log_manager.folders)
        self.fail(AllFoldersFailed(f"all data folders have failed ({paths}): {reason(error)}"))

    def note_read_error(self, partition: Partition, error: OSError) -> None:
        """Part of a log cannot be read. Who asked for it is told; the rest of the disk is served."""
        self.metrics.read_errors += 1
        if self._seldom(partition.topic_partition):
            log.error("%s cannot be read: %s", partition.topic_partition, error)

    # ---- starting -----------------------------------------------------------------------------------------

    async def _start(self) -> None:
        random = self.runtime.random.fork("controller")
        state = await PersistentImage.take_over(
            self._store, random, self.node_id, pause=self.runtime.tasks.sleep
        )
        self.image = image_from(snapshot_of(state.image))
        self.controller = Controller(state, random, self, self.tasks, on_delta=self.on_delta)
        self._load_dynamic_config()
        self.coordinators = Coordinators(self)
        registration = self._registration(random.uuid(), *await self._open_logs())
        self.broker_epoch = await self.controller.register_broker(registration)
        self._coordinate(self.partitions.values())
        self._start_cleaner()
        self._listen()
        await self.controller.heartbeat(self.node_id, self.broker_epoch, self.image.position)
        self.is_ready = True

    async def _open_logs(self) -> tuple[int, list[TopicPartition]]:
        """Open the logs: the broker epoch in which all were closed cleanly, and those that were not there."""
        config = self.config
        last_epoch = await self.tasks.in_thread(self._last_clean_epoch)  # opening takes the marks away
        known_folders = KnownFolders(self._store, self.node_id)
        await known_folders.load()
        self.log_manager = LogManager(
            self.runtime,
            config.log_dirs,
            cluster_id=self.image.cluster_id,
            node_id=self.node_id,
            process_id=self._process_id,
            config_of=self._topic_config,
            high_watermark_of=self._high_watermark_of,
            topic_id_of=lambda name: topic.topic_id if (topic := self.image.topics.get(name)) else None,
            known_folders=known_folders.ids,
            on_failure=self._on_log_failure,
            on_all_failed=self._on_all_folders_failed,
            on_made=self._on_log_made,
            recovery_threads=config["num.recovery.threads.per.data.dir"],
            checkpoint_interval_s=config["log.flush.offset.checkpoint.interval.ms"] / 1000,
            retention_interval_s=config["log.retention.check.interval.ms"] / 1000,
            producer_expiration_ms=lambda: self.config["producer.id.expiration.ms"],
        )
        await self.log_manager.open()
        await known_folders.save(self.log_manager.folders)
        kept = set(self.log_manager.logs)
        for topic in self.image.topics.values():
            await self._open_partitions(topic, is_new=False)
        for place in self.log_manager.logs.keys() - self.partitions.keys():
            log.warning("%s is in the data folder but not in the cluster: its files are left alone", place)
        return last_epoch, [place for place in self.partitions if place not in kept]

    def _last_clean_epoch(self) -> int:
        """NO_EPOCH where a folder was not closed cleanly, or they do not agree."""
        disk = self.runtime.disk
        paths = [f"{folder}/{names.CLEAN_SHUTDOWN}" for folder in self.config.log_dirs]
        if not all(disk.exists(path) for path in paths):
            return NO_EPOCH
        epochs = {_epoch_in(disk.read(path)) for path in paths}
        return epochs.pop() if len(epochs) == 1 else NO_EPOCH

    def _start_cleaner(self) -> None:
        self.log_cleaner = LogCleaner(
            self.runtime,
            self.log_manager,
            lambda: CleanerSettings.of(self.config),
            stable_offset_of=self._stable_offset_of,
        )
        if self.config["log.cleaner.enable"]:
            self.log_cleaner.start()

    def _topic_config(self, name: str) -> TopicConfig:
        """A log whose topic is not in the cluster is left alone: it is neither shortened nor compacted."""
        topic = self.image.topics.get(name)
        if topic is not None:
            return topic_config(self.config, topic.configs)
        return replace(
            self.config.topic_defaults, cleanup_policy=("delete",), retention_ms=-1, retention_bytes=-1
        )

    def _high_watermark_of(self, held: Log) -> int:
        partition = self.partitions.get(held.topic_partition)
        return held.next_offset if partition is None else partition.high_watermark

    def _stable_offset_of(self, held: Log) -> int:
        """Up to where no transaction is open: what lies behind is not compacted."""
        partition = self.partitions.get(held.topic_partition)
        return held.log_start_offset if partition is None else partition.last_stable_offset

    def _listen(self) -> None:
        for endpoint in self.config.listeners:
            self.listeners[endpoint.name] = self._server.listen(endpoint.name, endpoint.host, endpoint.port)
        if self.config["moldau.http.port"] >= 0:
            self.http = self._http.listen(self.config["moldau.http.host"], self.config["moldau.http.port"])

    def _registration(self, incarnation: UUID, last_epoch: int, lost: list[TopicPartition]) -> Registration:
        names = [endpoint.name for endpoint in self.config.listeners]
        listeners = {name: self.config.advertised_listeners.get(name) for name in names}
        rack = self.config["broker.rack"]
        return Registration(self.node_id, incarnation, listeners, rack, previous_epoch=last_epoch, lost=lost)

    async def _give_up(self) -> None:
        self._server.close()
        self._http.close()
        if hasattr(self, "log_cleaner"):
            await self.log_cleaner.stop()
        if hasattr(self, "log_manager"):
            self.log_manager.release()

    # ---- what it says of itself ---------------------------------------------------------------------------

    def _exposition(self) -> str:
        return metrics.exposition(self._samples())

    def _samples(self) -> Iterator[Sample]:
        yield from metrics.counters(self.metrics)
        yield from cleaner_samples(self.log_cleaner)
        gauges = (
            ("moldau_connections", "Connections open now.", len(self._server.connections)),
            ("moldau_partitions", "Partitions held.", len(self.partitions)),
            ("moldau_partitions_offline", "Partitions whose disk failed.", len(self.offline)),
            ("moldau_topics", "Topics of the cluster.", len(self.image.topics)),
            ("moldau_fetch_sessions", "Incremental fetch sessions.", len(self.fetch_sessions)),
            ("moldau_fetches_waiting", "Fetches that wait for data now.", self.long_polls.count),
            ("moldau_ready", "1 when clients are served.", int(self.is_ready)),
        )
        for name, text, value in gauges:
            yield Sample(name, "gauge", text, (("", value),))
        if self.is_ready:
            yield from data_folders.samples(self.log_manager.folders)

    def _health(self) -> tuple[bool, dict[str, Any]]:
        offline = sorted(str(place) for place in self.offline)
        folders = data_folders.health(self.log_manager.folders) if self.is_ready else []
        is_well = self.is_ready and not offline and all(folder["state"] == "ok" for folder in folders)
        return is_well, {
            "status": "ok" if is_well else "starting" if not self.is_ready else "degraded",
            "node_id": self.node_id,
            "cluster_id": self.image.cluster_id,
            "partitions": len(self.partitions),
            "offline_partitions": offline,
            "data_folders": folders,
        }


def _epoch_in(mark: bytes) -> int:
    """The broker epoch in the mark of a clean stop; 0 where it says none, as Kafka's older brokers leave it."""
    try:
        return int(json.loads(mark)["brokerEpoch"])
    except (ValueError, KeyError, TypeError):
        return 0
