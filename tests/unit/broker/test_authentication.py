"""Who a client is on a SASL listener: each mechanism, and a table of attacks, each refused."""

from __future__ import annotations

import contextlib
import logging
import random
from base64 import b64encode
from datetime import timedelta
from typing import Any

import pytest
from sasl_stage import (
    API_VERSIONS,
    AUTHENTICATE,
    HANDSHAKE,
    METADATA,
    PASSWORD,
    Client,
    Gone,
    Stage,
    played,
    upsertion,
)

from moldau.base import limits
from moldau.base.errors import ErrorCode
from moldau.controller.quotas import QuotaAlteration
from moldau.controller.users import Deletion
from moldau.metadata.records import ConfigChanged, ConfigResource, ResourceType
from moldau.security.sasl.client import Login
from moldau.security.sasl.credentials import Credential, Mechanism
from moldau.wire.apis import APIS
from moldau.wire.codec import decode_response
from moldau.wire.frames import SIZE, parse_response_header, request_frame

ALL = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
SCRAM = ALL[1:]
REAUTH = {"connections__max__reauth__ms": "10000"}
PLAIN_FAILED = "Authentication failed: Invalid username or password"


def failed(mechanism: str) -> str:
    return f"Authentication failed during authentication due to invalid credentials with SASL mechanism {mechanism}"


async def serves(client: Client) -> bool:
    """Whether it is let in."""
    try:
        return bool((await client.metadata()).brokers)
    except Gone:
        return False


# ---- getting in -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mechanism", ALL)
def test_a_client_that_proves_who_it_is_is_served(mechanism: str) -> None:
    async def scene(stage: Stage) -> None:
        client = await stage.client()
        answer = await client.log_in(mechanism)
        assert (answer.error_code, answer.error_message) == (ErrorCode.none, "")
        assert await serves(client)
        (connection,) = stage.broker._server.connections
        assert connection.principal == "User:alice"
        assert stage.broker.metrics.authentications == 1

    played(scene)


@pytest.mark.parametrize("mechanism", ALL)
def test_after_handshake_v0_messages_come_as_they_are(mechanism: str) -> None:
    async def scene(stage: Stage) -> None:
        client = await stage.client()
        assert not (await client.handshake(mechanism, version=0)).error_code
        dialogue = Login(mechanism, "alice", PASSWORD).messages(b"x" * 18)
        message = next(dialogue)
        while True:
            client.send(SIZE.pack(len(message)) + message)
            try:
                message = dialogue.send(await client.frame())
            except StopIteration:
                break
        assert await serves(client)

    played(scene)


def test_a_handshake_needs_no_api_versions_before() -> None:
    async def scene(stage: Stage) -> None:
        client = await stage.client()
        assert tuple((await client.handshake("PLAIN")).mechanisms) == ALL
        assert not (await client.authenticate(f"\0alice\0{PASSWORD}".encode(), version=0)).error_code
        assert await serves(client)

    played(scene)


def test_a_listener_without_sasl_says_that_there_is_nothing_to_begin() -> None:
    async def scene(stage: Stage) -> None:
        client = await stage.client(port=9093)
        shaken = await client.handshake("PLAIN")
        assert (shaken.error_code, tuple(shaken.mechanisms)) == (ErrorCode.illegal_sasl_state, ())
        answer = await client.authenticate(b"\0alice\0x")
        assert answer.error_code is ErrorCode.illegal_sasl_state
        assert answer.error_message == "SaslAuthenticate request received after successful authentication"
        assert await serves(client)

    played(scene)


def test_so_does_a_session_without_an_end() -> None:
    async def scene(stage: Stage) -> None:
        client = await stage.client()
        await client.log_in("PLAIN")
        assert (await client.handshake("PLAIN")).error_code is ErrorCode.illegal_sasl_state
        assert (await client.authenticate(b"\0admin\0x")).error_code is ErrorCode.illegal_sasl_state
        assert await serves(client)

    played(scene)


@pytest.mark.parametrize("mechanism", SCRAM)
def test_a_new_password_is_the_one_that_counts(mechanism: str) -> None:
    async def scene(stage: Stage) -> None:
        controller = stage.broker.controller
        await controller.alter_users([], [upsertion("alice", "another", mechanism, 8192)])
        assert (await (await stage.client()).log_in(mechanism)).error_message == failed(mechanism)
        assert not (await (await stage.client()).log_in(mechanism, password="another")).error_code
        await controller.alter_users([Deletion("alice", int(Mechanism[mechanism[6:].replace("-", "_")]))], [])
        answer = await (await stage.client()).log_in(mechanism, password="another")
        assert answer.error_message == failed(mechanism)

    played(scene)


# ---- attacks --------------------------------------------------------------------------------------------------

REQUESTS_BEFORE = [key for key in APIS if key not in (API_VERSIONS, HANDSHAKE)]


@pytest.mark.parametrize("api_key", REQUESTS_BEFORE, ids=lambda key: APIS[key].name)
@pytest.mark.parametrize("after_versions", [False, True])
def test_a_request_before_authentication_ends_the_connection(api_key: int, after_versions: bool) -> None:
    async def scene(stage: Stage) -> None:
        client = await stage.client()
        if after_versions:
            await client.versions()
        version = APIS[api_key].max_version
        client.send(request_frame(api_key, version, 1, "test", b"\0" * 64))
        assert await client.ended()

    played(scene)


@pytest.mark.parametrize("mechanism", ALL)
def test_a_request_within_the_mechanism_ends_the_connection(mechanism: str) -> None:
    async def scene(stage: Stage) -> None:
        client = await stage.client()
        await client.versions()
        await client.handshake(mechanism)
        client.send(request_frame(3, 1, 7, "test", b"\xff\xff\xff\xff"))
        assert await client.ended()

        client = await stage.client()
        await client.handshake(mechanism)
        assert (await client.handshake(mechanism)).error_code is ErrorCode.illegal_sasl_state
        assert await client.ended()

    played(scene)


def test_api_versions_is_answered_once() -> None:
    async def scene(stage: Stage) -> None:
        client = await stage.client()
        assert (await client.versions()).api_keys
        with pytest.raises(Gone):
            await client.versions()

    played(scene)


def test_api_versions_of_an_unknown_version_may_be_followed_by_one_that_is_known() -> None:
    async def scene(stage: Stage) -> None:
        client = await stage.client()
        client.send(request_frame(API_VERSIONS, 99, 5, "test", b"\0"))
        frame = memoryview(await client.frame())
        _, position = parse_response_header(frame, API_VERSIONS, 0)
        answer = decode_response(API_VERSIONS, 0, frame, position)
        assert answer.error_code is ErrorCode.unsupported_version
        assert not (await client.log_in("PLAIN")).error_code

    played(scene)


@pytest.mark.parametrize("mechanism", ["GSSAPI", "OAUTHBEARER", "plain", "", "CRAM-MD5"])
def test_a_mechanism_that_is_not_enabled_is_told_and_the_connection_ends(mechanism: str) -> None:
    async def scene(stage: Stage) -> None:
        client = await stage.client()
        await client.versions()
        answer = await client.handshake(mechanism)
        assert answer.error_code is ErrorCode.unsupported_sasl_mechanism
        assert tuple(answer.mechanisms) == ALL
        assert await client.ended()

    played(scene)


@pytest.mark.parametrize("mechanism", ALL)
@pytest.mark.parametrize("user", ["alice", "nobody"])
def test_a_wrong_password_and_a_user_who_is_not_there_look_the_same(mechanism: str, user: str) -> None:
    async def scene(stage: Stage) -> None:
        client = await stage.client()
        answer = await client.log_in(mechanism, user, "wrong")
        assert answer.error_code is ErrorCode.sasl_authentication_failed
        assert answer.error_message == (PLAIN_FAILED if mechanism == "PLAIN" else failed(mechanism))
        assert answer.auth_bytes == b""
        assert await client.ended()
        assert stage.broker.metrics.authentications_failed == 1

    played(scene)


@pytest.mark.parametrize("mechanism", SCRAM)
def test_the_salt_of_a_user_who_is_not_there_stays_the_same(mechanism: str) -> None:
    async def scene(stage: Stage) -> None:
        salts = set()
        for nonce in ("one", "two"):
            client = await stage.client()
            await client.handshake(mechanism)
            answer = await client.authenticate(f"n,,n=nobody,r={nonce}".encode())
            assert not answer.error_code
            salts.add(answer.auth_bytes.split(b",", 1)[1])
        assert len(salts) == 1

    played(scene)


PLAIN_MESSAGES = {
    "nothing": b"",
    "no NUL": b"alice",
    "two parts": f"alice\0{PASSWORD}".encode(),
    "four parts": f"\0alice\0{PASSWORD}\0x".encode(),
    "no name": f"\0\0{PASSWORD}".encode(),
    "no password": b"\0alice\0",
    "the beginning of the password": f"\0alice\0{PASSWORD[:-1]}".encode(),
    "more than the password": f"\0alice\0{PASSWORD} ".encode(),
    "another case": f"\0ALICE\0{PASSWORD}".encode(),
    "no text": b"\0alice\0\xff\xfe",
    "another identity": f"admin\0alice\0{PASSWORD}".encode(),
    "too long": b"\0alice\0" + b"x" * limits.SASL_TOKEN_BYTES_MAX,
}


@pytest.mark.parametrize("what", PLAIN_MESSAGES)
def test_a_bad_message_of_plain_is_refused(what: str) -> None:
    async def scene(stage: Stage) -> None:
        client = await stage.client()
        await client.handshake("PLAIN")
        answer = await client.authenticate(PLAIN_MESSAGES[what])
        assert answer.error_code is ErrorCode.sasl_authentication_failed
        assert "alice" not in answer.error_message
        assert await client.ended()

    played(scene)


SCRAM_FIRST = {
    "nothing": b"",
    "no message": b"hello",
    "channel binding": b"p=tls-unique,,n=alice,r=abc",
    "client thinks the server has no channel binding": b"y,,n=alice,r=abc",
    "no name": b"n,,n=,r=abc",
    "no nonce": b"n,,n=alice,r=",
    "a bare equals sign in the name": b"n,,n=al=ice,r=abc",
    "a mandatory extension": b"n,,m=x,n=alice,r=abc",
    "a delegation token": b"n,,n=alice,r=abc,tokenauth=true",
    "not ASCII": "n,,n=älice,r=abc".encode(),
    "a final message": b"c=biws,r=abc,p=AAAA",
    "another identity": b"n,a=admin,n=alice,r=abc",
    "too long": b"n,,n=" + b"a" * limits.SCRAM_MESSAGE_BYTES_MAX + b",r=abc",
}


@pytest.mark.parametrize("what", SCRAM_FIRST)
@pytest.mark.parametrize("mechanism", SCRAM)
def test_a_bad_first_message_of_scram_is_refused(mechanism: str, what: str) -> None:
    async def scene(stage: Stage) -> None:
        client = await stage.client()
        await client.handshake(mechanism)
        answer = await client.authenticate(SCRAM_FIRST[what])
        assert answer.error_code is ErrorCode.sasl_authentication_failed
        assert await client.ended()

    played(scene)


async def finals(stage: Stage, mechanism: str, nonce: bytes = b"n" * 18) -> tuple[Client, bytes, bytes]:
    """A client behind its first message, the answer to that, and the right last message."""
    client = await stage.client()
    await client.handshake(mechanism)
    dialogue = Login(mechanism, "alice", PASSWORD).messages(nonce)
    first = await client.authenticate(next(dialogue))
    return client, first.auth_bytes, dialogue.send(first.auth_bytes)


@pytest.mark.parametrize("mechanism", SCRAM)
def test_a_replayed_last_message_is_refused(mechanism: str) -> None:
    async def scene(stage: Stage) -> None:
        client, _, final = await finals(stage, mechanism)
        assert not (await client.authenticate(final)).error_code
        for nonce in (b"n" * 18, b"m" * 18):
            other, _, _ = await finals(stage, mechanism, nonce)
            answer = await other.authenticate(final)
            assert answer.error_message == failed(mechanism)
            assert await other.ended()

    played(scene)


@pytest.mark.parametrize("mechanism", SCRAM)
def test_reflected_and_changed_messages_are_refused(mechanism: str) -> None:
    def changes(first: bytes, final: bytes) -> list[bytes]:
        unproved, proof = final.rsplit(b",p=", 1)
        size = len(b64encode(b"\0" * Mechanism[mechanism[6:].replace("-", "_")].hash_bytes))
        return [
            first,  # the server's own words
            b"v=" + proof,
            unproved,
            unproved + b",p=",
            unproved + b",p=" + b64encode(b"\0" * (size // 4 * 3))[:size],
            unproved + b",x=y,p=" + proof,  # signed without that
            unproved.replace(b"c=biws", b"c=eSws") + b",p=" + proof,  # y,,
            unproved.replace(b"c=biws", b"c=") + b",p=" + proof,
            unproved[:-1] + b",p=" + proof,
            unproved + b"x,p=" + proof,
            final + b"=",
            final[:-8],
        ]

    async def scene(stage: Stage) -> None:
        for number in range(12):
            client, first, final = await finals(stage, mechanism)
            answer = await client.authenticate(changes(first, final)[number])
            assert answer.error_message == failed(mechanism), number
            assert await client.ended()

    played(scene)


@pytest.mark.parametrize("iterations", [0, 1, 4095])
def test_credentials_with_too_few_iterations_are_of_no_use(iterations: int) -> None:
    """As they could have got into the store from elsewhere."""

    async def scene(stage: Stage) -> None:
        mechanism = Mechanism.SHA_256
        salted = mechanism.salted("weak", b"salt", max(1, iterations))
        credential = Credential.of_salted(mechanism, salted, b"salt", iterations)
        resource = ConfigResource(ResourceType.USER, "weak")
        stage.broker.image.apply(ConfigChanged(resource, {mechanism.title: credential.text}))
        client = await stage.client()
        await client.handshake(mechanism.title)
        answer = await client.authenticate(b"n,,n=weak,r=abc")
        assert answer.error_message == failed(mechanism.title)

    played(scene)


def test_the_keys_that_the_store_has_are_no_password() -> None:
    """Whoever has read the store knows the stored key, not what it is the digest of."""

    async def scene(stage: Stage) -> None:
        users = stage.broker.image.configs_of(ResourceType.USER)
        credential = Credential.parse(Mechanism.SHA_256, users["alice"]["SCRAM-SHA-256"])
        client, first, final = await finals(stage, "SCRAM-SHA-256")
        unproved = final.rsplit(b",p=", 1)[0]
        bare = b"n=alice,r=" + b64encode(b"n" * 18)
        signature = Mechanism.SHA_256.sign(credential.stored_key, b",".join([bare, first, unproved]))
        for key in (credential.stored_key, credential.server_key):
            proof = bytes(a ^ b for a, b in zip(key, signature, strict=True))
            client, first, final = await finals(stage, "SCRAM-SHA-256")
            answer = await client.authenticate(unproved + b",p=" + b64encode(proof))
            assert answer.error_code is ErrorCode.sasl_authentication_failed

    played(scene)


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize("size", [524_289, 100 * 1024 * 1024, 2**31 - 1, -1])
def test_a_giant_frame_is_refused_before_it_is_received(size: int, version: int) -> None:
    async def scene(stage: Stage) -> None:
        client = await stage.client()
        client.send(SIZE.pack(size))
        assert await client.ended()
        client = await stage.client()
        await client.handshake("PLAIN", version)
        client.send(SIZE.pack(size))
        assert await client.ended()

    played(scene)


def test_after_authentication_requests_may_be_as_large_as_on_any_listener() -> None:
    async def scene(stage: Stage) -> None:
        client = await stage.client()
        await client.log_in("PLAIN")
        (connection,) = stage.broker._server.connections
        assert connection.frame_bytes_max == stage.broker.config["socket.request.max.bytes"]
        assert connection.frame_bytes_min == 8

    played(scene)


def test_who_never_says_who_it_is_is_disconnected_in_time() -> None:
    async def scene(stage: Stage) -> None:
        silent, slow = await stage.client(), await stage.client()
        await slow.versions()
        known = await stage.client()
        await known.log_in("PLAIN")
        begun_s = stage.world.loop.time()
        assert await silent.ended() and await slow.ended()
        assert stage.world.loop.time() - begun_s < limits.AUTHENTICATION_S_MAX + 2
        assert await serves(known)

    played(scene)


def test_the_number_of_those_who_have_not_said_who_they_are_is_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("moldau.broker.authentication.AUTHENTICATING_MAX", 5)

    async def scene(stage: Stage) -> None:
        clients = [await stage.client() for _ in range(8)]
        for client in clients[:3]:
            assert await client.ended()
        assert not (await clients[-1].log_in("PLAIN")).error_code

    played(scene)


def test_one_address_with_many_strangers_pushes_out_nobody_of_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("moldau.broker.authentication.AUTHENTICATING_MAX", 5)

    async def scene(stage: Stage) -> None:
        honest = [await stage.client(host) for host in ("one", "two")]
        crowd = [await stage.client("crowd") for _ in range(20)]
        for client in crowd[:-3]:
            assert await client.ended()
        for client in (*honest, crowd[-1]):
            assert not (await client.log_in("PLAIN")).error_code

    played(scene)


def test_strangers_make_room_where_there_is_no_more() -> None:
    """Who has said something, but not who it is, does not keep others out for as long as it may take."""

    async def scene(stage: Stage) -> None:
        known = await stage.client()
        await known.log_in("PLAIN")
        strangers = [await stage.client("crowd") for _ in range(4)]
        for one in strangers:
            await one.versions()
        began_s = stage.world.loop.time()
        other = await stage.client("other")
        assert not (await other.log_in("PLAIN")).error_code
        assert stage.world.loop.time() - began_s < 3 * limits.SILENT_S_MAX
        assert await serves(known)

    played(scene, max__connections="5")


def test_the_number_of_frames_before_authentication_is_bounded() -> None:
    async def scene(stage: Stage) -> None:
        client = await stage.client()
        with pytest.raises(Gone):
            for number in range(limits.AUTHENTICATION_FRAMES_MAX + 1):
                client.send(request_frame(API_VERSIONS, 99, number, "test", b"\0"))
                await client.frame()

    played(scene)


@pytest.mark.parametrize("seed", range(40))
def test_nonsense_neither_gets_in_nor_breaks_anything(seed: int, caplog: pytest.LogCaptureFixture) -> None:
    """Right dialogues with bytes changed, cut, doubled and put in another order."""
    chance = random.Random(seed)

    def spoilt(frame: bytes) -> bytes:
        data = bytearray(frame)
        for _ in range(chance.randrange(1, 4)):
            place = chance.randrange(len(data) + 1)
            match chance.randrange(4):
                case 0 if place < len(data):
                    data[place] = chance.randrange(256)
                case 1:
                    del data[place : place + chance.randrange(8)]
                case 2:
                    data[place:place] = chance.randbytes(chance.randrange(8))
                case 3:
                    data += data[place:]
        return SIZE.pack(len(data)) + bytes(data) if chance.randrange(3) else bytes(data)

    def frames() -> list[bytes]:
        wrong = Login(chance.choice(ALL), "alice", "wrong")
        first = next(wrong.messages(chance.randbytes(18)))
        version = chance.randrange(3)
        size = bytes([len(first) + 1]) if version == 2 else SIZE.pack(len(first))
        tail = b"\0" if version == 2 else b""
        name = wrong.mechanism.encode()
        return [
            request_frame(API_VERSIONS, 0, 1, "test", b""),
            request_frame(HANDSHAKE, chance.randrange(2), 2, "test", len(name).to_bytes(2, "big") + name),
            request_frame(AUTHENTICATE, version, 3, "test", size + first + tail),
            request_frame(3, 1, 4, "test", b"\xff\xff\xff\xff"),
        ]

    async def scene(stage: Stage) -> None:
        for _ in range(10):
            client = await stage.client()
            for frame in chance.sample(frames(), chance.randrange(1, 5)):
                with contextlib.suppress(OSError):
                    client.send(spoilt(frame[4:]) if chance.randrange(2) else frame)
                await stage.world.sleep(chance.random() / 100)
            client.close()
        await stage.world.sleep(5)
        assert stage.broker.metrics.authentications == 0
        for connection in stage.broker._server.connections:
            assert connection.principal == "User:ANONYMOUS"
        other = await stage.client("other")
        assert not (await other.log_in("SCRAM-SHA-256")).error_code

    played(scene)
    assert "a request failed" not in caplog.text


# ---- failing slowly -------------------------------------------------------------------------------------------


async def failing_s(stage: Stage, host: str = "client") -> float:
    """How long a wrong password takes."""
    client = await stage.client(host)
    begun_s = stage.world.loop.time()
    answer = await client.log_in("PLAIN", password="wrong")
    assert answer.error_code
    return stage.world.loop.time() - begun_s


def test_a_failure_is_answered_after_the_delay() -> None:
    async def scene(stage: Stage) -> None:
        assert 0.5 <= await failing_s(stage) < 0.6

    played(scene, connection__failed__authentication__delay__ms="500")


def test_requests_behind_a_failure_are_not_served() -> None:
    async def scene(stage: Stage) -> None:
        client = await stage.client()
        await client.handshake("PLAIN")
        body = b"\0\0\0\x09\0alice\0no"
        client.send(request_frame(AUTHENTICATE, 0, 8, "test", body[:13]))
        client.send(request_frame(AUTHENTICATE, 0, 9, "test", f"\0\0\0\x15\0alice\0{PASSWORD}".encode()))
        await client.frame()
        assert await client.ended()
        assert stage.broker.metrics.authentications == 0

    played(scene)


def test_guessing_gets_slower_and_others_are_not_kept_waiting() -> None:
    async def scene(stage: Stage) -> None:
        waits = [await failing_s(stage, "guesser") for _ in range(15)]
        assert waits[0] < 0.2 and waits[-1] >= limits.GUESS_DELAY_S_MAX
        begun_s = stage.world.loop.time()
        other = await stage.client("other")
        assert not (await other.log_in("PLAIN")).error_code
        assert stage.world.loop.time() - begun_s < 0.1
        same = await stage.client("guesser")  # who knows the password is not slowed by those who do not
        assert not (await same.log_in("PLAIN")).error_code
        assert await failing_s(stage, "other") < 0.2

    played(scene)


def test_many_connections_guess_no_faster_than_some(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("moldau.security.sasl.guesses.GUESSES_WAITING_PER_ADDRESS_MAX", 3)
    monkeypatch.setattr("moldau.broker.authentication.GUESSES_HELD_MAX", 10)

    async def scene(stage: Stage) -> None:
        for _ in range(limits.GUESSES_FREE + 6):
            await failing_s(stage, "guesser")

        async def guess() -> bool:
            client = await stage.client("guesser")
            try:
                return bool((await client.log_in("PLAIN", password="wrong")).error_code)
            except Gone:
                return False

        begun_s = stage.world.loop.time()
        guesses = [stage.world.hosts["guesser"].runtime.tasks.spawn(guess(), name="g") for _ in range(20)]
        other = await stage.client("other")
        assert not (await other.log_in("PLAIN")).error_code
        assert stage.world.loop.time() - begun_s < 0.2
        told = [await one for one in guesses]
        took_s = stage.world.loop.time() - begun_s
        assert told.count(True) == 13, "3 at once, 10 waited, 7 were not looked at"
        assert took_s >= limits.GUESS_DELAY_S_MAX * (told.count(True) // 3)

    played(scene)


async def is_let_in(client: Client, password: str = PASSWORD) -> bool:
    try:
        return not (await client.log_in("PLAIN", password=password)).error_code
    except Gone:
        return False


def test_who_knows_the_password_gets_in_behind_those_who_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """One address may be that of many machines."""
    monkeypatch.setattr("moldau.security.sasl.guesses.GUESSES_WAITING_PER_ADDRESS_MAX", 3)

    async def scene(stage: Stage) -> None:
        again = await stage.client("shared")
        await again.log_in("PLAIN")
        await again.handshake("PLAIN")
        spawn = stage.world.host("shared-clients").runtime.tasks.spawn
        for _ in range(limits.GUESSES_FREE + 6):
            await failing_s(stage, "shared")
        guesses = [spawn(is_let_in(await stage.client("shared"), "wrong"), name="guess") for _ in range(3)]
        await stage.world.sleep(0.2)
        begun_s = stage.world.loop.time()
        right = [spawn(is_let_in(await stage.client("shared")), name="right") for _ in range(8)]
        assert not (await again.authenticate(f"\0alice\0{PASSWORD}".encode())).error_code
        assert all([await one for one in right])
        assert stage.world.loop.time() - begun_s < 2 * limits.GUESS_DELAY_S_MAX
        assert not any([await one for one in guesses])

    played(scene, **REAUTH)


def test_nobody_waits_for_ever_to_say_again_who_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("moldau.security.sasl.guesses.GUESSES_WAITING_PER_ADDRESS_MAX", 1)

    async def scene(stage: Stage) -> None:
        async def again(client: Client) -> bool:
            try:
                return bool((await client.authenticate(b"\0alice\0wrong")).error_code)
            except Gone:
                return False

        clients = [await stage.client("shared") for _ in range(40)]
        for client in clients:
            await client.log_in("PLAIN")
            await client.handshake("PLAIN")
        spawn = stage.world.host("shared-clients").runtime.tasks.spawn
        begun_s = stage.world.loop.time()
        told = [await one for one in [spawn(again(client), name="again") for client in clients]]
        assert told[0] and not told[-1]
        assert stage.world.loop.time() - begun_s < limits.AUTHENTICATION_S_MAX + 2

    played(scene, **REAUTH)


# ---- sessions -------------------------------------------------------------------------------------------------


def test_a_session_ends_and_can_be_begun_again() -> None:
    async def scene(stage: Stage) -> None:
        client = await stage.client()
        assert (await client.log_in("SCRAM-SHA-256")).session_lifetime.total_seconds() == 10
        await stage.world.sleep(8)
        assert not (await client.handshake("SCRAM-SHA-256")).error_code
        login = Login("SCRAM-SHA-256", "alice", PASSWORD)
        assert not (await client.say(login.messages(b"z" * 18))).error_code
        await stage.world.sleep(8)
        assert await serves(client)
        await stage.world.sleep(3)
        assert not await serves(client)
        assert stage.broker.metrics.sessions_expired == 1

    played(scene, **REAUTH)


def test_an_expired_session_can_be_begun_again() -> None:
    async def scene(stage: Stage) -> None:
        client = await stage.client()
        await client.log_in("PLAIN")
        await stage.world.sleep(11)
        await client.handshake("PLAIN")
        assert not (await client.authenticate(f"\0alice\0{PASSWORD}".encode())).error_code
        assert await serves(client)

    played(scene, **REAUTH)


def test_a_session_is_not_begun_again_twice_in_a_second() -> None:
    async def scene(stage: Stage) -> None:
        client = await stage.client()
        await client.log_in("PLAIN")
        await client.handshake("PLAIN")
        await client.authenticate(f"\0alice\0{PASSWORD}".encode())
        assert (await client.handshake("PLAIN")).error_code is ErrorCode.illegal_sasl_state
        assert await serves(client)

    played(scene, **REAUTH)


def test_nobody_becomes_another_user_by_beginning_again() -> None:
    async def scene(stage: Stage) -> None:
        client = await stage.client()
        await client.log_in("PLAIN")
        await client.handshake("PLAIN")
        answer = await client.authenticate(b"\0admin\0admin's secret")
        assert answer.error_code is ErrorCode.sasl_authentication_failed
        assert answer.error_message == (
            "Cannot change principals during re-authentication from User.alice: User.admin"
        )
        assert await client.ended()

    played(scene, **REAUTH)


def test_nor_by_another_mechanism() -> None:
    async def scene(stage: Stage) -> None:
        client = await stage.client()
        await client.log_in("PLAIN")
        assert not (await client.handshake("SCRAM-SHA-256")).error_code
        with pytest.raises(Gone):
            await client.authenticate(b"n,,n=alice,r=abc")

    played(scene, **REAUTH)


def test_a_request_within_a_new_beginning_ends_the_connection() -> None:
    async def scene(stage: Stage) -> None:
        client = await stage.client()
        await client.log_in("PLAIN")
        await client.handshake("PLAIN")
        assert not await serves(client)

    played(scene, **REAUTH)


def test_a_wrong_password_in_a_new_beginning_ends_the_connection() -> None:
    async def scene(stage: Stage) -> None:
        client = await stage.client()
        await client.log_in("PLAIN")
        await client.handshake("PLAIN")
        answer = await client.authenticate(b"\0alice\0wrong")
        assert answer.error_message == PLAIN_FAILED
        assert await client.ended()

    played(scene, **REAUTH)


def test_one_strangers_nonsense_does_not_hide_the_failures_of_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "moldau.broker.authentication")

    def said() -> list[str]:
        texts = [record.getMessage() for record in caplog.records]
        caplog.clear()
        return texts

    async def scene(stage: Stage) -> None:
        said()
        for number in range(limits.SAID_LATELY_MAX + 100):
            client = await stage.client("stranger")
            client.send(request_frame(METADATA, number, 1, "test", b""))
            assert await client.ended()
        assert [text.split(": ")[1] for text in said()] == [
            "not ApiVersions or SaslHandshake, but Metadata v0"
        ]
        await failing_s(stage, "guesser")
        assert [text.split(": ")[1:] for text in said()] == [
            ["authentication has failed", "PLAIN", "wrong name or password"]
        ]

    played(scene)


# ---- quotas ---------------------------------------------------------------------------------------------------


def test_what_newcomers_ask_counts_for_nobody() -> None:
    """Else who floods the broker before it says who it is would keep everyone from doing so."""

    async def scene(stage: Stage) -> None:
        quota = QuotaAlteration({"user": None}, [("request_percentage", 0.001)])
        await stage.broker.controller.alter_quotas([quota])
        await stage.world.sleep(1)
        throttling = stage.broker.throttling
        assert throttling is not None
        now_s = stage.broker.clock.monotonic()
        meter = throttling._meters.meter("User:ANONYMOUS", b"test", "test", int(now_s * 1000))
        meter.add(now_s - 5, now_s)
        assert meter.request_ms(now_s) > 0
        client = await stage.client()
        assert (await client.versions()).throttle_time == timedelta(0)
        begun_s = stage.world.loop.time()
        await client.handshake("PLAIN")
        assert stage.world.loop.time() - begun_s < 0.1
        (connection,) = stage.broker._server.connections
        assert connection.meter is None
        await client.authenticate(f"\0alice\0{PASSWORD}".encode())
        await client.metadata()
        assert connection.meter is not None and connection.meter.principal == "User:alice"

    played(scene)


# ---- secrets --------------------------------------------------------------------------------------------------


def test_no_secret_is_in_the_log_the_metrics_or_what_python_shows(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    shown: list[Any] = []

    async def scene(stage: Stage) -> None:
        for mechanism in ALL:
            assert not (await (await stage.client()).log_in(mechanism)).error_code
            assert (await (await stage.client()).log_in(mechanism, password="a wrong secret")).error_code
        config = stage.broker.config
        shown.extend([config, config.sasl, config["listener.name.sasl_plaintext.plain.sasl.jaas.config"]])
        shown.append(await stage.broker.exposed.exposition())
        users = stage.broker.image.configs_of(ResourceType.USER)["alice"]
        shown.append(Credential.parse(Mechanism.SHA_256, users["SCRAM-SHA-256"]))
        shown.append(upsertion("alice", PASSWORD, "SCRAM-SHA-256"))

    played(scene)
    text = caplog.text + "".join(map(repr, shown)) + "".join(map(str, shown))
    assert "secret" not in text
    assert "stored_key=" not in text and "server_key=" not in text
    assert "authentication has failed" in caplog.text
