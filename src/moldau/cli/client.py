"""The way to a cluster: clients of confluent-kafka that say nothing on the terminal, and failures as
sentences.

A `Connection` first opens a plain TCP connection to the bootstrap address: the operating system then says at
once what is wrong (unknown host, nobody listening), where librdkafka would only time out. librdkafka's own
log goes nowhere unless MOLDAU_DEBUG=1; the last complaint of a broker connection is kept and becomes part of
the sentence.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, TypeVar

from moldau.cli.errors import CliError, Exit, debugging, did_you_mean, not_found, usage
from moldau.cli.options import Target

if TYPE_CHECKING:
    from confluent_kafka import Consumer, KafkaError, Producer
    from confluent_kafka.admin import AdminClient, ClusterMetadata, TopicMetadata

T = TypeVar("T")
DEFAULT_PORT = 9092
REACH_TIMEOUT_S = 5.0
FIRST_LOOK_S = 1.5
FUTURE_GRACE_S = 5.0  # librdkafka reports a time-out itself; this only guards against a call that never ends


class Connection:
    """A reachable cluster and the clients made for it."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.complaint = ""
        self._family = reach(target)
        self._admin: AdminClient | None = None

    def settings(self, **properties: Any) -> dict[str, Any]:
        quiet = logging.getLogger("moldau.client")
        if not debugging():
            quiet.addHandler(logging.NullHandler())
            quiet.propagate = False
        settings: dict[str, Any] = {
            "bootstrap.servers": self.target.bootstrap,
            "client.id": "moldau-cli",
            "error_cb": self._on_error,
            "socket.timeout.ms": int(self.target.timeout_s * 1000),
            "socket.connection.setup.timeout.ms": max(1000, int(self.target.timeout_s * 1000)),
            "broker.address.family": self._family,
            "log_level": 7 if debugging() else 0,
            "logger": quiet,
        }
        return (
            settings
            | {key.replace("_", "."): value for key, value in properties.items()}
            | self.target.properties
        )

    def _on_error(self, error: KafkaError) -> None:
        if not self.complaint or error.name() != "_ALL_BROKERS_DOWN":  # what the reason was came before
            self.complaint = error.str()

    @property
    def admin(self) -> AdminClient:
        if self._admin is None:
            from confluent_kafka.admin import AdminClient

            self._admin = self._make(AdminClient, self.settings())
        return self._admin

    def producer(self, **properties: Any) -> Producer:
        from confluent_kafka import Producer

        return self._make(Producer, self.settings(**properties))

    def consumer(self, **properties: Any) -> Consumer:
        """A consumer to be used with `assign`: it joins no group and commits nothing."""
        from confluent_kafka import Consumer

        defaults = {
            "group_id": "moldau-cli",  # librdkafka insists on a name; it is never used
            "enable_auto_commit": False,
            "enable_auto_offset_store": False,
            "enable_partition_eof": True,
            "auto_offset_reset": "earliest",
            # The defaults wait up to a second when the local queue is full, and fill it in small steps.
            "fetch_queue_backoff_ms": 5,
            "fetch_message_max_bytes": 4 << 20,
            "queued_max_messages_kbytes": 64 << 10,
        }
        return self._make(Consumer, self.settings(**(defaults | properties)))

    def _make(self, kind: Callable[[dict[str, Any]], T], settings: dict[str, Any]) -> T:
        from confluent_kafka import KafkaException

        try:
            return kind(settings)
        except KafkaException as error:
            raise usage(
                f"The client refuses a property: {error.args[0].str()}.",
                "Check the -X options; the names are librdkafka's.",
            ) from error

    def metadata(self, topic: str | None = None) -> ClusterMetadata:
        from confluent_kafka import KafkaException

        first_s = min(self.target.timeout_s, FIRST_LOOK_S)
        try:
            return self.admin.list_topics(topic, timeout=first_s)
        except KafkaException as error:
            failure = error
        if not self._is_refused() and first_s < self.target.timeout_s:
            try:
                return self.admin.list_topics(topic, timeout=self.target.timeout_s - first_s)
            except KafkaException as error:
                failure = error
                self._is_refused()
        raise self.explain(failure.args[0]) from failure

    def _is_refused(self) -> bool:
        """Whether the brokers do not let this client in: it would be tried until the time is over."""
        from moldau.cli.refused import advice_on

        self.admin.poll(0)  # brings what went wrong meanwhile
        return bool(advice_on(self.complaint, self.target))

    def answers(self) -> bool:
        """Whether a broker answers at all, asked without patience."""
        from confluent_kafka import KafkaException

        try:
            self.admin.list_topics(timeout=min(self.target.timeout_s, REACH_TIMEOUT_S))
        except KafkaException:
            return False
        return True

    def topic(self, name: str) -> TopicMetadata:
        """The metadata of one topic, which must exist. It is not created by asking."""
        found = self.metadata().topics.get(name)
        if found is None:
            raise self.no_topic(name)
        return found

    def no_topic(self, name: str) -> CliError:
        try:
            known = list(self.metadata().topics)
        except CliError:
            known = []
        hint = (
            did_you_mean(name, known)
            or f"`moldau topic list` shows what is there, `moldau topic create {name}` makes it."
        )
        return not_found(f"There is no topic '{name}' on {self.target.bootstrap}.", hint)

    def result(self, future: Future[T], *, subject: str = "") -> T:
        """The result of one admin request, or its failure as a sentence about `subject`."""
        from confluent_kafka import KafkaException

        try:
            return future.result(timeout=self.target.timeout_s + FUTURE_GRACE_S)
        except KafkaException as error:
            raise self.explain(error.args[0], subject=subject) from error
        except TimeoutError as error:
            raise self.silent() from error

    def explain(self, error: KafkaError, *, subject: str = "") -> CliError:
        from confluent_kafka import KafkaError as Code

        if error.code() in (Code._TRANSPORT, Code._ALL_BROKERS_DOWN, Code._RESOLVE, Code._TIMED_OUT):
            return self.silent()
        if error.code() in (Code._AUTHENTICATION, Code._SSL, Code.SASL_AUTHENTICATION_FAILED):
            self.complaint = self.complaint or error.str()
            return self.silent()
        if error.code() in (Code.UNKNOWN_TOPIC_OR_PART, Code._UNKNOWN_TOPIC) and subject:
            return self.no_topic(subject)
        return explain_refusal(error, subject)

    def silent(self) -> CliError:
        """Something listens there, but the cluster does not answer as a cluster."""
        from moldau.cli.refused import advice_on

        reason = f" ({self.complaint})" if self.complaint else ""
        return CliError(
            f"The cluster at {self.target.bootstrap} does not answer{reason}.",
            advice_on(self.complaint, self.target)
            or "Check that the port is a Kafka listener, that the addresses its brokers advertise "
            "(advertised.listeners) can be reached from here, and that it is spoken to as it wants: with TLS or a "
            "password by --profile or --command-config, -X security.protocol.",
            Exit.UNREACHABLE,
        )


def explain_refusal(error: KafkaError, subject: str) -> CliError:
    """An answer of the cluster that says no, with what to do where that is clear."""
    from confluent_kafka import KafkaError as Code

    text = error.str().removeprefix("Broker: ").rstrip(" .")
    if text.endswith(":"):  # the broker gave no reason but the code
        text = f"{text} {error.name()}"
    about = f"{subject}: " if subject and subject not in text else ""
    hints = {
        Code.TOPIC_ALREADY_EXISTS: "Accept that with --if-not-exists, or change it with `moldau topic alter`.",
        Code.INVALID_REPLICATION_FACTOR: "A topic cannot have more replicas than the cluster has brokers.",
        Code.TOPIC_EXCEPTION: "Names take letters, digits, '.', '_' and '-', at most 249 of them.",
        Code.MSG_SIZE_TOO_LARGE: "Raise max.message.bytes of the topic with `moldau config set topic`.",
        Code.INVALID_PARTITIONS: "A topic can only get more partitions, never fewer.",
        Code.INVALID_RECORD: "A topic with cleanup.policy=compact takes no message without a key.",
        Code.INVALID_MSG: "Its files may be damaged: `moldau log verify` on the broker's data folder says more.",
        Code.NOT_ENOUGH_REPLICAS: "Fewer replicas are in sync than min.insync.replicas asks for.",
    }
    hint = hints.get(error.code(), "")
    if "dynamically" in text:
        hint = "It is set where the broker starts: in its configuration file, or with --set."
    if error.code() == Code.INVALID_CONFIG:
        return usage(f"{about}{text}.", explain_config_key(text))
    return CliError(f"{about}{text}.", hint)


def explain_config_key(text: str) -> str:
    """What may have been meant by the key in `Unknown topic config name: retention.mss`, or what a known one
    takes.
    """
    from moldau.cli.config_keys import key_names

    if text.startswith("Broker-level "):
        return "It is one for all brokers: `moldau config set broker all KEY=VALUE` changes it."
    known = key_names("topic" if "topic config" in text else None)
    words = [word.rstrip(":") for word in text.replace(",", " ").split()]
    for word in words:
        if word in known:
            return f"`moldau config keys {word}` says what it takes."
        if "." in word and (near := did_you_mean(word, known)):
            return near
    return "`moldau config keys` lists the keys, their types and defaults."


def split_bootstrap(bootstrap: str) -> list[tuple[str, int]]:
    """`host:port,[::1]:port,host` as addresses; the port is 9092 where it is missing."""
    addresses = []
    for part in filter(None, (part.strip() for part in bootstrap.split(","))):
        scheme, _, bare = part.rpartition("://")
        if scheme.lower() in ("http", "https"):
            raise usage(
                f"'{part}' is a web address.",
                f"A broker speaks Kafka's protocol: write HOST:PORT, here {bare}.",
            )
        host, colon, port = bare.rpartition(":")
        if not colon or bare.endswith("]"):
            host, port = bare, str(DEFAULT_PORT)
        if not host or not port.isdigit() or not 0 < int(port) < 65536:
            raise usage(f"'{part}' is not an address.", "Write HOST:PORT, for example localhost:9092.")
        addresses.append((host.strip("[]"), int(port)))
    if not addresses:
        raise usage("--bootstrap is empty.", "Write HOST:PORT, for example localhost:9092.")
    return addresses


def reach(target: Target) -> str:
    """The address family for librdkafka, of the first address that answers."""
    # `localhost` is often ::1 first, where nobody listens: librdkafka would begin with a failure.
    return "v4" if reach_peer(target)[1].startswith("127.") else "any"


def reach_address(target: Target) -> tuple[str, int]:
    """The first address of the target that answers."""
    return reach_peer(target)[0]


def reach_peer(target: Target) -> tuple[tuple[str, int], str]:
    """Connect to the first address that answers, and close again; that address, and the IP address behind it."""
    failures = []
    timeout_s = min(target.timeout_s, REACH_TIMEOUT_S)
    for host, port in split_bootstrap(target.bootstrap):
        try:
            with socket.create_connection((host, port), timeout=timeout_s) as connection:
                return (host, port), connection.getpeername()[0]
        except OSError as error:
            failures.append(f"{host}:{port}: {reason_of(error)}")
    raise CliError(
        f"Cannot reach a broker at {'; '.join(failures)}.",
        f"That is the address in {target.origin}; --bootstrap names another."
        if target.has_its_address
        else "Start one with `moldau up`, or name the cluster's address with --bootstrap or MOLDAU_BOOTSTRAP.",
        Exit.UNREACHABLE,
    )


def reason_of(error: OSError) -> str:
    if isinstance(error, ConnectionRefusedError):
        return "nothing listens there"
    if isinstance(error, TimeoutError):
        return "no answer"
    if isinstance(error, socket.gaierror):
        return "unknown host name"
    return (error.strerror or str(error)).lower()
