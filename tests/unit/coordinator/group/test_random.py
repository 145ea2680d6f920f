"""Any order of events: the promises of a group hold, and the log alone gives the same group again.

Members act as real clients do, but at random: they join, sync, send heartbeats, commit, leave, fall silent or are
replaced by a second instance; appends fail and coordinators fail over in between. After each step:
- no two members were given one part in one generation;
- a committed offset is what the last acknowledged commit said;
- a shard that replays the log agrees with the one that wrote it, wherever that is between two rebalances.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from moldau.base.errors import ErrorCode
from moldau.coordinator.group.messages import Joined, Synced
from moldau.coordinator.reply import Reply

from .support import Coordinator

MEMBERS = 4
PARTITIONS = 3


@dataclass
class Client:
    """A member as its client sees it."""

    number: int
    instance_id: str | None = None
    member_id: str = ""
    told: Joined | None = None
    joining: Reply | None = None
    syncing: Reply | None = None
    is_synced: bool = False


@dataclass
class World:
    coordinator: Coordinator
    clients: list[Client]
    given: dict[tuple[int, bytes], str] = field(default_factory=dict)
    """Who was given a part of a generation."""
    committed: dict[int, int] = field(default_factory=dict)

    # Steps

    def go_on(self, client: Client) -> None:
        """What a client does next when nothing disturbs it."""
        if client.told is None:
            self.join(client)
        elif not client.is_synced:
            self.sync(client)
        else:
            self.heartbeat(client)

    def join(self, client: Client) -> None:
        if client.joining is None and client.syncing is None:
            client.joining = self.coordinator.join(
                member_id=client.member_id,
                instance_id=client.instance_id,
                is_id_required=client.number % 2 == 0,
                session_timeout_ms=6000 + 1000 * client.number,
                rebalance_timeout_ms=20_000,
            )

    def sync(self, client: Client) -> None:
        if client.told is not None and client.syncing is None and client.joining is None:
            parts = [
                (member.member_id, f"part {number}".encode())
                for number, member in enumerate(client.told.members)
            ]
            client.syncing = self.coordinator.sync(client.told, parts, instance_id=client.instance_id)

    def heartbeat(self, client: Client) -> None:
        if client.told is not None and client.joining is None:
            error = self.coordinator.heartbeat(client.told, client.instance_id)
            self._on_error(client, error)

    def commit(self, client: Client, value: int) -> None:
        if client.told is not None:
            partition = value % PARTITIONS
            fields = {"partition": partition, "instance_id": client.instance_id}
            error = self.coordinator.commit_as(client.told, value, **fields)
            if not error:
                self.committed[partition] = value

    def leave(self, client: Client) -> None:
        if client.member_id:
            self.coordinator.leave((client.member_id, client.instance_id))
            client.member_id, client.told = "", None

    def restart(self, client: Client) -> None:
        """The process begins anew: nobody waits for its answers any more."""
        client.member_id, client.told, client.joining, client.syncing = "", None, None, None

    # Answers

    def settle(self) -> None:
        for client in self.clients:
            if client.joining is not None and client.joining.is_answered:
                self._on_joined(client, client.joining.response)
                client.joining = None
            if client.syncing is not None and client.syncing.is_answered:
                self._on_synced(client, client.syncing.response)
                client.syncing = None

    def _on_joined(self, client: Client, answer: Joined | ErrorCode) -> None:
        if isinstance(answer, ErrorCode):
            client.told = None
        elif answer.error_code is ErrorCode.member_id_required:
            client.member_id = answer.member_id
        elif answer.error_code is ErrorCode.none:
            client.member_id, client.told, client.is_synced = answer.member_id, answer, False
        else:
            self._on_error(client, answer.error_code)

    def _on_synced(self, client: Client, answer: Synced | ErrorCode) -> None:
        if isinstance(answer, ErrorCode) or answer.error_code:
            self._on_error(client, answer if isinstance(answer, ErrorCode) else answer.error_code)
            return
        if client.told is None:
            return
        client.is_synced = True
        if answer.assignment:
            owner = client.instance_id or client.member_id
            first = self.given.setdefault((client.told.generation_id, answer.assignment), owner)
            assert first == owner, f"{answer.assignment!r} went to {first} and to {owner}"

    def _on_error(self, client: Client, error: ErrorCode) -> None:
        if error in (ErrorCode.unknown_member_id, ErrorCode.fenced_instance_id):
            client.member_id, client.told = "", None
        elif error in (ErrorCode.illegal_generation, ErrorCode.rebalance_in_progress):
            client.told = None

    # Checks

    def check(self) -> None:
        coordinator = self.coordinator
        for partition, offset in self.committed.items():
            assert coordinator.committed(partition=partition) == offset
        replayed = coordinator.replayed()
        assert replayed.fetch("g", None, require_stable=False) == coordinator.shard.fetch(
            "g", None, require_stable=False
        )
        if coordinator.state() in ("Stable", "Empty") and coordinator.log and not coordinator.is_behind:
            assert replayed.describe("g") == coordinator.shard.describe("g")


steps = st.lists(
    st.tuples(
        st.sampled_from(
            ["go on"] * 20
            + ["join", "sync", "commit", "commit", "leave", "restart"]
            + ["sleep", "long sleep", "fail over", "refuse", "accept"]
        ),
        st.integers(0, MEMBERS - 1),
        st.integers(0, 100),
    ),
    max_size=120,
)


@settings(deadline=None, max_examples=60)
@given(steps)
def test_the_promises_hold_in_any_order_of_events(plan: list[tuple[str, int, int]]) -> None:
    coordinator = Coordinator()
    clients = [Client(number, "static" if number == 3 else None) for number in range(MEMBERS)]
    world = World(coordinator, clients)
    for what, number, value in plan:
        client = clients[number]
        match what:
            case "go on":
                world.go_on(client)
            case "join":
                world.join(client)
            case "sync":
                world.sync(client)
            case "commit":
                world.commit(client, value)
            case "leave":
                world.leave(client)
            case "restart":
                world.restart(client)
            case "sleep":
                coordinator.sleep(value * 10)
            case "long sleep":
                coordinator.sleep(value * 300)
            case "fail over":
                for reply in coordinator.fail_over():
                    reply.fail(ErrorCode.not_coordinator)
            case "refuse":
                coordinator.refusal = ErrorCode.coordinator_not_available
            case "accept":
                coordinator.refusal = None
        coordinator.sleep(0)
        world.settle()
        world.check()
