"""Capture the data folders of a small, cleanly stopped Apache Kafka, and what its own tool reads in its metadata.

    PYTHONPATH=tests python -m golden.kraft

`kraft/node.zip` has the two `log.dirs` (a and b) whole; `kraft/log.jsonl` and `kraft/snapshot.jsonl` have the
records of the metadata log and of its newest snapshot as Kafka's DumpLogSegments prints them: an answer that was not
made here.
"""

from __future__ import annotations

import json
import re
import tempfile
import zipfile
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)

from bench.apache_kafka import KafkaServer, distribution

FOLDER = Path(__file__).parent / "kraft"
NODE = FOLDER / "node.zip"
LOG = FOLDER / "log.jsonl"
SNAPSHOT = FOLDER / "snapshot.jsonl"
SETTINGS = {
    "node.id": 7,
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
    "metadata.log.max.record.bytes.between.snapshots": 4000,
    "metadata.max.idle.interval.ms": 2000,
    "offsets.topic.num.partitions": 1,
    "transaction.state.log.num.partitions": 1,
}


def main() -> None:
    with tempfile.TemporaryDirectory() as place:
        data = Path(place) / "data"
        server = KafkaServer(Path(place), {**SETTINGS, "log.dirs": f"{data}/a,{data}/b"})
        with server:
            make_topics(server.bootstrap_servers)
            configure(server.bootstrap_servers)
            write_records(server.bootstrap_servers)
        FOLDER.mkdir(exist_ok=True)
        pack(data)
        metadata = data / "a" / "__cluster_metadata-0"
        LOG.write_text(dumped(metadata / f"{0:020d}.log"))
        SNAPSHOT.write_text(dumped(max(metadata.glob("*.checkpoint"))))


def make_topics(address: str) -> None:
    admin = AdminClient({"bootstrap.servers": address})

    def create(name: str, partitions: int, **configs: str) -> None:
        settings = {key.replace("_", "."): value for key, value in configs.items()}
        admin.create_topics([NewTopic(name, partitions, 1, config=settings)])[name].result()

    def delete(name: str) -> None:
        admin.delete_topics([name])[name].result()

    create("orders", 2, retention_ms="-1", min_insync_replicas="1")
    create("gone", 2, cleanup_policy="compact")
    create("reborn", 3, cleanup_policy="compact")
    create("grown", 1)
    create("payments", 1)
    delete("gone")
    delete("reborn")
    create("reborn", 1, retention_ms="3600000")
    admin.create_partitions([NewPartitions("grown", 3)])["grown"].result()


def configure(address: str) -> None:
    admin = AdminClient({"bootstrap.servers": address})

    def alter(type_: ResourceType, name: str, key: str, value: str | None) -> None:
        operation = AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET
        entry = ConfigEntry(key, value, incremental_operation=operation)
        for done in admin.incremental_alter_configs(
            [ConfigResource(type_, name, incremental_configs=[entry])]
        ).values():
            done.result()

    alter(ResourceType.TOPIC, "grown", "retention.bytes", "1000000")
    alter(ResourceType.TOPIC, "grown", "segment.ms", "60000")
    alter(ResourceType.TOPIC, "grown", "segment.ms", None)
    alter(ResourceType.BROKER, "7", "log.cleaner.threads", "2")

    def acl(principal: str) -> AclBinding:
        return AclBinding(
            ResourceType.TOPIC,
            "orders",
            ResourcePatternType.LITERAL,
            principal,
            "*",
            AclOperation.READ,
            AclPermissionType.ALLOW,
        )

    for done in admin.create_acls([acl("User:al"), acl("User:bo")]).values():
        done.result()
    gone = AclBindingFilter(
        ResourceType.TOPIC,
        "orders",
        ResourcePatternType.LITERAL,
        "User:bo",
        "*",
        AclOperation.READ,
        AclPermissionType.ALLOW,
    )
    for deleted in admin.delete_acls([gone]).values():
        deleted.result()
    mechanism = ScramMechanism.SCRAM_SHA_256
    made = UserScramCredentialUpsertion("al", ScramCredentialInfo(mechanism, 4096), b"pw", b"salt")
    for done in admin.alter_user_scram_credentials([made]).values():
        done.result()
    other = UserScramCredentialUpsertion("bo", ScramCredentialInfo(mechanism, 4096), b"pw", b"salt")
    for change in (other, UserScramCredentialDeletion("bo", mechanism)):
        for done in admin.alter_user_scram_credentials([change]).values():
            done.result()
    for entity, name, added in (
        ("clients", "c1", "producer_byte_rate=1000"),
        ("groups", "g1", "consumer.session.timeout.ms=50000"),
        ("client-metrics", "m1", "interval.ms=1000"),
    ):
        distribution().run(
            "configs",
            *("--bootstrap-server", address, "--entity-type", entity, "--entity-name", name),
            *("--alter", "--add-config", added),
        )


def write_records(address: str) -> None:
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        producer = Producer(
            {"bootstrap.servers": address, "compression.type": codec, "enable.idempotence": True}
        )
        for number in range(5):
            producer.produce(
                "orders", f"{codec} {number} ".encode() * 5, key=b"k", partition=0, headers=[("h", b"1")]
            )
        producer.flush()
    producer = Producer({"bootstrap.servers": address, "transactional.id": "t"})
    producer.init_transactions()
    for end in (producer.commit_transaction, producer.abort_transaction):
        producer.begin_transaction()
        producer.produce("payments", end.__name__)
        producer.flush()
        end()
    consumer = Consumer({"bootstrap.servers": address, "group.id": "g"})
    consumer.commit(offsets=[TopicPartition("orders", 0, 12)], asynchronous=False)
    consumer.close()


def pack(data: Path) -> None:
    with zipfile.ZipFile(NODE, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(data.rglob("*")):
            if path.is_file() and not any(part.endswith("-delete") for part in path.parts):
                archive.write(path, path.relative_to(data))


def unpack(folder: Path) -> Path:
    """The node's folders, a and b, in a folder."""
    with zipfile.ZipFile(NODE) as archive:
        archive.extractall(folder)
    return folder


def dumped(path: Path) -> str:
    printed = distribution().run("dump-log", "--cluster-metadata-decoder", "--files", str(path)).stdout
    lines = []
    for offset, payload in re.findall(r"^\| offset: (\d+) .* payload: (\{.*\})$", printed, re.MULTILINE):
        lines.append(json.dumps({"offset": int(offset), **json.loads(payload)}, separators=(",", ":")))
    return "".join(line + "\n" for line in lines)


if __name__ == "__main__":
    main()
