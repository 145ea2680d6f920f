"""What the block reader says and hears on the wire, without Arrow: Fetch answers, logins, settings."""

from __future__ import annotations

import base64
import random
from uuid import UUID

import pytest

from moldau.base.errors import ErrorCode
from moldau.spark.blocks.answers import fetch_request, parse_answer
from moldau.spark.blocks.brokers import addresses
from moldau.spark.blocks.client_settings import ClientSettings, Sasl, Tls, client_of
from moldau.spark.blocks.errors import ReadFailed, SecurityFailed
from moldau.spark.blocks.security import Scram
from moldau.wire.codec import decode_request
from moldau.wire.fetch import FetchedPartition, pack_fetch_response
from moldau.wire.frames import parse_request_header, parse_response_header
from moldau.wire.primitives import WireError

TOPIC_ID = UUID(int=5)


def frame_of(version: int, part: FetchedPartition, error: int = 0) -> memoryview:
    topic = "topic" if version < 13 else TOPIC_ID.bytes
    pieces = pack_fetch_response(7, version, 12, error, 0, [(topic, [part])])
    return memoryview(b"".join(bytes(piece) for piece in pieces)[4:])  # type: ignore[arg-type]


@pytest.mark.parametrize("version", range(12, 18))
@pytest.mark.parametrize("aborted", [None, (), ((1, 5), (2, 7))])
def test_an_answer_is_read_as_it_was_written(
    version: int, aborted: tuple[tuple[int, int], ...] | None
) -> None:
    records = bytes(range(200)) * 3
    part = FetchedPartition(3, 0, 100, 90, 10, aborted, -1, None, (4, 5), records)
    frame = frame_of(version, part)
    number, position = parse_response_header(frame, 1, version)
    answer = parse_answer(version, frame, position, 3)
    assert number == 7
    assert (answer.error, answer.throttle_ms) == (ErrorCode.none, 12)
    assert (answer.high_watermark, answer.last_stable_offset, answer.log_start_offset) == (100, 90, 10)
    assert answer.aborted == (aborted or ())
    assert answer.records == records


def test_whatever_an_answer_is_it_is_read_or_refused() -> None:
    draw = random.Random(11)
    part = FetchedPartition(0, 0, 100, 90, 10, ((1, 5), (2, 7)), -1, None, None, bytes(300))
    good = bytes(frame_of(17, part))
    for _ in range(3000):
        bad = bytearray(good[: draw.randrange(6, len(good))] if draw.random() < 0.3 else good)
        for _ in range(draw.randrange(1, 4)):
            bad[draw.randrange(5, len(bad))] = draw.choice((0, 1, 127, 128, 255, draw.randrange(256)))
        try:
            answer = parse_answer(17, memoryview(bad), 5, 0)
        except WireError:
            continue
        assert len(answer.records) <= len(bad)


def test_an_answer_about_another_partition_is_refused() -> None:
    with pytest.raises(WireError, match="partition 4, not 0"):
        parse_answer(17, frame_of(17, FetchedPartition(4, 0)), 5, 0)


@pytest.mark.parametrize("version", range(12, 18))
def test_a_request_asks_for_one_partition_without_a_session(version: int) -> None:
    frame = memoryview(fetch_request(version, 9, "me", "topic", TOPIC_ID, 3, 4, 1000, 5000, True))[4:]
    api_key, sent_version, number, _, position = parse_request_header(frame)
    request = decode_request(1, version, frame, position)
    assert (api_key, sent_version, number) == (1, version, 9)
    assert (request.isolation_level, request.session_id, request.session_epoch) == (1, 0, -1)
    (topic,) = request.topics
    (partition,) = topic.partitions
    assert (topic.topic if version == 12 else topic.topic_id) == ("topic" if version == 12 else TOPIC_ID)
    assert (partition.partition, partition.current_leader_epoch, partition.fetch_offset) == (3, 4, 1000)


def test_addresses_of_brokers() -> None:
    assert addresses("a:1, b , [::1]:3,SSL://c:4,") == [("a", 1), ("b", 9092), ("::1", 3), ("c", 4)]
    for bad in ("", " , ", "a:b"):
        with pytest.raises(ReadFailed, match="bootstrap"):
            addresses(bad)


def test_scram_as_in_its_specification() -> None:
    """RFC 7677, section 3."""
    scram = Scram(Sasl("SCRAM-SHA-256", "user", "pencil"), "rOprNGfwEbeRWgbNEkqO")
    server_nonce = "rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    sent: list[str] = []

    def server(message: bytes) -> bytes:
        sent.append(message.decode())
        if len(sent) == 1:
            return f"r={server_nonce},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096".encode()
        return b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="

    scram.run(server)
    assert sent == [
        "n,,n=user,r=rOprNGfwEbeRWgbNEkqO",
        f"c=biws,r={server_nonce},p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=",
    ]


@pytest.mark.parametrize(
    ("first", "last", "says"),
    [
        ("r=other,s=aaaa,i=4096", "", "somebody else"),
        ("r=nonce,s=aaaa,i=4096", "", "somebody else"),
        ("r=nonceX,s=aaaa,i=1", "", "asks for '1' iterations"),
        ("r=nonceX,s=aaaa,i=99999999", "", "asks for '99999999' iterations"),
        ("r=nonceX,s=!!,i=4096", "", "has no s="),
        ("r=nonceX,i=4096", "", "has no s="),
        ("r=nonceX,s=aaaa,i=4096", "v=" + base64.b64encode(bytes(32)).decode(), "does not know the password"),
        ("r=nonceX,s=aaaa,i=4096", "e=other-error", "other-error"),
        ("r=nonceX,s=aaaa,i=4096", "", "has no v="),
    ],
)
def test_a_server_that_does_not_know_the_password_is_refused(first: str, last: str, says: str) -> None:
    answers = iter([first.encode(), last.encode()])
    with pytest.raises(SecurityFailed, match=says):
        Scram(Sasl("SCRAM-SHA-512", "user", "pencil"), "nonce").run(lambda _: next(answers))


def test_a_name_with_commas_and_equals_signs_is_escaped() -> None:
    sent: list[bytes] = []

    def server(message: bytes) -> bytes:
        sent.append(message)
        return b""

    with pytest.raises(SecurityFailed):
        Scram(Sasl("SCRAM-SHA-256", "a,b=c", "x"), "nonce").run(server)
    assert sent == [b"n,,n=a=2Cb=3Dc,r=nonce"]


def test_settings_of_a_plain_client() -> None:
    assert client_of({}) == ClientSettings()
    tuned = client_of({"client.id": "me", "check.crcs": "false", "fetch.message.max.bytes": "99"})
    assert tuned == ClientSettings(client_id="me", check_crc=False, fetch_bytes=99)


def test_settings_of_a_secure_client() -> None:
    config = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanisms": "scram-sha-256",
        "sasl.username": "u",
        "sasl.password": "secret",
        "ssl.ca.location": "/ca.pem",
        "ssl.endpoint.identification.algorithm": "none",
    }
    client = client_of(config)
    assert client is not None
    assert client.sasl == Sasl("SCRAM-SHA-256", "u", "secret")
    assert client.tls == Tls(ca_location="/ca.pem", is_name_checked=False)
    assert "secret" not in repr(client)


@pytest.mark.parametrize(
    "config",
    [
        {"security.protocol": "sasl_ssl", "sasl.mechanism": "OAUTHBEARER"},
        {"security.protocol": "sasl_plaintext"},  # GSSAPI
        {"security.protocol": "ssl", "ssl.keystore.location": "/a.p12"},
        {"security.protocol": "ssl", "ssl.engine.location": "/engine.so"},
    ],
)
def test_what_only_the_client_library_can_do(config: dict[str, str]) -> None:
    assert client_of(config) is None


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ({"security.protocol": "tls"}, "not 'tls'"),
        ({"check.crcs": "maybe"}, "true or false"),
        ({"socket.timeout.ms": "soon"}, "is a number"),
        ({"security.protocol": "sasl_plaintext", "sasl.mechanism": "PLAIN"}, "needs kafka.sasl.username"),
    ],
)
def test_settings_that_mean_nothing_are_named(config: dict[str, str], says: str) -> None:
    with pytest.raises(ReadFailed, match=says):
        client_of(config)
