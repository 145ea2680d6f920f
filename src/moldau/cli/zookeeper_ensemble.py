"""A ZooKeeper ensemble on this machine, for trials and tests: a Java process per node, each ended by its pid.

The jars are those that pyspark carries, where it is installed, else Maven fetches them once (`runtime.real.jars`).
Ports of the nodes among each other are free ones, chosen at each start; clients' ports and data stay. Not for
production: there each machine has one node of its own.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import importlib.util
import os
import signal
import socket
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from moldau.runtime.real.free_ports import HOST, free_port
from moldau.runtime.real.jars import LOG4J_VERSION, LOG_TO_STDERR, Artifact, cache_folder, fetch
from moldau.runtime.real.java import Unavailable, find_java

VERSION = "3.9.3"
ARTIFACTS = [
    Artifact("org.apache.zookeeper", "zookeeper", VERSION),
    # Needed to serve, and not among its dependencies.
    Artifact("io.dropwizard.metrics", "metrics-core", "4.1.12.1"),
    Artifact("org.xerial.snappy", "snappy-java", "1.1.10.5"),
    Artifact("org.apache.logging.log4j", "log4j-core", LOG4J_VERSION),
    Artifact("org.apache.logging.log4j", "log4j-slf4j-impl", LOG4J_VERSION),
]
NEEDED = ("zookeeper-", "slf4j-api-", "log4j-", "metrics-core-", "snappy-java-", "netty-", "commons-io-")
"""How the jars' names begin, of the hundreds that pyspark has."""
MAIN = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
JVM = ["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Djava.awt.headless=true"]
TICK_MS = 500
"""Sessions may be as short as two ticks, and as long as twenty are by ZooKeeper's default; here up to two minutes."""
START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 10.0
POLL_S = 0.05
ANSWER_TIMEOUT_S = 2.0
LOG_TAIL_BYTES = 1500


@functools.cache
def jars() -> Path:
    """A folder with ZooKeeper's jars; `Unavailable` says what to install."""
    pyspark = importlib.util.find_spec("pyspark")
    for place in [] if pyspark is None else pyspark.submodule_search_locations or []:
        if list((Path(place) / "jars").glob("zookeeper-3*.jar")):
            return Path(place) / "jars"
    target = cache_folder() / f"zookeeper-{VERSION}" / "jars"
    if not target.is_dir():
        try:
            fetch(target, ARTIFACTS, "ZooKeeper")
        except Unavailable as reason:
            raise Unavailable(f"{reason} `pip install pyspark` brings them too.") from None
    return target


def class_path() -> str:
    return os.pathsep.join(str(jar) for jar in sorted(jars().glob("*.jar")) if jar.name.startswith(NEEDED))


class StartFailed(Exception):
    """A node ended, or the ensemble did not serve in time; the text has the end of what it printed."""


class Node:
    def __init__(self, number: int, folder: Path, port: int) -> None:
        self.number = number
        self.port = port
        self.folder = folder
        self.log = folder / "zookeeper.log"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    @property
    def has_ended(self) -> bool:
        return self._process is None or self._process.poll() is not None

    def configure(self, servers: Sequence[str], settings: dict[str, object]) -> None:
        data = self.folder / "data"
        data.mkdir(parents=True, exist_ok=True)
        (data / "myid").write_text(f"{self.number}\n")
        own = {"dataDir": data, "clientPort": self.port, "clientPortAddress": HOST}
        lines = [f"{key}={value}" for key, value in (own | settings).items()]
        (self.folder / "zoo.cfg").write_text("\n".join([*lines, *servers]) + "\n")
        (self.folder / "log.properties").write_text(LOG_TO_STDERR.format(level="warn"))

    def launch(self) -> None:
        log = f"-Dlog4j2.configurationFile={self.folder / 'log.properties'}"
        command = [find_java("ZooKeeper"), *JVM, log, "-cp", class_path(), MAIN]
        with self.log.open("ab") as output:
            self._process = subprocess.Popen(
                [*command, str(self.folder / "zoo.cfg")],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,  # Ctrl-C is for us, and we end them in order
            )

    def mode(self) -> str:
        """leader, follower or standalone; empty where it does not serve."""
        try:
            with socket.create_connection((HOST, self.port), timeout=ANSWER_TIMEOUT_S) as connection:
                connection.sendall(b"srvr")
                answer = b""
                while chunk := connection.recv(4096):
                    answer += chunk
        except OSError:
            return ""
        lines = answer.decode(errors="replace").splitlines()
        return next((line.split(": ")[1] for line in lines if line.startswith("Mode: ")), "")

    def signal(self, number: signal.Signals) -> None:
        if self._process is not None and not self.has_ended:
            self._process.send_signal(number)

    def stop(self) -> None:
        if self._process is None:
            return
        self.signal(signal.SIGCONT)
        self.signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(STOP_TIMEOUT_S)
        self.kill()

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def last_words(self) -> str:
        try:
            return self.log.read_bytes()[-LOG_TAIL_BYTES:].decode(errors="replace")
        except FileNotFoundError:
            return ""


class Ensemble:
    """`with Ensemble(folder, ports) as ensemble:` serves until the block ends."""

    def __init__(self, folder: Path, ports: Sequence[int], settings: dict[str, object] | None = None) -> None:
        self.nodes = [
            Node(number, folder.resolve() / f"node-{number}", port)
            for number, port in enumerate(ports, start=1)
        ]
        self._settings = settings or {}

    @property
    def hosts(self) -> str:
        return ",".join(f"{HOST}:{node.port}" for node in self.nodes)

    @property
    def url(self) -> str:
        return f"zookeeper:{self.hosts}"

    def start(self) -> None:
        """Returns when every node serves. Unavailable, StartFailed."""
        servers = [
            f"server.{node.number}={HOST}:{free_port()}:{free_port()}"
            for node in self.nodes
            if len(self.nodes) > 1
        ]
        settings: dict[str, object] = {
            "tickTime": TICK_MS,
            "initLimit": 20,
            "syncLimit": 10,
            "maxSessionTimeout": 120_000,
            "maxClientCnxns": 0,
            "admin.enableServer": "false",
            "4lw.commands.whitelist": "srvr,ruok,mntr",
            "autopurge.purgeInterval": 1,
            "autopurge.snapRetainCount": 3,
            **self._settings,
        }
        atexit.register(self.stop)
        try:
            for node in self.nodes:
                node.configure(servers, settings)
                node.launch()
            for node in self.nodes:
                self.wait_until_serving(node)
        except BaseException:
            self.stop()
            raise

    def wait_until_serving(self, node: Node) -> None:
        deadline_s = time.monotonic() + START_TIMEOUT_S
        while not node.mode():
            if node.has_ended or time.monotonic() > deadline_s:
                raise StartFailed(f"ZooKeeper's node {node.number} does not serve:\n{node.last_words()}")
            time.sleep(POLL_S)

    def leader(self) -> Node:
        """The node that leads (the only one, where there is one)."""
        deadline_s = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline_s:
            for node in self.nodes:
                if not node.has_ended and node.mode() in ("leader", "standalone"):
                    return node
            time.sleep(POLL_S)
        raise StartFailed("no node of the ensemble leads")

    def stop(self) -> None:
        atexit.unregister(self.stop)
        for node in self.nodes:
            node.stop()

    def __enter__(self) -> Ensemble:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
