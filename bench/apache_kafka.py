"""Apache Kafka from its published jars: the oracle of the interop tests and the peer of the benchmarks.

    python -m bench.apache_kafka fetch                 get the jars (the other commands do it on demand)
    python -m bench.apache_kafka up [--port 9092] [--data DIR] [--set key=value ...]
    python -m bench.apache_kafka run TOOL ARGUMENT...  one of Kafka's tools, by short name or class
    python -m bench.apache_kafka tools                 the short names

It needs Java 17 or newer, and Maven once per version to fetch the jars (`runtime.real.jars`). Where one of them is
missing, `Unavailable` says so in a sentence. Every process has a time-out or an owner and is ended by its pid.
Clusters of several nodes are left out.
"""

from __future__ import annotations

import argparse
import base64
import functools
import os
import signal
import subprocess
import sys
import tempfile
import threading
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.server import HOST, Server, StartFailed
from moldau.runtime.real.free_ports import free_port
from moldau.runtime.real.jars import LOG4J_VERSION, LOG_TO_STDERR, Artifact, cache_folder, fetch
from moldau.runtime.real.java import Unavailable, find_java

VERSION = "4.3.1"
FORMAT_TIMEOUT_S = 60
ARGPARSE_VERSION = "0.7.0"

ARTIFACTS = [
    Artifact("org.apache.kafka", "kafka_2.13", VERSION),
    Artifact("org.apache.kafka", "kafka-tools", VERSION),
    Artifact("org.apache.logging.log4j", "log4j-core", LOG4J_VERSION),
    Artifact("org.apache.logging.log4j", "log4j-slf4j-impl", LOG4J_VERSION),
]
_TOOLS = "org.apache.kafka.tools"
TOOLS = {
    "broker-api-versions": f"{_TOOLS}.BrokerApiVersionsCommand",
    "cluster": f"{_TOOLS}.ClusterTool",
    "configs": "kafka.admin.ConfigCommand",
    "console-consumer": f"{_TOOLS}.consumer.ConsoleConsumer",
    "console-producer": f"{_TOOLS}.ConsoleProducer",
    "consumer-groups": f"{_TOOLS}.consumer.group.ConsumerGroupCommand",
    "consumer-perf-test": f"{_TOOLS}.ConsumerPerformance",
    "dump-log": f"{_TOOLS}.DumpLogSegments",
    "e2e-latency": f"{_TOOLS}.EndToEndLatency",
    "get-offsets": f"{_TOOLS}.GetOffsetShell",
    "log-dirs": f"{_TOOLS}.LogDirsCommand",
    "producer-perf-test": f"{_TOOLS}.ProducerPerformance",
    "storage": "kafka.tools.StorageTool",
    "topics": f"{_TOOLS}.TopicCommand",
    "verifiable-consumer": f"{_TOOLS}.VerifiableConsumer",
    "transactions": f"{_TOOLS}.TransactionsCommand",
}
# The flags and the heap of Kafka's own start script.
SERVER_JVM = [
    "-server",
    "-Xms1g",
    "-Xmx1g",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
]
# A tool that lives for a second: the first compiler only, and a collector without threads of its own.
TOOL_JVM = ["-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Djava.awt.headless=true"]


@dataclass(frozen=True, slots=True)
class ToolRun:
    """What a tool printed, and its exit code."""

    code: int
    stdout: str
    stderr: str


class ToolFailed(Exception):
    """A tool ended with an error, or did not end in time."""


@dataclass(frozen=True, slots=True)
class Distribution:
    """Java and a folder of jars: enough to run Kafka's broker and tools."""

    java: str
    jars: Path

    def command(
        self, tool: str, *arguments: str, jvm: Sequence[str] = TOOL_JVM, log_level: str = "warn"
    ) -> list[str]:
        log_config = self.jars.parent / f"log-{log_level}.properties"
        if not log_config.exists():
            log_config.write_text(LOG_TO_STDERR.format(level=log_level))
        class_path = str(self.jars / "*")
        log = f"-Dlog4j2.configurationFile={log_config}"
        return [self.java, *jvm, log, "-cp", class_path, TOOLS.get(tool, tool), *arguments]

    def run(
        self,
        tool: str,
        *arguments: str,
        stdin: str = "",
        timeout_s: float = 60,
        jvm: Sequence[str] = TOOL_JVM,
        check: bool = True,
    ) -> ToolRun:
        """Run a tool to its end. With `check`, a failure raises `ToolFailed` with what the tool printed."""
        archive = _ClassArchive(self.jars.parent / f"{tool}.jsa")
        try:
            done = subprocess.run(
                self.command(tool, *arguments, jvm=[*jvm, *archive.options()]),
                input=stdin,
                capture_output=True,
                encoding="utf-8",
                errors="surrogateescape",
                timeout=timeout_s,
                check=False,
            )
        except subprocess.TimeoutExpired as late:
            raise ToolFailed(
                f"{tool} did not end within {timeout_s:g} s: {late.stdout!r} {late.stderr!r}"
            ) from None
        finally:
            archive.keep()
        if check and done.returncode:
            raise ToolFailed(f"{tool} ended with code {done.returncode}:\n{done.stdout}{done.stderr}")
        return ToolRun(done.returncode, done.stdout, done.stderr)


class _ClassArchive:
    """The classes of a tool as its first run loaded them, mapped into memory by the next: half the start-up time.

    A JVM ignores an archive that does not fit it, and one that a run could not write is tried again by the next.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._fresh = path.with_suffix(f".{os.getpid()}-{threading.get_ident()}.jsa")

    def options(self) -> list[str]:
        quiet = "-Xlog:disable"  # its remarks would go to the tool's standard output
        if self._path.exists():
            return [quiet, f"-XX:SharedArchiveFile={self._path}"]
        return [quiet, f"-XX:ArchiveClassesAtExit={self._fresh}"]

    def keep(self) -> None:
        if self._fresh.exists():
            self._fresh.replace(self._path)


@functools.cache
def distribution() -> Distribution:
    """The jars in the cache, fetched where they are not there yet; `Unavailable` where that cannot be."""
    java = find_java("Apache Kafka")
    jars = cache_folder() / VERSION / "jars"
    if not jars.is_dir():
        fetch(jars, ARTIFACTS)
    return Distribution(java, jars)


@functools.cache
def client_of(version: str) -> Distribution:
    """The Java client of any version, and those of Kafka's tools that need little else, as ClientCompatibilityTest."""
    java = find_java("Apache Kafka")
    jars = cache_folder() / version / "client"
    if not jars.is_dir():
        client = Artifact("org.apache.kafka", "kafka-clients", version)
        tools = Artifact("org.apache.kafka", "kafka-tools", version, alone=True)
        options = Artifact("net.sourceforge.argparse4j", "argparse4j", ARGPARSE_VERSION)
        fetch(jars, [client, tools, options])
    return Distribution(java, jars)


class KafkaServer(Server):
    """One Apache Kafka node, broker and controller in one process, formatted at its first start."""

    name = "Apache Kafka"
    clean_exit_code = 128 + signal.SIGTERM  # a JVM ends so, after its shut-down hooks

    def __init__(
        self, folder: Path, settings: Mapping[str, object] | None = None, *, port: int | None = None
    ) -> None:
        super().__init__(folder.resolve(), settings, port=port)
        self._distribution = distribution()
        self._properties = self.folder / "server.properties"

    def command(self) -> Sequence[str]:
        return self._distribution.command("kafka.Kafka", str(self._properties), jvm=SERVER_JVM)

    def format(self) -> None:
        """Write the configuration and Kafka's identity files into an empty folder."""
        if self._properties.exists():
            return
        text = "".join(f"{key}={value}\n" for key, value in self._node_settings().items())
        self._properties.write_text(text)
        cluster_id = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=").replace("-", "_")
        self._distribution.run(
            "storage",
            *("format", "-t", cluster_id, "-c", str(self._properties), "--standalone"),
            timeout_s=FORMAT_TIMEOUT_S,
        )

    def launch(self) -> None:
        self.format()
        super().launch()

    def _node_settings(self) -> dict[str, object]:
        controller = f"{HOST}:{free_port()}"
        return {
            "process.roles": "broker,controller",
            "node.id": 1,
            "controller.quorum.bootstrap.servers": controller,
            "listeners": f"PLAINTEXT://{self.bootstrap_servers},CONTROLLER://{controller}",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "log.dirs": self.data,
            "offsets.topic.replication.factor": 1,
            "transaction.state.log.replication.factor": 1,
            "transaction.state.log.min.isr": 1,
            "share.coordinator.state.topic.replication.factor": 1,
            "share.coordinator.state.topic.min.isr": 1,
            "group.initial.rebalance.delay.ms": 0,
            **self.settings,
        }


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.apache_kafka", description="Run Apache Kafka from its published jars."
    )
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("fetch", help="get the jars")
    commands.add_parser("tools", help="list the short names of Kafka's tools")
    up = commands.add_parser("up", help="run one node until Ctrl-C")
    up.add_argument("--port", type=int, default=9092)
    up.add_argument("--data", type=Path, help="keep the data here; thrown away at the end where not given")
    up.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="a server property")
    run = commands.add_parser("run", help="run one of Kafka's tools")
    run.add_argument("tool", help="a short name or a class")
    run.add_argument("arguments", nargs=argparse.REMAINDER)
    options = parser.parse_args(arguments)
    try:
        return _execute(options)
    except (Unavailable, StartFailed, ToolFailed) as problem:
        print(problem, file=sys.stderr)
        return 1


def _execute(options: argparse.Namespace) -> int:
    match options.command:
        case "tools":
            print("\n".join(f"{name:22}{tool}" for name, tool in TOOLS.items()))
        case "fetch":
            print(distribution().jars)
        case "run":
            return subprocess.run(
                distribution().command(options.tool, *options.arguments), check=False
            ).returncode
        case "up":
            settings = dict(pair.split("=", 1) for pair in options.set)
            with tempfile.TemporaryDirectory() as throw_away:
                _serve(KafkaServer(options.data or Path(throw_away), settings, port=options.port))
    return 0


def _serve(server: KafkaServer) -> None:
    asked_to_end = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: asked_to_end.set())
    with server:
        print(f"ready: bootstrap.servers={server.bootstrap_servers}", flush=True)
        while not (asked_to_end.wait(0.2) or server.ended()):
            pass


if __name__ == "__main__":
    sys.exit(main())
