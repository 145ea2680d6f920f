"""The broker: the composition root that puts the parts together, and the life of a node.

Start: join the cluster, take its image, open the logs that it says are here, register, and serve clients when the
controller lets it (`start` returns). The listeners are open from the beginning, since this broker may be the controller
that others wait for; clients are served when it is ready. Stop: give leadership away, no new connections, every log is
synced and closed cleanly. A broken invariant stops the node at once, without a clean close: what is on the disk is
recovered at the next start. So does the failure of all data folders; one that fails takes its partitions offline.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from moldau.base.errors import ErrorCode, KafkaError
from moldau.broker import addresses, data_folders
from moldau.broker.channel import ControllerChannel
from moldau.broker.client_quotas import ClientQuotas
from moldau.broker.coordinators import Coordinators
from moldau.broker.data_folders import KnownFolders
from moldau.broker.dispatch import Dispatcher
from moldau.broker.feed import ImageFeed
from moldau.broker.guard import guard_of
from moldau.broker.handlers import ROUTES
from moldau.broker.http import HttpServer
from moldau.broker.in_sync import InSyncSets
from moldau.broker.insiders import Insiders
from moldau.broker.kept_answers import KeptAnswers
from moldau.broker.membership import Location, Membership
from moldau.broker.metrics.broker import BrokerMetrics
from moldau.broker.metrics.counters import Metrics
from moldau.broker.office import Office
from moldau.broker.registration import Registrar
from moldau.broker.replicas import Replicas
from moldau.broker.sasl import authentication_of, login_of, no_web
from moldau.broker.seldom import Seldom
from moldau.broker.server import Server
from moldau.broker.settings import epoch_in, fetcher_settings, quota_window
from moldau.broker.standing import standing_health
from moldau.broker.throttling import Throttling
from moldau.broker.tls import BrokerTls
from moldau.config.broker import BrokerConfig
from moldau.config.replication_keys import RACK_AWARE_SELECTOR
from moldau.config.topic import TopicConfig, TopicConfigs
from moldau.controller.brokers import NO_EPOCH
from moldau.controller.controller import Controller
from moldau.controller.producer_ids import ProducerIds
from moldau.log import names
from moldau.log.cleaner.cleaner import CleanerSettings, LogCleaner
from moldau.log.disk_errors import reason
from moldau.log.folder import AllFoldersFailed, check_not_in_use
from moldau.log.host import LogHost, LogSettings, Owner
from moldau.log.manager import LogManager
from moldau.metadata.difference import Difference
from moldau.metadata.image import ClusterImage, Topic
from moldau.metadata.records import (
    BrokerChanged,
    BrokerRegistered,
    BrokerUnregistered,
    ConfigChanged,
    Record,
    ResourceType,
)
from moldau.peers.peers import Peers
from moldau.replication.fetch_session import FetchSessions, TopicRef
from moldau.replication.fetchers import Fetchers
from moldau.replication.partition import Partition
from moldau.replication.replication import Replication
from moldau.runtime.line import Line
from moldau.runtime.ports import Address, Listener, Runtime
from moldau.store.port import Store

log = logging.getLogger(__name__)

TICKS_PER_LAG = 2
PARTITIONS_PER_TICK_TURN = 500
REPORT_PAUSE_S = 0.5
FAREWELL_S = 1.0
"""How long a broker that has handed over what it led sends its clients to the others, before it ends."""


class Broker:
    throttling: Throttling | None = None

    def __init__(
        self,
        config: BrokerConfig,
        runtime: Runtime,
        store: Store,
        *,
        process_id: int = 0,
        boot_id: str = "",
        host_name: str = "localhost",
        fetch: Callable[[str, float, int], bytes] = no_web,
    ) -> None:
        """`boot_id`: of the machine, by which a crash that the page cache survived is told from a power cut.
        `host_name`: how other brokers reach this machine where a listener is open on all its addresses.
        `fetch`: see `token_keys.Fetch`."""
        self.config = config
        self.node_id = config.node_id
        self.runtime = runtime
        self.clock = runtime.clock
        self.tasks = runtime.tasks
        self.host_name, self.fetch = host_name, fetch
        self.metrics = Metrics()
        self.routes = ROUTES
        self.guard = guard_of(config, runtime.clock)
        self.image = ClusterImage("")
        self.kept_answers = KeptAnswers()
        self.log_manager: LogManager
        self.log_cleaner: LogCleaner
        self.coordinators: Coordinators
        self.replication = Replication(self.node_id, runtime, quota_window(config))
        self.replication.replica_lag_max_s = config["replica.lag.time.max.ms"] / 1000
        self.replication.is_eligible = self._is_eligible
        self.long_polls = self.replication.long_polls
        self.replicas = Replicas(
            self.node_id, runtime.tasks, self.image, self.replication, self._config_of, self._on_role
        )
        self.replicas.on_disk = self._on_disk
        self.partitions = self.replicas.partitions
        self.partitions_of = self.replicas.partitions_of
        self.offline = self.replicas.offline
        self.fetch_sessions = FetchSessions(
            runtime.random.fork("fetch sessions"), config["max.incremental.fetch.session.cache.slots"]
        )
        self.fetch_bytes_max: int = config["fetch.max.bytes"]
        self.selects_by_rack = config["replica.selector.class"] == RACK_AWARE_SELECTOR
        self.listeners: dict[str, Listener] = {}
        self.http: Listener | None = None
        self.is_ready = False
        self.on_opened: Callable[[], object] = lambda: None
        """Called at the start, when the logs are open and nobody is served yet."""
        self.failure: BaseException | None = None
        self._failed: asyncio.Event = asyncio.Event()
        self._store = store
        self._seldom = Seldom(runtime.clock)
        self._topic_configs = TopicConfigs()
        self._process_id = process_id  # only told to people, in the lock of the data folder
        self.line = Line(runtime.clock, runtime.tasks)
        self._make_doors()
        self._join_cluster(store, boot_id)

    def _make_doors(self) -> None:
        """The parts by which clients come in."""
        config, runtime = self.config, self.runtime
        self._dispatcher = Dispatcher(self, ROUTES)
        self._server = Server(
            runtime,
            self.metrics,
            self._dispatcher,
            self.fail,
            self.line,
            frame_bytes_max=config["socket.request.max.bytes"],
            connections_max=config["max.connections"],
            connections_per_ip_max=config["max.connections.per.ip"],
            idle_ms_max=config["connections.max.idle.ms"],
            queued_bytes_max=config["queued.max.request.bytes"],
        )
        self.tls = BrokerTls(runtime)
        self._authentication = authentication_of(self, config, self._dispatcher, self._server)
        self.client_quotas = ClientQuotas(self, self._server)

    def _join_cluster(self, store: Store, boot_id: str) -> None:
        """The parts by which this broker is one of several."""
        runtime = self.runtime
        self.outward: Runtime
        """The world as whoever connects to other brokers sees it."""
        login = login_of(self.config)
        user = None if login is None else login.user
        self.insiders = Insiders(self.config, user, self.tls, self.guard, self.clock)
        outward = self.outward = self.tls.for_peers(self.config)
        self.peers: Peers = Peers(outward, f"broker {self.node_id}", self._address_of, login=login)
        silence_s_max = self.config["broker.session.timeout.ms"] / 1000
        self.channel = ControllerChannel(
            outward, self.node_id, lambda: self.active_controller, silence_s_max, login
        )
        self.channel.others = self._others
        self.exposed = BrokerMetrics(self)
        self._http = HttpServer(runtime, self.line, self.exposed.exposition, self._health)
        self.feed = ImageFeed(
            self.tasks, self.node_id, self.image, self.channel, lambda: self.active_controller
        )
        self.membership = Membership(
            store,
            runtime,
            self.node_id,
            on_elected=self._on_elected,
            on_session_end=self._on_session_end,
            on_joined_again=self._on_joined_again,
            on_controller=self._on_controller,
        )
        self.office = Office(
            store,
            runtime,
            self.node_id,
            self,
            lambda: self.image if self.image.cluster_id else None,
            began_again_s=lambda: self.membership.began_again_s,
            on_lost=self.membership.stand_again,
        )
        self.registrar = Registrar(
            self.tasks, self.node_id, self.image, self.channel, self.feed, self.membership, boot_id
        )
        self.registrar.on_registered = self._report_offline
        self.in_sync = InSyncSets(
            self.tasks, lambda wanted: self.channel.alter_partition(self.registrar.epoch, wanted)
        )
        self.replication.on_wish = self.in_sync.want
        self._producer_ids = ProducerIds(lambda: self.channel.allocate_producer_ids(self.registrar.epoch))

    def _on_elected(self) -> None:
        self.office.take()

    def _on_session_end(self) -> None:
        self.office.leave("the session has ended")

    def _on_joined_again(self) -> None:
        self.registrar.look()

    def _on_controller(self) -> None:
        self.channel.on_controller(self.membership.controller)

    # Life

    async def start(self) -> None:
        """Serve clients. On an error (a port in use, a locked folder) nothing is left running."""
        try:
            await self._start()
        except BaseException:
            await self._give_up()
            raise

    async def stop(self) -> None:
        """End cleanly: others lead what this broker has led, and the next start has nothing to recover."""
        if await self.registrar.shut_down(self.config["controlled.shutdown.enable"]):
            await self._server.send_away(FAREWELL_S)
        self._close()
        await self.membership.leave()
        await self.log_cleaner.stop()
        await self.log_manager.close(self.registrar.epoch)

    def crash(self) -> None:
        """End without a clean close, as a killed process would."""
        self.membership.abandon()
        self._close()
        self.log_manager.release()

    def _close(self) -> None:
        self.is_ready = False
        self._server.close()
        if self._authentication is not None:
            self._authentication.close()
        self._http.close()
        self.exposed.loop_delay.stop()
        self.registrar.close()
        self.office.leave("the broker ends")
        self.feed.close()
        self.channel.close()
        self.in_sync.close()
        if hasattr(self, "fetchers"):
            self.fetchers.close()
        self.peers.close()
        self.replication.close()
        if hasattr(self, "coordinators"):
            self.coordinators.close()

    def fail(self, error: BaseException) -> None:
        """A broken invariant: going on would put promises at risk."""
        if self.failure is None:
            log.critical("the broker stops: %s", error, exc_info=error)
            self.failure = error
            self.is_ready = False
            self._server.close()
            self.membership.abandon()
            self.registrar.close()
            self.office.leave("the broker has failed")
            self._failed.set()

    async def wait_failed(self) -> BaseException:
        await self._failed.wait()
        assert self.failure is not None
        return self.failure

    async def _give_up(self) -> None:
        self._close()
        await self.membership.leave()
        if hasattr(self, "log_cleaner"):
            await self.log_cleaner.stop()
        if hasattr(self, "log_manager"):
            self.log_manager.release()

    @property
    def bootstrap_servers(self) -> str:
        """The addresses that clients can start from."""
        return addresses.bootstrap_servers(self.config, self.listeners)

    # Starting

    async def _start(self) -> None:
        await self.tasks.in_thread(check_not_in_use, self.runtime.disk, self.config.log_dirs)
        await self.tls.start(self.config)
        self._listen()
        await self.membership.join(self._reached_at(self.config.inter_broker_listener.name))
        await self.feed.begin()
        if self.guard is not None:
            await self.guard.follow(None, self.image, self.tasks)
        self._load_dynamic_config()
        await self.client_quotas.follow(None)
        self.coordinators = Coordinators(self)
        previous_epoch = await self._open_logs()
        lost = await self.replicas.open_all()
        self.on_opened()
        self._start_cleaner()
        self.feed.start(self._on_change, self.fail)
        listeners = {name: self._advertised(name) for name in self.listeners}
        await self.registrar.begin(
            listeners,
            self.config["broker.rack"],
            tuple(folder.directory_id for folder in self.log_manager.folders if folder.directory_id),
            previous_epoch=previous_epoch,
            lost=lost,
        )
        await self.replicas.remove_strays()
        await self.replicas.begin_serving()
        await self.registrar.unfence()
        self.tasks.spawn(self._tick(), name="in-sync sets in time")
        self.tasks.spawn(self.tls.look_on(), name="certificates in time")
        self._dispatcher.serve_clients()
        self.coordinators.on_serving()
        self.is_ready = True

    async def _open_logs(self) -> int:
        """Open the logs in the data folders; the broker epoch in which all were closed cleanly."""
        config = self.config
        last_epoch = await self.tasks.in_thread(self._last_clean_epoch)  # opening takes the marks away
        known_folders = KnownFolders(self._store, self.node_id)
        await known_folders.load()
        self.log_manager = self.replicas.log_manager = LogManager(
            self.runtime,
            config.log_dirs,
            Owner(self.image.cluster_id, self.node_id, self._process_id, known_folders.ids),
            LogHost(
                config_of=self._topic_config,
                high_watermark_of=self.replicas.high_watermark_of,
                topic_id_of=lambda name: topic.topic_id if (topic := self.image.topics.get(name)) else None,
                on_failure=self.replicas.on_log_failure,
                on_all_failed=self._on_all_folders_failed,
                on_made=self.replicas.on_log_made,
            ),
            lambda: LogSettings.of(self.config),
        )
        await self.log_manager.open()
        await known_folders.save(self.log_manager.folders)
        self.fetchers = self.replicas.fetchers = Fetchers(
            self.runtime,
            self.peers,
            self.node_id,
            lambda: self.registrar.epoch,
            self.log_manager.write_checkpoints_of,
            fetcher_settings(config),
            self.replication.follower_throttle,
        )
        return last_epoch

    def _last_clean_epoch(self) -> int:
        """NO_EPOCH where a folder was not closed cleanly, or they do not agree."""
        disk = self.runtime.disk
        paths = [f"{folder}/{names.CLEAN_SHUTDOWN}" for folder in self.config.log_dirs]
        if not all(disk.exists(path) for path in paths):
            return NO_EPOCH
        epochs = {epoch_in(disk.read(path)) for path in paths}
        return epochs.pop() if len(epochs) == 1 else NO_EPOCH

    def _start_cleaner(self) -> None:
        self.log_cleaner = LogCleaner(
            self.runtime,
            self.log_manager,
            lambda: CleanerSettings.of(self.config),
            stable_offset_of=self.replicas.stable_offset_of,
        )
        if self.config["log.cleaner.enable"]:
            self.log_cleaner.start()

    async def _tick(self) -> None:
        """Followers that do not keep up leave the in-sync sets; fetch sessions of readers that are gone are dropped."""
        interval_s = self.replication.replica_lag_max_s / TICKS_PER_LAG
        while True:
            await self.tasks.sleep(interval_s)
            self.fetch_sessions.drop_unused(self.clock.monotonic())
            for number, partition in enumerate(list(self.partitions.values()), 1):
                partition.tick()
                if number % PARTITIONS_PER_TICK_TURN == 0:
                    await self.tasks.sleep(0)

    # Addresses

    def _listen(self) -> None:
        own = self.config.inter_broker_listener.name
        self.listeners |= self._server.listen_on(self.config.listeners, own, self.tls.serving)
        if self.config["moldau.http.port"] >= 0:
            host, port = self.config["moldau.http.host"], self.config["moldau.http.port"]
            self.http = self._http.listen(host, port, self.tls.of_http)
            self.exposed.loop_delay.start()

    def _advertised(self, listener: str) -> Address:
        return addresses.advertised(self.config, listener, self.listeners[listener], self.host_name)

    def _reached_at(self, listener: str) -> Address:
        host, port = self._advertised(listener)
        return host or self.host_name, port

    def _address_of(self, broker_id: int) -> Address | None:
        """Where this broker reaches another."""
        broker = self.image.registered.get(broker_id)
        if broker is None:
            return None
        address = broker.listeners.get(self.config.inter_broker_listener.name)
        if address is None:
            address = next((found for found in broker.listeners.values() if found is not None), None)
        return None if address is None else (address[0] or self.host_name, address[1])

    def _others(self) -> list[Location]:
        brokers = self.image.registered.values()
        places = [(broker, self._address_of(broker.id)) for broker in brokers if broker.id != self.node_id]
        return [Location(broker.id, broker.incarnation, *place) for broker, place in places if place]

    def _is_eligible(self, broker_id: int, broker_epoch: int) -> bool:
        broker = self.image.brokers.get(broker_id)
        return broker is not None and broker.is_active and broker.epoch == broker_epoch

    # The cluster

    @property
    def active_controller(self) -> Controller | None:
        """The controller, where it is on this broker."""
        return self.office.controller

    @property
    def controller(self) -> Controller:
        """For what only the controller's broker does; KafkaError elsewhere."""
        controller = self.office.controller
        if controller is None:
            raise KafkaError(ErrorCode.not_controller)
        return controller

    async def next_producer_id(self) -> int:
        """KafkaError where none can be had now; as Kafka's, one that every client tries again after."""
        try:
            return await self._producer_ids.next()
        except KafkaError as error:
            log.error("no producer id: %s", error)
            raise KafkaError(ErrorCode.coordinator_load_in_progress, str(error)) from error

    async def _on_change(self, records: Sequence[Record] | None, changes: Difference) -> None:
        """The image has changed: act on it."""
        if self.guard is not None:
            await self.guard.follow(records, self.image, self.tasks)
        await self.client_quotas.follow(records)
        if records is None or any(map(_is_broker_config, records)):
            self._load_dynamic_config()
            for topic in self.image.topics.values():
                self.replicas.configure(topic)
        await self.replicas.act_on(changes)
        for name in changes.created:
            self.coordinators.on_topic_changed(name)
        for name, _topic_id in changes.deleted:
            self.coordinators.on_topic_deleted(name)
        if records is None or any(isinstance(record, BROKER_RECORDS) for record in records):
            await self.fetchers.on_brokers_changed()
            self.fetch_sessions.on_brokers_changed()
            self.coordinators.on_brokers_changed()
            self.registrar.look()

    def _on_role(self, partition: Partition) -> None:
        self.coordinators.on_partition(partition)

    def partition(self, topic: TopicRef, index: int) -> Partition:
        """By the topic's name or the bytes of its id; KafkaError where this broker does not hold it."""
        return self.replicas.partition(topic, index)

    # Settings

    def _config_of(self, topic: Topic) -> TopicConfig:
        return self._topic_configs.of(self.config, topic.name, topic.configs)

    def _topic_config(self, name: str) -> TopicConfig:
        """A log whose topic is not in the cluster is left alone: it is neither shortened nor compacted."""
        topic = self.image.topics.get(name)
        if topic is not None:
            return self._config_of(topic)
        return replace(
            self.config.topic_defaults, cleanup_policy=("delete",), retention_ms=-1, retention_bytes=-1
        )

    def _load_dynamic_config(self) -> None:
        configs = self.image.broker_configs
        self.config = self.config.with_dynamic(configs.get("", {}), configs.get(str(self.node_id), {}))
        self.tls.configure(self.config)
        self.fetch_bytes_max = self.config["fetch.max.bytes"]
        self._server.set_limits(self.config["max.connections"], self.config["max.connections.per.ip"])
        self.client_quotas.configure(self.config)
        self.replication.leader_throttle.set_limit(self.config["leader.replication.throttled.rate"])
        self.replication.follower_throttle.set_limit(self.config["follower.replication.throttled.rate"])

    # Disks that fail

    def _on_all_folders_failed(self, error: OSError) -> None:
        paths = ", ".join(folder.path for folder in self.log_manager.folders)
        self.fail(AllFoldersFailed(f"all data folders have failed ({paths}): {reason(error)}"))

    def _on_disk(self, partition: Partition) -> None:
        """Its disk has failed, or there is room after all: the controller has it led elsewhere, or here again."""
        self.tasks.spawn(self._report(partition), name=f"report {partition.topic_partition}")

    async def _report_offline(self) -> None:
        """The controller forgets with each registration which logs are not to be had: tell it before it lets this
        broker lead."""
        for place in sorted(self.offline):
            try:
                await self.channel.report_replica(self.registrar.epoch, place, is_offline=True)
            except KafkaError:
                self._on_disk(self.partitions[place])

    async def _report(self, partition: Partition) -> None:
        place = partition.topic_partition
        while self.partitions.get(place) is partition and self.registrar.epoch >= 0 and self.failure is None:
            is_offline = place in self.offline
            try:
                await self.channel.report_replica(self.registrar.epoch, place, is_offline=is_offline)
            except KafkaError as error:
                log.info("the state of %s could not be reported: %s", place, error)
                await self.tasks.sleep(REPORT_PAUSE_S)
                continue
            if is_offline == (place in self.offline):
                return

    def note_read_error(self, partition: Partition, error: OSError) -> None:
        """Part of a log cannot be read. Who asked for it is told; the rest of the disk is served."""
        self.metrics.read_errors += 1
        if self._seldom(partition.topic_partition):
            log.error("%s cannot be read: %s", partition.topic_partition, error)

    # What it says of itself

    @property
    def connection_count(self) -> int:
        return len(self._server.connections)

    def _health(self) -> tuple[bool, dict[str, Any]]:
        """Whether this broker itself is well, and what is wrong with it or with its share of the cluster. That others
        are missing is no reason to take it out of service as well."""
        offline = sorted(str(place) for place in self.offline)
        folders = data_folders.health(self.log_manager.folders) if self.is_ready else []
        is_well = self.is_ready and not offline and all(folder["state"] == "ok" for folder in folders)
        standing = standing_health(self)
        is_ok = is_well and not standing["problems"]
        return is_well, {
            "status": "ok" if is_ok else "starting" if not self.is_ready else "degraded",
            "node_id": self.node_id,
            "cluster_id": self.image.cluster_id,
            "partitions": len(self.partitions),
            "offline_partitions": offline,
            "data_folders": folders,
            **standing,
        }


BROKER_RECORDS = (BrokerRegistered, BrokerChanged, BrokerUnregistered)


def _is_broker_config(record: Record) -> bool:
    return isinstance(record, ConfigChanged) and record.resource.type is ResourceType.BROKER
