"""Members of consumer groups on raw connections: thousands of them fit into one process, which clients do not.

A member of either protocol does what real clients do: it joins until it is in a generation with everyone else, sends
heartbeats at an even pace, joins again or gives partitions up when it is told to. It tells its `Roll`, which knows when
all are done. It leaves out fetching, retries on another coordinator and every error that a healthy broker does not
give: those end the measurement.
"""

from __future__ import annotations

import asyncio
import struct
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any
from uuid import UUID

from bench.measure import WorkNotDone
from moldau.base.errors import ErrorCode
from moldau.coordinator.group.consumer.embedded import write_assignment
from moldau.coordinator.group.consumer.messages import LEAVING
from moldau.peers.connection import PeerConnection
from moldau.peers.errors import Disconnected
from moldau.runtime.ports import Runtime

HEARTBEAT_S = 0.5
SESSION_MS = 60_000
REBALANCE_MS = 60_000
CLIENT_ID = "bench"
PATIENCE_S = 180.0
ASSIGNOR = "range"
LOADING = (ErrorCode.coordinator_load_in_progress, ErrorCode.not_coordinator)
LOADING_S = 0.02
SUBSCRIPTION_VERSION = 0
#: API keys with the version that is used: the newest that names topics by name.
OFFSET_COMMIT, FIND_COORDINATOR, JOIN_GROUP, HEARTBEAT, LEAVE_GROUP, SYNC_GROUP, GROUP_HEARTBEAT = (
    (8, 9),
    (10, 4),
    (11, 9),
    (12, 4),
    (13, 5),
    (14, 5),
    (68, 1),
)


class Connection:
    """One request at a time; its answer as a message."""

    def __init__(self, connection: PeerConnection) -> None:
        self._connection = connection
        self.close = connection.close

    @classmethod
    async def open(cls, runtime: Runtime, host: str, port: int) -> Connection:
        return cls(await PeerConnection.open(runtime, host, port, CLIENT_ID))

    async def ask(self, api: tuple[int, int], **fields: Any) -> Any:
        try:
            return await self._connection.ask(*api, SimpleNamespace(**fields), PATIENCE_S)
        except Disconnected as error:
            raise WorkNotDone(f"a member's connection: {error}") from error


class Roll:
    """Where every member stands, by its `standing`; knows when so many of them agree."""

    def __init__(self, agrees: Callable[[Mapping[Any, int]], bool]) -> None:
        self._agrees = agrees  # asked with the number of members by standing
        self._standings: dict[object, Any] = {}
        self._counts: Counter[Any] = Counter()
        self._wanted = 0
        self._complete: asyncio.Future[None] | None = None

    def complete(self, members: int) -> asyncio.Future[None]:
        self._wanted = members
        self._complete = asyncio.get_running_loop().create_future()
        return self._complete

    def heard(self, member: ClassicMember | ConsumerMember) -> None:
        before, now = self._standings.get(member), member.standing
        if now != before:
            self._standings[member] = now
            self._counts[now] += 1
            if before is not None:
                self._counts[before] -= 1
                if not self._counts[before]:
                    del self._counts[before]
        done = self._complete
        is_waited_for = done is not None and not done.done() and len(self._standings) == self._wanted
        if done is not None and is_waited_for and self._agrees(self._counts):
            done.set_result(None)


def in_one_generation(standings: Mapping[int, int]) -> bool:
    return len(standings) == 1


def evenly_dealt(partitions: int) -> Callable[[Mapping[tuple[int, int], int]], bool]:
    """All in one epoch, all partitions given out, and nobody has more than one more than another."""

    def agrees(standings: Mapping[tuple[int, int], int]) -> bool:
        if len(standings) > 2:
            return False
        shares = [share for _, share in standings]
        given = sum(share * count for (_, share), count in standings.items())
        one_epoch = len({epoch for epoch, _ in standings}) == 1
        return one_epoch and given == partitions and max(shares) - min(shares) <= 1

    return agrees


class ClassicMember:
    """JoinGroup, SyncGroup, Heartbeat."""

    def __init__(self, connection: Connection, group: str, topic: str, partitions: int, roll: Roll) -> None:
        self.connection = connection
        self.member_id = ""
        self.generation = -1
        self.heartbeats = 0
        self._group = group
        self._topic = topic
        self._partitions = partitions
        self._roll = roll
        self._subscription = struct.pack(
            f">hih{len(topic)}si", SUBSCRIPTION_VERSION, 1, len(topic), topic.encode(), -1
        )

    @property
    def standing(self) -> int:
        return self.generation

    async def run(self) -> None:
        while True:
            await self.join()
            self._roll.heard(self)
            while await self._stays():
                pass

    async def join(self) -> None:
        """Until the member has its assignment."""
        while True:
            joined = await self.connection.ask(
                JOIN_GROUP,
                group_id=self._group,
                session_timeout=SESSION_MS,
                rebalance_timeout=REBALANCE_MS,
                member_id=self.member_id,
                group_instance_id=None,
                protocol_type="consumer",
                protocols=(SimpleNamespace(name=ASSIGNOR, metadata=self._subscription),),
                reason=None,
            )
            self.member_id = joined.member_id
            if joined.error_code == ErrorCode.member_id_required:
                continue
            if await _is_loading(joined.error_code):
                continue
            _expect(joined.error_code, "JoinGroup")
            synced = await self.connection.ask(
                SYNC_GROUP,
                group_id=self._group,
                generation_id=joined.generation_id,
                member_id=self.member_id,
                group_instance_id=None,
                protocol_type="consumer",
                protocol_name=ASSIGNOR,
                assignments=self._assignments([member.member_id for member in joined.members]),
            )
            if synced.error_code != ErrorCode.rebalance_in_progress:
                _expect(synced.error_code, "SyncGroup")
                self.generation = joined.generation_id
                return

    def _assignments(self, members: Sequence[str]) -> tuple[object, ...]:
        """What the leader gives each: every so many-th partition."""
        return tuple(
            SimpleNamespace(
                member_id=member_id,
                assignment=write_assignment(
                    0, {self._topic: tuple(range(number, self._partitions, len(members)))}
                ),
            )
            for number, member_id in enumerate(members)
        )

    async def _stays(self) -> bool:
        """One heartbeat; whether the generation goes on."""
        await asyncio.sleep(HEARTBEAT_S)
        beaten = await self.connection.ask(
            HEARTBEAT,
            group_id=self._group,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=None,
        )
        self.heartbeats += 1
        if beaten.error_code == ErrorCode.rebalance_in_progress:
            return False
        _expect(beaten.error_code, "Heartbeat")
        return True

    async def commit(self, offset: int) -> None:
        partition = SimpleNamespace(
            partition_index=0, committed_offset=offset, committed_leader_epoch=-1, committed_metadata=""
        )
        answer = await self.connection.ask(
            OFFSET_COMMIT,
            group_id=self._group,
            generation_id_or_member_epoch=self.generation,
            member_id=self.member_id,
            group_instance_id=None,
            topics=(SimpleNamespace(name=self._topic, partitions=(partition,)),),
        )
        _expect(answer.topics[0].partitions[0].error_code, "OffsetCommit")

    async def leave(self, connection: Connection) -> None:
        """On another connection: an answer may be under way on its own."""
        member = SimpleNamespace(member_id=self.member_id, group_instance_id=None, reason=None)
        await connection.ask(LEAVE_GROUP, group_id=self._group, members=(member,))


class ConsumerMember:
    """ConsumerGroupHeartbeat (KIP-848)."""

    def __init__(self, connection: Connection, group: str, topic: str, member_id: str, roll: Roll) -> None:
        self.connection = connection
        self.member_id = member_id
        self.epoch = 0
        self.owned: dict[UUID, tuple[int, ...]] = {}
        self.heartbeats = 0
        self._group = group
        self._topic = topic
        self._roll = roll

    @property
    def standing(self) -> tuple[int, int]:
        return self.epoch, sum(map(len, self.owned.values()))

    async def run(self) -> None:
        has_changed = await self._beat(is_first=True)
        while True:
            if not has_changed:  # otherwise the broker is told at once that it was done, as clients do
                await asyncio.sleep(HEARTBEAT_S)
            has_changed = await self._beat(tells_owned=has_changed)

    async def leave(self, connection: Connection) -> None:
        self.connection, self.epoch = connection, LEAVING
        await self._ask()

    async def _beat(self, *, is_first: bool = False, tells_owned: bool = False) -> bool:
        """Whether the member was given another assignment."""
        answer = await self._ask(is_first=is_first, tells_owned=tells_owned)
        while await _is_loading(answer.error_code):
            answer = await self._ask(is_first=is_first, tells_owned=tells_owned)
        self.heartbeats += 1
        _expect(answer.error_code, "ConsumerGroupHeartbeat")
        self.epoch = answer.member_epoch
        before = self.owned
        if answer.assignment is not None:
            self.owned = {one.topic_id: one.partitions for one in answer.assignment.topic_partitions}
        self._roll.heard(self)
        return self.owned != before

    async def _ask(self, *, is_first: bool = False, tells_owned: bool = False) -> Any:
        owned = tuple(
            SimpleNamespace(topic_id=topic_id, partitions=partitions)
            for topic_id, partitions in self.owned.items()
        )
        return await self.connection.ask(
            GROUP_HEARTBEAT,
            group_id=self._group,
            member_id=self.member_id,
            member_epoch=self.epoch,
            instance_id=None,
            rack_id=None,
            rebalance_timeout=REBALANCE_MS if is_first else -1,
            subscribed_topic_names=(self._topic,) if is_first else None,
            subscribed_topic_regex=None,
            server_assignor=None,
            topic_partitions=owned if is_first or tells_owned else None,
        )


async def _is_loading(error: int) -> bool:
    """A coordinator that has just begun, when a broker is used for the first time: ask again, a little later."""
    if error not in LOADING:
        return False
    await asyncio.sleep(LOADING_S)
    return True


def _expect(error: int, what: str) -> None:
    if error:
        raise WorkNotDone(f"{what} was answered {ErrorCode(error).name}")
