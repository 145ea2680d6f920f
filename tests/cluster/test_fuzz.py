"""Bad input against a live broker: thousands of spoiled frames, headers, requests and batches, with a seed.

The broker stays up, its memory stays bounded, what it stored is readable, and another client that works at the same
time sees no error and no wrong data. Each case is a connection of its own: the broker answers or hangs up.
"""

from __future__ import annotations

import contextlib
import socket
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given
from hypothesis import seed as hypothesis_seed
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from bench.apache_kafka import KafkaServer
from bench.raw import RawConnection, api_versions_request, frame, produce_request
from bench.server import MoldauServer, Server
from cluster import fuzz
from cluster.canary import Canary
from cluster.support import create_topic, one_record_batch
from moldau.records.batch import read_header
from moldau.records.compression import DECOMPRESSED_BYTES_MAX, Codec
from moldau.records.record import read_records
from stored import read_batches

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("fuzz")]

USUAL_SEED = 7_041
ANSWER_TIMEOUT_S = 10
MEMORY_GROWTH_BYTES_MAX = 2 * DECOMPRESSED_BYTES_MAX + (100 << 20)
"""One batch unfolded at the limit, twice while its buffer grows, and room for all else."""
# What this issue serves; the fuzzer asks the broker for the versions.
APIS = (0, 1, 2, 3, 10, 18, 19, 20, 22, 23, 32, 33, 35, 37, 44, 60, 61, 74, 75)


@dataclass
class Patient:
    """The broker that is mistreated, and what watches it."""

    server: Server
    canary: Canary
    served: list[tuple[int, int]]
    memory_before_bytes: int

    def exchange(self, data: bytes, *, is_patient: bool = False) -> bytes:
        """Send what may be nonsense, say that no more comes, and read to the end: an answer, or a closed connection.
        Patient clients say so only when they have all answers: before, it ends the work on a large request."""
        received = bytearray()
        missing = frames_in(data) if is_patient else 0
        connection = socket.create_connection(("127.0.0.1", self.server.port), ANSWER_TIMEOUT_S)
        with connection, contextlib.suppress(ConnectionError):
            connection.sendall(data)
            while frames_in(received) < missing and (chunk := connection.recv(1 << 16)):
                received += chunk
            with contextlib.suppress(OSError):  # it may be closed already
                connection.shutdown(socket.SHUT_WR)
            while chunk := connection.recv(1 << 16):
                received += chunk
        return bytes(received)

    def check(self) -> None:
        assert not self.server.ended(), f"the broker ended:\n{self.server.output()}"
        assert self.canary.problems == []
        growth = peak_rss_bytes(self.server.pid) - self.memory_before_bytes
        assert growth < MEMORY_GROWTH_BYTES_MAX, f"memory grew by {growth >> 20} MB"


def frames_in(data: bytes | bytearray) -> int:
    """Whole ones, from the beginning."""
    count = position = 0
    while position + 4 <= len(data):
        position += 4 + struct.unpack_from(">i", data, position)[0]
        count += position <= len(data)
    return count


def peak_rss_bytes(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmHWM"))


@pytest.fixture(scope="module")
def patient(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Patient]:
    kind = {"moldau": MoldauServer, "kafka": KafkaServer}[request.config.getoption("--target")]
    # What was stored is looked at as it came: retention takes batches with old timestamps, compaction old values.
    settings = {"log.retention.ms": -1, "log.cleaner.enable": "false"}
    with kind(tmp_path_factory.mktemp("fuzzed"), settings) as server:
        bootstrap = server.bootstrap_servers
        create_topic(bootstrap, "canary")
        create_topic(bootstrap, "fuzz-plain", 2)
        create_topic(bootstrap, "fuzz-compact", cleanup_policy="compact")
        create_topic(bootstrap, "fuzz-gzip", compression_type="gzip")
        create_topic(bootstrap, "fuzz-append-time", message_timestamp_type="LogAppendTime")
        create_topic(bootstrap, fuzz.ALTERED)
        canary = Canary(bootstrap, "canary")
        canary.start()
        try:
            yield Patient(server, canary, served_by(bootstrap), peak_rss_bytes(server.pid))
        finally:
            canary.end()


def served_by(bootstrap: str) -> list[tuple[int, int]]:
    with RawConnection(bootstrap) as connection:
        answer = connection.ask(api_versions_request())
    ranges = {int(api.api_key): (api.min_version, api.max_version) for api in answer.api_keys}
    least = {0: 3}  # Produce says 0 for old clients' sake
    return [
        (key, version)
        for key in APIS
        for version in range(max(ranges[key][0], least.get(key, 0)), ranges[key][1] + 1)
    ]


def fuzzed(
    patient: Patient, cases: int, seed: int, inputs: st.SearchStrategy[bytes], *, is_patient: bool = False
) -> list[bytes]:
    """Feed the broker; returns what it answered."""
    answers: list[bytes] = []

    @hypothesis_seed(seed)
    @hypothesis_settings(
        max_examples=cases,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(inputs)
    def feed(data: bytes) -> None:
        answers.append(patient.exchange(data, is_patient=is_patient))
        if len(answers) % 100 == 0:
            patient.check()

    feed()
    patient.check()
    check_frames(answers)
    return answers


def check_frames(answers: list[bytes]) -> None:
    """What the broker sends is whole frames, however bad the question was."""
    for answer in answers:
        position = 0
        while position < len(answer):
            size = struct.unpack_from(">i", answer, position)[0]
            assert 4 <= size <= len(answer) - position - 4, answer[:100]
            position += 4 + size


def test_random_and_lying_frames(patient: Patient, seed: Callable[[int], int]) -> None:
    valid = frame(api_versions_request())
    noise = st.one_of(
        st.binary(max_size=300),
        fuzz.frames(st.binary(max_size=300)),
        fuzz.spoiled(st.just(valid)),
        st.integers(0, len(valid)).map(lambda end: valid[:end]),
        st.lists(fuzz.spoiled(st.just(valid)) | st.just(valid), max_size=8).map(b"".join),
    )
    answers = fuzzed(patient, 700, seed(USUAL_SEED), noise)
    assert any(answers), "some of them were valid"


def test_headers_of_any_api_and_version(patient: Patient, seed: Callable[[int], int]) -> None:
    numbers = st.integers(-3, 100) | st.sampled_from([-(2**15), 2**15 - 1])
    client_ids = st.sampled_from([b"\xff\xff", b"\x00\x00", b"\x00\x02ab", b"\x7f\xff", b"\x80\x00", b""])
    headers = st.builds(
        lambda api, version, correlation, client, rest: (
            struct.pack(">hhi", api, version, correlation) + client + rest
        ),
        numbers,
        numbers,
        st.integers(-(2**31), 2**31 - 1),
        client_ids,
        st.binary(max_size=60),
    )
    fuzzed(patient, 1000, seed(USUAL_SEED), fuzz.frames(headers))


def test_valid_requests_with_senseless_values_are_answered(
    patient: Patient, seed: Callable[[int], int]
) -> None:
    whole = fuzz.request_bodies(patient.served).map(lambda body: struct.pack(">i", len(body)) + body)
    answers = fuzzed(patient, 1000, seed(USUAL_SEED), whole)
    assert sum(map(bool, answers)) > len(answers) // 2


def test_spoiled_requests_of_every_api_and_version(patient: Patient, seed: Callable[[int], int]) -> None:
    spoiled = fuzz.frames(fuzz.spoiled(fuzz.request_bodies(patient.served)))
    fuzzed(patient, 2000, seed(USUAL_SEED), spoiled)


def test_every_served_version_is_spoiled_at_least_a_few_times(
    patient: Patient, seed: Callable[[int], int]
) -> None:
    first_seed = seed(USUAL_SEED)
    for number, api in enumerate(patient.served):
        fuzzed(patient, 8, first_seed + number, fuzz.frames(fuzz.spoiled(fuzz.request_bodies([api]))))


def test_spoiled_and_lying_batches(patient: Patient, seed: Callable[[int], int]) -> None:
    requests = st.builds(
        lambda topic, batch: frame(produce_request(topic, 0, batch)),
        st.sampled_from(fuzz.TOPICS),
        fuzz.bad_batches(),
    )
    fuzzed(patient, 1600, seed(USUAL_SEED), requests)


def test_decompression_bombs_do_not_unfold(patient: Patient, seed: Callable[[int], int]) -> None:
    requests = st.builds(
        lambda topic, batch: frame(produce_request(topic, 0, batch)),
        st.sampled_from(fuzz.TOPICS),
        fuzz.bombs(),
    )
    fuzzed(patient, 40, seed(USUAL_SEED), requests)


def test_large_requests_with_senseless_values_are_answered(
    patient: Patient, seed: Callable[[int], int]
) -> None:
    """Repeated elements at any depth. All are well-formed: who is not answered asked for more than is allowed."""
    whole = fuzz.large_bodies(always_answered(patient)).map(lambda body: struct.pack(">i", len(body)) + body)
    answers = fuzzed(patient, 250, seed(USUAL_SEED), whole, is_patient=True)
    assert sum(map(bool, answers)) > len(answers) // 2


def test_large_requests_whose_structure_lies(patient: Patient, seed: Callable[[int], int]) -> None:
    spoiled = fuzz.spoiled_large(fuzz.large_bodies(patient.served))
    fuzzed(patient, 600, seed(USUAL_SEED), fuzz.frames(spoiled))


def test_large_requests_that_are_cut_off_or_closed_in_the_middle(
    patient: Patient, seed: Callable[[int], int]
) -> None:
    """Some are closed before they have arrived, others while they are served: `exchange` ends its side at once."""
    bodies = fuzz.large_bodies(patient.served).map(lambda body: struct.pack(">i", len(body)) + body)
    cut = st.tuples(bodies, st.integers(0, 100)).map(lambda case: case[0][: len(case[0]) * case[1] // 100])
    fuzzed(patient, 300, seed(USUAL_SEED), cut)


def test_large_requests_and_small_ones_behind_them_are_answered_in_order(
    patient: Patient, seed: Callable[[int], int]
) -> None:
    """As far as they are answered: one that is refused ends the connection, and nothing comes out of turn."""
    small = frame(api_versions_request())

    def numbered(bodies: list[bytes]) -> bytes:
        frames = [struct.pack(">i", len(body)) + body for body in (*bodies, *[small[4:]] * 3)]
        return b"".join(
            data[:8] + struct.pack(">i", number) + data[12:] for number, data in enumerate(frames)
        )

    many = st.lists(fuzz.large_bodies(always_answered(patient)), min_size=2, max_size=3).map(numbered)
    answers = fuzzed(patient, 120, seed(USUAL_SEED), many, is_patient=True)
    for answer in answers:
        found = correlation_ids(answer)
        assert found == list(range(len(found)))
    assert sum(len(correlation_ids(answer)) >= 5 for answer in answers) > len(answers) // 2


def always_answered(patient: Patient) -> list[tuple[int, int]]:
    """All but Produce, which may ask for no answer."""
    return [(key, version) for key, version in patient.served if key != 0]


def correlation_ids(answer: bytes) -> list[int]:
    found, position = [], 0
    while position < len(answer):
        size, number = struct.unpack_from(">ii", answer, position)
        found.append(number)
        position += 4 + size
    return found


def test_what_was_stored_meanwhile_is_readable_and_survives_a_restart(patient: Patient) -> None:
    """Last in this file: the broker took some of the batches above, and each must be one that a client can read."""
    steps = patient.canary.steps
    patient.canary.end()
    print(f"canary: {steps} steps, the slowest took {patient.canary.slowest_step_s * 1000:.0f} ms")
    assert patient.canary.problems == [] and steps > 100
    before = stored(patient)
    assert patient.server.stop(), patient.server.output()
    patient.server.start()
    assert stored(patient) == before
    with RawConnection(patient.server.bootstrap_servers) as connection:
        for topic in fuzz.TOPICS:
            answer = connection.ask(produce_request(topic, 0, one_record_batch(b"after", b"key")))
            assert answer.responses[0].partition_responses[0].error_code == 0, topic


def stored(patient: Patient) -> dict[str, list[bytes]]:
    """Every batch that the broker took: whole, with its checksum, and its offsets follow those before it.

    What is in a batch the broker looks at only where it must: there it is readable. Else a producer that writes
    nonsense with a right checksum has its nonsense kept, as with Apache Kafka.
    """
    batches = {}
    with RawConnection(patient.server.bootstrap_servers) as connection:
        for topic in fuzz.TOPICS:
            batches[topic] = read_batches(connection, topic)
            next_offset = 0
            for header in map(read_header, batches[topic]):
                assert header.base_offset == next_offset and header.count > 0, (topic, header)
                assert header.last_offset_delta == header.count - 1, (topic, header)
                next_offset += header.count
    if isinstance(patient.server, MoldauServer):
        for batch in batches["fuzz-compact"]:
            assert len(read_records(batch)) == read_header(batch).count
    assert {read_header(batch).attributes & 7 for batch in batches["fuzz-gzip"]} == {int(Codec.GZIP)}
    return batches
