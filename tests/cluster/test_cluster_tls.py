"""Three brokers that speak TLS to each other, each with a certificate of its own, and to their clients."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from bench.server import HOST
from certificates import CLIENT, Authority, Issued
from cluster.several import PATIENCE_S, Cluster
from cluster.support import wait_until
from moldau.runtime.real.free_ports import free_port

pytestmark = pytest.mark.slow

TOPIC = "promises"


class Secured(Cluster):
    """Clients come in by OUTSIDE, brokers by INSIDE with a certificate; PLAINTEXT is for what the test asks."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, f"sqlite:{folder / 'cluster.sqlite'}", 3, {})
        self.authority = Authority()
        (folder / "ca.pem").write_bytes(self.authority.pem)
        self.outside: dict[int, int] = {}
        for broker_id, broker in self.brokers.items():
            self.certify(broker_id)
            ports = {"PLAINTEXT": broker.port, "OUTSIDE": free_port(), "INSIDE": free_port()}
            self.outside[broker_id] = ports["OUTSIDE"]
            broker.settings |= {
                "listeners": ",".join(f"{name}://{HOST}:{port}" for name, port in ports.items()),
                "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,OUTSIDE:SSL,INSIDE:SSL",
                "inter.broker.listener.name": "INSIDE",
                "ssl.keystore.location": self.key_store(broker_id),
                "ssl.keystore.type": "PEM",
                "ssl.truststore.location": folder / "ca.pem",
                "ssl.truststore.type": "PEM",
                "listener.name.inside.ssl.client.auth": "required",
            }

    def key_store(self, broker_id: int) -> Path:
        return self.folder / f"broker-{broker_id}.pem"

    def certify(self, broker_id: int, issued: Issued | None = None) -> None:
        issued = issued or self.authority.issue(f"CN=broker-{broker_id}")
        self.key_store(broker_id).write_bytes(issued.pem)

    def client(self, **more: Any) -> dict[str, Any]:
        return {
            "bootstrap.servers": ",".join(f"{HOST}:{port}" for port in self.outside.values()),
            "security.protocol": "ssl",
            "ssl.ca.location": str(self.folder / "ca.pem"),
            "log_level": 0,
            **more,
        }


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Secured]:
    cluster = Secured(tmp_path)
    try:
        yield cluster
    finally:
        cluster.end()


class Writing:
    """A producer that goes on until it is stopped, and knows what was acknowledged."""

    def __init__(self, cluster: Secured) -> None:
        self.acknowledged: list[int] = []
        self.failed: list[str] = []
        self._stop = Event()
        self._producer = Producer(cluster.client(**{"enable.idempotence": True, "linger.ms": 5}))
        self._thread = Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        number = 0
        while not self._stop.is_set():
            self._producer.produce(TOPIC, str(number).encode(), on_delivery=self._note(number))
            self._producer.poll(0)
            number += 1
            time.sleep(0.002)
        self._producer.flush(PATIENCE_S)

    def _note(self, number: int) -> Any:
        def note(error: Any, message: Any) -> None:
            if error is None:
                self.acknowledged.append(number)
            else:
                self.failed.append(str(error))

        return note

    def wait_for_more(self, count: int = 200) -> None:
        target = len(self.acknowledged) + count
        wait_until(lambda: len(self.acknowledged) >= target, PATIENCE_S, "more acknowledged messages")

    def end(self) -> None:
        self._stop.set()
        self._thread.join()


def everything(cluster: Secured, count: int) -> list[int]:
    consumer = Consumer(cluster.client(**{"group.id": "all", "isolation.level": "read_committed"}))
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    found: list[int] = []
    while len(found) < count:
        message = consumer.poll(PATIENCE_S)
        assert message is not None
        assert message.error() is None
        found.append(int(message.value()))
    consumer.close()
    return found


def test_what_was_acknowledged_outlives_a_kill_and_a_change_of_all_certificates(cluster: Secured) -> None:
    cluster.start()
    cluster.create(TOPIC, 1, 3, min_insync_replicas=2)
    writing = Writing(cluster)
    try:
        writing.wait_for_more()
        leader = cluster.leader(TOPIC)
        cluster.kill(leader)
        writing.wait_for_more()
        cluster.start(leader)
        cluster.wait_in_sync([TOPIC])
        for broker_id in cluster.ids:
            cluster.certify(broker_id)
        for broker in cluster.brokers.values():
            wait_until(lambda b=broker: "has new certificates" in b.said(), PATIENCE_S, "new certificates")  # type: ignore[misc]
        other = cluster.leader(TOPIC)
        cluster.kill(other)
        writing.wait_for_more()
        cluster.start(other)
        cluster.wait_in_sync([TOPIC])
        writing.wait_for_more()
    finally:
        writing.end()
    assert writing.failed == []
    assert everything(cluster, len(writing.acknowledged)) == writing.acknowledged
    lines = [line for broker in cluster.brokers.values() for line in broker.said().splitlines()]
    assert not [line for line in lines if "was not let in" in line]


def test_a_broker_with_a_certificate_of_another_authority_gets_in_nowhere(cluster: Secured) -> None:
    cluster.start()
    cluster.create(TOPIC, 1, 3)
    follower = next(one for one in cluster.ids if one not in (cluster.leader(TOPIC), cluster.controller()))
    cluster.stop(follower)
    cluster.certify(follower, Authority("Another").issue(f"CN=broker-{follower}"))
    cluster.launch(follower)
    others = [broker for broker_id, broker in cluster.brokers.items() if broker_id != follower]
    wait_until(
        lambda: any("was not let in by the listener INSIDE" in broker.said() for broker in others),
        PATIENCE_S,
        "it to be refused",
    )
    time.sleep(2)
    assert all(follower not in view.isr for view in cluster.views(TOPIC, others[0].id))


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"hosts": ("elsewhere.example",)}, "IP address mismatch"),
        ({"usages": (CLIENT,)}, "unsuitable certificate purpose"),
    ],
    ids=["another host", "for clients only"],
)
def test_nobody_follows_a_broker_whose_certificate_is_not_good(
    cluster: Secured, more: dict[str, Any], words: str
) -> None:
    cluster.start()
    flawed = next(one for one in cluster.ids if one != cluster.controller())
    cluster.stop(flawed)
    cluster.certify(flawed, cluster.authority.issue(f"CN=broker-{flawed}", **more))
    cluster.start(flawed)
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    new = NewTopic(
        TOPIC, num_partitions=1, replica_assignment=[[flawed, *(one for one in cluster.ids if one != flawed)]]
    )
    admin.create_topics([new])[TOPIC].result(PATIENCE_S)
    others = [broker for broker_id, broker in cluster.brokers.items() if broker_id != flawed]
    wait_until(lambda: all(words in broker.said() for broker in others), PATIENCE_S, "a refusal")
    controller = cluster.controller()
    wait_until(
        lambda: [view.isr for view in cluster.views(TOPIC, controller)] == [(flawed,)], PATIENCE_S, "it alone"
    )
