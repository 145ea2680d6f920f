"""Members of a classic group as clients are: they join, sync, send heartbeats, commit and read offsets, and fail.

A member takes what the coordinator says for true and tells the model; when its connection or the coordinator is lost it
goes on where the protocol lets it. It knows nothing of how the broker works.
"""

from __future__ import annotations

import struct
from types import SimpleNamespace
from typing import Any

from moldau.base.errors import ErrorCode
from moldau.base.ids import TopicPartition
from moldau.sim.client import Client, Disconnected
from moldau.sim.commits import OFFSET_COMMIT, OFFSET_COMMIT_VERSION, Fate, read_offsets
from moldau.sim.routes import group_coordinator
from moldau.sim.workloads.groups.model import GroupModel

JOIN_GROUP, HEARTBEAT, LEAVE_GROUP, SYNC_GROUP = 11, 12, 13, 14

SESSION_MS = 900
REBALANCE_MS = 1500
JOIN_PATIENCE_S = 4.0
PAUSE_S = (0.02, 0.2)
GROUP = "workers"
TOPIC = "work"
COORDINATOR = group_coordinator(GROUP)


class GroupMember:
    def __init__(self, client: Client, model: GroupModel, partitions: int) -> None:
        self._client = client
        self._random = client.random
        self._model = model
        self._partition_count = partitions
        self._member_id = ""
        self._generation = -1
        self._owned: tuple[TopicPartition, ...] = ()
        self._before: tuple[int, tuple[TopicPartition, ...]] = (-1, ())
        """The generation before this one, and what was owned in it."""

    async def run(self) -> None:
        while not self._client.is_stopping:
            try:
                if self._generation < 0:
                    await self._join()
                else:
                    await self._work()
            except Disconnected:
                await self._client.pause()

    # ---- getting in -----------------------------------------------------------------------------------------

    async def _join(self) -> None:
        joined = await self._ask(
            JOIN_GROUP,
            9,
            SimpleNamespace(
                group_id=GROUP,
                session_timeout=SESSION_MS,
                rebalance_timeout=REBALANCE_MS,
                member_id=self._member_id,
                group_instance_id=None,
                protocol_type="consumer",
                protocols=(SimpleNamespace(name="parts", metadata=b""),),
                reason=None,
            ),
            JOIN_PATIENCE_S,
        )
        if joined.error_code is ErrorCode.member_id_required:
            self._member_id = joined.member_id
        elif joined.error_code is ErrorCode.none:
            self._member_id = joined.member_id
            self._client.count("joins")
            await self._sync(joined)
        else:
            self._on_error(joined.error_code)
            await self._client.pause()

    async def _sync(self, joined: Any) -> None:
        synced = await self._ask(
            SYNC_GROUP,
            5,
            SimpleNamespace(
                group_id=GROUP,
                generation_id=joined.generation_id,
                member_id=self._member_id,
                group_instance_id=None,
                protocol_type="consumer",
                protocol_name=joined.protocol_name,
                assignments=self._assignments(joined),
            ),
            JOIN_PATIENCE_S,
        )
        if synced.error_code is not ErrorCode.none:
            self._on_error(synced.error_code)
            return
        self._generation = joined.generation_id
        indexes = struct.unpack(f">{len(synced.assignment) // 4}i", synced.assignment)
        self._owned = tuple(TopicPartition(TOPIC, index) for index in indexes)
        self._client.count("assignments")
        self._model.on_assigned(self._generation, self._member_id, self._owned)
        await self._read(self._owned)

    def _assignments(self, joined: Any) -> tuple[SimpleNamespace, ...]:
        """The leader deals the partitions out."""
        ids = sorted(member.member_id for member in joined.members)
        return tuple(
            SimpleNamespace(
                member_id=member_id,
                assignment=b"".join(
                    struct.pack(">i", partition)
                    for partition in range(self._partition_count)
                    if partition % len(ids) == number
                ),
            )
            for number, member_id in enumerate(ids)
        )

    # ---- being in -------------------------------------------------------------------------------------------

    async def _work(self) -> None:
        await self._client.runtime.tasks.sleep(self._random.between(*PAUSE_S))
        chance = self._random.random()
        if chance < 0.02:
            await self._leave()
        elif chance < 0.04:
            self._forget()  # the process was restarted, and nobody was told
        elif chance < 0.06:
            await self._client.runtime.tasks.sleep(2 * SESSION_MS / 1000)
        elif chance < 0.12 and self._before[1]:
            await self._commit(*self._before)  # a thread that has not heard of the new generation
        elif chance < 0.4 and self._owned:
            await self._commit(self._generation, self._owned)
        elif chance < 0.5:
            await self._read(tuple(TopicPartition(TOPIC, index) for index in range(self._partition_count)))
        else:
            await self._heartbeat()

    async def _heartbeat(self) -> None:
        heard = await self._ask(HEARTBEAT, 4, self._myself())
        self._on_error(heard.error_code)

    async def _leave(self) -> None:
        leaver = SimpleNamespace(member_id=self._member_id, group_instance_id=None, reason=None)
        await self._ask(LEAVE_GROUP, 5, SimpleNamespace(group_id=GROUP, members=(leaver,)))
        self._client.count("leaves")
        self._forget()

    async def _commit(self, generation: int, owned: tuple[TopicPartition, ...]) -> None:
        place = owned[self._random.randrange(len(owned))]
        number = self._model.commits.on_sent(place, generation)
        row = SimpleNamespace(
            partition_index=place.partition,
            committed_offset=number,
            committed_leader_epoch=-1,
            committed_metadata="",
        )
        request = self._myself()
        request.generation_id_or_member_epoch = generation
        request.topics = (self._client.topic(TOPIC, partitions=(row,)),)
        answer = await self._ask(OFFSET_COMMIT, OFFSET_COMMIT_VERSION, request)
        error = answer.topics[0].partitions[0].error_code
        fate = Fate.of(error)
        self._model.commits.on_answered(number, fate)
        self._client.count(f"commits {fate.value}")
        if generation == self._generation:
            self._on_error(error)

    async def _read(self, places: tuple[TopicPartition, ...]) -> None:
        await read_offsets(self._client, self._model.commits, GROUP, places)

    def _myself(self) -> SimpleNamespace:
        return SimpleNamespace(
            group_id=GROUP, generation_id=self._generation, member_id=self._member_id, group_instance_id=None
        )

    # ---- what goes wrong ------------------------------------------------------------------------------------

    def _on_error(self, error: ErrorCode) -> None:
        if error in (ErrorCode.unknown_member_id, ErrorCode.fenced_instance_id):
            self._forget()
        elif error in (ErrorCode.illegal_generation, ErrorCode.rebalance_in_progress):
            self._before = (self._generation, self._owned)
            self._generation, self._owned = -1, ()
        elif error:
            self._client.mistrust(COORDINATOR)

    def _forget(self) -> None:
        self._member_id, self._generation, self._owned, self._before = "", -1, (), (-1, ())

    async def _ask(self, api_key: int, version: int, message: object, patience_s: float = 2.0) -> Any:
        wire = await self._client.wire(COORDINATOR)
        return await wire.ask(api_key, version, message, patience_s)
