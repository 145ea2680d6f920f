"""Members that speak the classic protocol in a group of both: it goes over to the newer one while one of its members
is there, and back when the last of them has left.

They are eager, as most are: before they join again they give up everything. In a group that is classic the leader
deals the partitions out; in the others the coordinator does.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from moldau.base.errors import ErrorCode
from moldau.base.ids import TopicPartition
from moldau.coordinator.fields import FieldWriter
from moldau.coordinator.group.consumer.embedded import read_assignment, read_subscription, write_assignment
from moldau.sim.client import Client, Disconnected
from moldau.sim.commits import read_offsets
from moldau.sim.routes import group_coordinator
from moldau.sim.workloads.consumer_groups.members import (
    AWAY_S,
    GROUP,
    PAUSE_S,
    REBALANCE_MS,
    SESSION_MS,
    Interest,
    commit,
)
from moldau.sim.workloads.consumer_groups.model import Belief, ConsumerGroupModel
from moldau.sim.workloads.groups.members import HEARTBEAT, JOIN_GROUP, LEAVE_GROUP, SYNC_GROUP

JOIN_PATIENCE_S = 4.0
PROTOCOL = "range"
NO_GENERATION = -1
FENCED = (ErrorCode.unknown_member_id, ErrorCode.fenced_instance_id)
REJOINS = (ErrorCode.illegal_generation, ErrorCode.rebalance_in_progress)
AGAIN = (
    ErrorCode.coordinator_load_in_progress,
    ErrorCode.coordinator_not_available,
    ErrorCode.not_coordinator,
)


class ClassicMember:
    def __init__(self, client: Client, model: ConsumerGroupModel, interest: Interest) -> None:
        self._client = client
        self._random = client.random
        self._model = model
        self._interest = interest
        self._begin()

    def _begin(self) -> None:
        self._belief: Belief = self._model.on_member(str(self._random.uuid()))
        self._member_id = ""
        self._generation = NO_GENERATION

    async def run(self) -> None:
        while not self._client.is_stopping:
            try:
                await self._client.runtime.tasks.sleep(self._random.between(*PAUSE_S))
                await (self._join() if self._generation == NO_GENERATION else self._work())
            except Disconnected:
                await self._client.pause()

    async def _work(self) -> None:
        chance = self._random.random()
        if chance < 0.04 and not self._model.is_calm:
            await self._leave()
        elif chance < 0.06 and not self._model.is_calm:
            await self._client.runtime.tasks.sleep(2 * SESSION_MS / 1000)
        elif chance < 0.35 and self._belief.owned:
            await commit(
                self._client, self._model, self._belief, self._member_id, self._generation, self._belief.owned
            )
        elif chance < 0.42:
            await read_offsets(self._client, self._model.commits, GROUP, self._interest.all_places)
        else:
            await self._heartbeat()

    # ---- getting in -----------------------------------------------------------------------------------------

    async def _join(self) -> None:
        self._model.on_given_up(self._belief, self._belief.owned)
        joined = await self._ask(JOIN_GROUP, 9, self._join_request(), JOIN_PATIENCE_S)
        if joined.error_code is ErrorCode.member_id_required:
            self._member_id = joined.member_id
        elif joined.error_code is ErrorCode.none:
            self._member_id = joined.member_id
            await self._sync(joined)
        else:
            await self._on_error("JoinGroup", joined.error_code)

    def _join_request(self) -> SimpleNamespace:
        fields = FieldWriter(1).array(len(self._interest.wanted))
        for name in self._interest.wanted:
            fields.string(name)
        metadata = fields.blob(b"").array(0).done()  # it owns nothing
        return SimpleNamespace(
            group_id=GROUP,
            session_timeout=SESSION_MS,
            rebalance_timeout=REBALANCE_MS,
            member_id=self._member_id,
            group_instance_id=None,
            protocol_type="consumer",
            protocols=(SimpleNamespace(name=PROTOCOL, metadata=metadata),),
            reason=None,
        )

    async def _sync(self, joined: Any) -> None:
        sent_s = self._client.runtime.clock.monotonic()
        request = self._myself(joined.generation_id)
        request.protocol_type, request.protocol_name = "consumer", PROTOCOL
        request.assignments = self._dealt(joined)
        synced = await self._ask(SYNC_GROUP, 5, request, JOIN_PATIENCE_S)
        if synced.error_code is not ErrorCode.none:
            await self._on_error("SyncGroup", synced.error_code)
            return
        self._generation = joined.generation_id
        partitions, _ = read_assignment(synced.assignment)
        places = [TopicPartition(name, index) for name, found in partitions.items() for index in found]
        self._model.on_heard(self._belief, sent_s, self._generation, places)
        self._client.count("classic assignments")

    def _dealt(self, joined: Any) -> tuple[SimpleNamespace, ...]:
        """What the leader gives to whom; nothing from all others."""
        wanting: dict[str, list[str]] = {}
        for member in sorted(joined.members, key=lambda member: str(member.member_id)):
            for name in read_subscription(member.metadata).topics:
                wanting.setdefault(name, []).append(member.member_id)
        shares: dict[str, dict[str, tuple[int, ...]]] = {member.member_id: {} for member in joined.members}
        for name, members in wanting.items():
            count = self._interest.topics[name]
            for number, member_id in enumerate(members):
                shares[member_id][name] = tuple(range(number, count, len(members)))
        return tuple(
            SimpleNamespace(member_id=member_id, assignment=write_assignment(1, share))
            for member_id, share in shares.items()
        )

    # ---- being in -------------------------------------------------------------------------------------------

    async def _heartbeat(self) -> None:
        sent_s = self._client.runtime.clock.monotonic()
        heard = await self._ask(HEARTBEAT, 4, self._myself(self._generation))
        if heard.error_code is ErrorCode.none:
            self._model.on_heard(self._belief, sent_s, self._generation, ())
        else:
            await self._on_error("Heartbeat", heard.error_code)

    async def _leave(self) -> None:
        self._model.on_given_up(self._belief, self._belief.owned)
        leaver = SimpleNamespace(member_id=self._member_id, group_instance_id=None, reason=None)
        try:
            await self._ask(LEAVE_GROUP, 5, SimpleNamespace(group_id=GROUP, members=(leaver,)))
        finally:
            self._client.count("leaves")
            self._begin()
        await self._client.runtime.tasks.sleep(self._random.between(*AWAY_S))

    async def _on_error(self, what: str, error: ErrorCode) -> None:
        if error in FENCED:
            self._client.count("fenced")
            self._model.on_given_up(self._belief, self._belief.owned)
            self._begin()
        elif error in REJOINS:
            self._generation = NO_GENERATION
        elif error in AGAIN:
            self._client.mistrust(group_coordinator(GROUP))
        else:
            self._client.model.fail(None, f"{what} of {self._belief.name} to be answered", error.name)
        await self._client.pause()

    def _myself(self, generation: int) -> SimpleNamespace:
        return SimpleNamespace(
            group_id=GROUP, generation_id=generation, member_id=self._member_id, group_instance_id=None
        )

    async def _ask(self, api_key: int, version: int, message: object, patience_s: float = 2.0) -> Any:
        wire = await self._client.wire(group_coordinator(GROUP))
        return await wire.ask(api_key, version, message, patience_s)
