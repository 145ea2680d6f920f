"""What `moldau certs` makes is what Java, Apache Kafka and OpenSSL's clients take, in each of its forms."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.apache_kafka import Distribution, KafkaServer
from moldau.cli.app import run
from moldau.cli.client_file import read_client_file
from moldau.runtime.real.free_ports import free_port
from moldau.testing import Cluster

pytestmark = pytest.mark.interop

PASSWORD = "a-password"
ALICE = "User:CN=alice"


class Certificates:
    """A folder of `moldau certs`, with a broker on this machine and two forms of one client."""

    def __init__(self, folder: Path, *, key_type: str = "ecdsa") -> None:
        self.folder = folder
        (folder / "password").write_text(f"{PASSWORD}\n")
        where, kind = ["--dir", str(folder / "certs")], ["--key-type", key_type]
        moldau("certs", "authority", *where, *kind)
        moldau("certs", "broker", "localhost", "127.0.0.1", "--name", "broker", *where, *kind)
        moldau("certs", "client", "alice", *where, *kind)
        more = ["--pkcs12", "--password-file", str(folder / "password")]
        moldau("certs", "client", "bob", *where, *kind, *more)

    def path(self, name: str) -> str:
        return str(self.folder / "certs" / name)

    def broker_settings(self) -> dict[str, str]:
        return {
            "ssl.client.auth": "required",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": self.path("broker.pem"),
            **self.trust(),
        }

    def trust(self) -> dict[str, str]:
        return {"ssl.truststore.type": "PEM", "ssl.truststore.location": self.path("ca.crt")}

    def client_file(self, form: str) -> str:
        """Of Java's client, with the certificate in one of its forms."""
        settings = {"security.protocol": "SSL", **self.trust()}
        match form:
            case "PEM":
                settings |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": self.path("alice.pem")}
            case "encrypted PEM":
                settings |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": self.path("bob.pem")}
                settings["ssl.key.password"] = PASSWORD
            case "PKCS12":
                settings |= {"ssl.keystore.type": "PKCS12", "ssl.keystore.location": self.path("bob.p12")}
                settings["ssl.keystore.password"] = PASSWORD
        path = self.folder / f"{form}.properties"
        path.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        return str(path)


FORMS = ("PEM", "encrypted PEM", "PKCS12")


def moldau(*arguments: str) -> None:
    with pytest.raises(SystemExit) as ended:
        run(list(arguments))
    assert ended.value.code == 0


@pytest.fixture(scope="module", params=["ecdsa", "rsa"])
def certificates(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certs"), key_type=request.param)


@pytest.fixture(scope="module")
def broker(certificates: Certificates) -> Iterator[str]:
    settings = {
        "listeners": "SSL://127.0.0.1:0",
        "security.inter.broker.protocol": "SSL",
        **certificates.broker_settings(),
    }
    with Cluster(config=settings, topics={"orders": 1}) as running:
        yield running.bootstrap_servers


@pytest.mark.parametrize("form", ["PEM", "PKCS12"])  # Java 17 has no PBES2 for keys in PEM (JDK-8076999)
def test_javas_client_shows_the_certificate_in_each_form(
    form: str, certificates: Certificates, broker: str, requires_kafka: Distribution
) -> None:
    file = certificates.client_file(form)
    done = requires_kafka.run("topics", "--bootstrap-server", broker, "--command-config", file, "--list")
    assert "orders" in done.stdout


@pytest.mark.parametrize("form", FORMS)
def test_the_command_line_takes_javas_file_in_each_form(
    form: str, certificates: Certificates, broker: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = certificates.client_file(form)
    for command in (("topic", "list"), ("cluster", "describe")):
        moldau(*command, "--bootstrap", broker, "--command-config", file)


def test_kcat_takes_the_pem_file(certificates: Certificates, broker: str, requires_kcat: str) -> None:
    settings = read_client_file(certificates.client_file("PEM"))
    options = [word for name, value in settings.items() for word in ("-X", f"{name}={value}")]
    done = subprocess.run(
        [requires_kcat, "-b", broker, *options, "-L"], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0 and '"orders"' in done.stdout, done.stderr


def test_apache_kafka_serves_with_the_brokers_file(
    certificates: Certificates,
    tmp_path: Path,
    requires_kafka: Distribution,
    capsys: pytest.CaptureFixture[str],
) -> None:
    tls_port, port = free_port(), free_port()
    settings = certificates.broker_settings() | {
        "listeners": f"PLAINTEXT://127.0.0.1:{port},SSL://127.0.0.1:{tls_port},CONTROLLER://127.0.0.1:{free_port()}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port},SSL://127.0.0.1:{tls_port}",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL",
    }
    settings["controller.quorum.bootstrap.servers"] = settings["listeners"].rpartition("CONTROLLER://")[2]
    with KafkaServer(tmp_path / "kafka", settings, port=port):
        for form in FORMS:
            moldau(
                *("topic", "create", f"by-{form.replace(' ', '-')}", "--bootstrap", f"127.0.0.1:{tls_port}"),
                *("--command-config", certificates.client_file(form)),
            )
        moldau(
            *("cluster", "describe", "--bootstrap", f"127.0.0.1:{tls_port}"),
            *("--command-config", certificates.client_file("PEM")),
        )
