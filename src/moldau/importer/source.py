"""The data folders of a Kafka node that is to be taken over: whether they can be, and what is in them.

`survey` only reads. It refuses, with a sentence for people (`ImportRefused`), what it cannot take over whole: folders
in use or not stopped cleanly, folders of several nodes, metadata that is damaged or of an unknown version, logs that
are missing, kept elsewhere (tiered storage) or in a message format older than v2. Of the logs it checks what tells
a complete copy from an incomplete one: every segment's first batch, and that the last one ends where Kafka's
checkpoint says. `moldau log verify` looks at every byte.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from moldau.base.ids import TopicPartition
from moldau.importer.kraft_cluster import KafkaCluster, KafkaTopic
from moldau.importer.kraft_log import FOLDER as METADATA_FOLDER
from moldau.importer.kraft_log import BadMetadata, WrittenByNewer, read_metadata
from moldau.importer.refusal import ImportRefused
from moldau.importer.source_log import SourceLog, examine
from moldau.log import names
from moldau.log.checkpoints import read_properties
from moldau.log.inspect.files import METADATA_LOG, FolderState, partitions_in
from moldau.runtime.ports import Disk

METADATA_VERSIONS = range(7, 31)
"""From 3.3-IV3, the oldest that Kafka 4 runs with, to 4.3-IV0."""
_META_VERSION = "1"
_NO_DIRECTORY = UUID(int=0)


@dataclass(frozen=True, slots=True)
class SourceFolder:
    """One of Kafka's `log.dirs`, or its `metadata.log.dir`."""

    path: str
    cluster_id: str
    node_id: int
    state: FolderState
    partitions: dict[TopicPartition, str]
    """The logs of topics, with their folders."""
    metadata: str | None
    """The folder of the metadata log."""


@dataclass(frozen=True, slots=True)
class Source:
    folders: tuple[SourceFolder, ...]
    cluster_id: str
    node_id: int
    cluster: KafkaCluster
    logs: dict[TopicPartition, SourceLog]
    """One for each partition, but for those that Kafka had not made yet."""
    strays: tuple[str, ...]
    """Folders of logs that belong to no topic."""


def survey(disk: Disk, paths: Sequence[str]) -> Source:
    folders = tuple(_folder(disk, path) for path in paths)
    for folder in folders[1:]:
        _check_same_node(folders[0], folder)
    cluster = _read_cluster(disk, folders)
    source = Source(folders, folders[0].cluster_id, folders[0].node_id, cluster, {}, ())
    _check_single_node(source)
    found = _found_logs(folders)
    for topic in cluster.topics:
        source.logs.update(_topic_logs(disk, source, topic, found))
    taken = {log.folder for log in source.logs.values()}
    strays = tuple(path for _, path in found.values() if path not in taken)
    return Source(folders, source.cluster_id, source.node_id, cluster, source.logs, strays)


def _folder(disk: Disk, path: str) -> SourceFolder:
    meta = f"{path}/{names.META_PROPERTIES}"
    if not disk.exists(meta):
        raise ImportRefused(
            f"{path} is not a data folder of Apache Kafka: it has no {names.META_PROPERTIES}.",
            "Name a folder of Kafka's log.dirs.",
        )
    properties = read_properties(disk.read(meta))
    cluster_id, node_id = properties.get("cluster.id", ""), properties.get("node.id", "")
    if properties.get("version") != _META_VERSION or not cluster_id or not node_id.isdecimal():
        raise ImportRefused(
            f"{meta} is not one of Apache Kafka 4: it has version {properties.get('version')},"
            f" cluster.id {cluster_id or 'missing'} and node.id {node_id or 'missing'}.",
            "A folder of an older Kafka with ZooKeeper must be migrated by Kafka first.",
        )
    state = FolderState.of(disk, path)
    partitions = dict(partitions_in(disk, path))
    metadata = partitions.pop(METADATA_LOG, None)
    if state.running:
        raise ImportRefused(f"{path} is in use by a running broker.", "Stop it, then import.")
    if partitions and not state.clean:
        raise ImportRefused(
            f"Kafka was not stopped cleanly on {path}: there is no {names.CLEAN_SHUTDOWN}.",
            "Start Kafka on it once more and stop it with SIGTERM (kafka-server-stop.sh), then import.",
        )
    return SourceFolder(path, cluster_id, int(node_id), state, partitions, metadata)


def _check_same_node(first: SourceFolder, other: SourceFolder) -> None:
    for what, one, two in (
        ("cluster.id", first.cluster_id, other.cluster_id),
        ("node.id", first.node_id, other.node_id),
    ):
        if one != two:
            raise ImportRefused(
                f"{first.path} and {other.path} are not of one node: their {what} is {one} and {two}.",
                "Name the folders of one Kafka node's log.dirs.",
            )


def _read_cluster(disk: Disk, folders: Sequence[SourceFolder]) -> KafkaCluster:
    metadata = [folder.metadata for folder in folders if folder.metadata is not None]
    if len(metadata) != 1:
        named = ", ".join(metadata) or "none of the folders"
        raise ImportRefused(
            f"Kafka's metadata must be in one of the folders ({METADATA_FOLDER}), and it is in {named}.",
            "Name all folders of Kafka's log.dirs, and its metadata.log.dir where it has one.",
        )
    try:
        cluster = KafkaCluster.of(read_metadata(disk, metadata[0]))
    except WrittenByNewer as unknown:
        raise ImportRefused(
            f"Kafka's metadata is of a newer version than 4.3: {unknown}.", "Use a newer Moldau."
        ) from unknown
    except BadMetadata as damage:
        raise ImportRefused(
            f"Kafka's metadata log is damaged: {damage}.",
            "Restore the folder from a copy; without its metadata the topics are not known.",
        ) from damage
    version = cluster.metadata_version
    if version is None:
        raise ImportRefused(
            f"{folders[0].path} was formatted, but Kafka never ran on it.", "There is nothing to import."
        )
    if version not in METADATA_VERSIONS:
        least, most = METADATA_VERSIONS[0], METADATA_VERSIONS[-1]
        raise ImportRefused(
            f"Kafka's metadata.version is {version}, and {least} to {most} (Kafka 4.0 to 4.3) are known.",
            "Use a newer Moldau." if version > most else "Upgrade Kafka's metadata.version first.",
        )
    return cluster


def _check_single_node(source: Source) -> None:
    cluster, node_id = source.cluster, source.node_id
    if cluster.brokers == {node_id} and cluster.voter_count <= 1:
        return
    if node_id not in cluster.brokers:
        raise ImportRefused(
            f"Node {node_id} is a controller without a broker: it holds no records.",
            "Name the folders of the broker's log.dirs.",
        )
    if len(cluster.brokers) > 1:
        others = f"brokers {', '.join(map(str, sorted(cluster.brokers)))}"
    else:
        others = f"{cluster.voter_count} controllers"
    raise ImportRefused(
        f"This Kafka cluster has several nodes ({others}); only a single node can be imported.",
        "Copy its topics to Moldau with a mirroring tool instead, or shrink it to one node first.",
    )


def _found_logs(folders: Sequence[SourceFolder]) -> dict[TopicPartition, tuple[SourceFolder, str]]:
    found: dict[TopicPartition, tuple[SourceFolder, str]] = {}
    for folder in folders:
        for partition, path in folder.partitions.items():
            if partition in found:
                raise ImportRefused(
                    f"{partition} is in two folders: {found[partition][1]} and {path}.",
                    "Start Kafka once more and stop it cleanly; it keeps one of them.",
                )
            found[partition] = (folder, path)
    return found


def _topic_logs(
    disk: Disk, source: Source, topic: KafkaTopic, found: dict[TopicPartition, tuple[SourceFolder, str]]
) -> dict[TopicPartition, SourceLog]:
    if sorted(topic.partitions) != list(range(len(topic.partitions))) or not topic.partitions:
        raise ImportRefused(
            f"Kafka's metadata log is damaged: topic {topic.name} has partitions {sorted(topic.partitions)}.",
            "Restore the folder from a copy.",
        )
    if source.cluster.topic_configs(topic.name).get("remote.storage.enable") == "true":
        raise ImportRefused(
            f"Topic {topic.name} has records in tiered storage, which cannot be imported.",
            "Copy it into a topic without tiered storage with Kafka's own tools, and delete it, then import.",
        )
    logs = {}
    for number, state in sorted(topic.partitions.items()):
        partition = TopicPartition(topic.name, number)
        if state.replicas != (source.node_id,):
            raise ImportRefused(
                f"{partition} is on the nodes {', '.join(map(str, state.replicas))}, not on {source.node_id} alone.",
                "Only a cluster of a single node can be imported.",
            )
        if partition in found:
            folder, path = found[partition]
            logs[partition] = examine(disk, partition, topic.topic_id, path, folder.state.standing(partition))
        elif any(directory != _NO_DIRECTORY for directory in state.directories) or not state.directories:
            raise ImportRefused(
                f"{partition} is in none of the folders named.", "Name every folder of Kafka's log.dirs."
            )
    return logs
