"""A client that lies: malformed frames, lying lengths, unknown versions, damaged batches.

It never sends a batch that a broker may take, so none of its records may ever be read (`model.Ledger.check_genuine`),
and what it does may not be felt by anybody else (promise 7).
"""

from __future__ import annotations

from types import SimpleNamespace

from moldau.base.errors import ErrorCode
from moldau.base.ids import TopicPartition
from moldau.records.batch import CRC, CRC_POSITION, CRC_START, HEADER, HEADER_BYTES, crc_of, read_header
from moldau.records.compression import Codec
from moldau.records.record import Record, build_batch
from moldau.sim.client import PRODUCE, Client, Disconnected, Wire
from moldau.wire.codec import encode_request_frame

PAUSE_S = (0.0, 0.2)
ANSWER_WAIT_S = 0.5


class Liar:
    def __init__(self, client: Client, partitions: list[TopicPartition]) -> None:
        self._client = client
        self._random = client.random
        self._partitions = partitions

    async def run(self) -> None:
        lies = (self._garbage, self._cut_frame, self._twisted_frame, self._bad_batch, self._bad_batch)
        client = self._client
        while not client.is_stopping:
            wire = await client.wire()
            client.count("lies")
            wire.ignores_strays = True
            try:
                await lies[self._random.randrange(len(lies))](wire)
            except Disconnected:
                pass
            await client.runtime.tasks.sleep(self._random.between(*PAUSE_S))

    async def _garbage(self, wire: Wire) -> None:
        """Anything at all, under any length."""
        random = self._random
        size = (-1, 0, 7, 40, 1 << 20, 2**31 - 1)[random.randrange(6)]
        wire.send_bytes(size.to_bytes(4, "big", signed=True) + random.bytes(random.randrange(200)))
        await self._leave(wire)

    async def _cut_frame(self, wire: Wire) -> None:
        """The beginning of a good request, and then nothing."""
        frame = self._frame(self._batch())
        wire.send_bytes(frame[: self._random.randrange(len(frame))])
        await self._leave(wire)

    async def _twisted_frame(self, wire: Wire) -> None:
        """A request some of whose bytes before the records are wrong: whatever it says now, its batch is bad too."""
        frame = bytearray(self._frame(self._spoilt(bytearray(self._batch()))))
        for _ in range(1 + self._random.randrange(4)):
            frame[self._random.randrange(min(40, len(frame)))] = self._random.randrange(256)
        wire.send_bytes(bytes(frame))
        await self._leave(wire)

    async def _bad_batch(self, wire: Wire) -> None:
        partition = self._partition()
        data = bytearray(self._batch())
        damage = (self._spoilt, self._miscounted, self._misframed)[self._random.randrange(3)]
        part = SimpleNamespace(index=partition.partition, records=bytes(damage(data)))
        topic = self._client.topic(partition.topic, partition_data=(part,))
        message = SimpleNamespace(transactional_id=None, acks=1, timeout=1000, topic_data=(topic,))
        answer = await wire.ask(PRODUCE, 9, message)
        code = answer.responses[0].partition_responses[0].error_code
        if code is ErrorCode.none:
            self._client.model[partition].fail("a bad batch to be refused", "it was taken")

    # Batches

    def _partition(self) -> TopicPartition:
        return self._partitions[self._random.randrange(len(self._partitions))]

    def _batch(self) -> bytes:
        random = self._random
        now_ms = self._client.runtime.clock.wall_ms()
        count = 1 + random.randrange(4)
        records = [Record(i, now_ms, b"lie", b"lie|" + random.bytes(20)) for i in range(count)]
        return build_batch(records, codec=list(Codec)[random.randrange(3)])

    def _spoilt(self, data: bytearray) -> bytes:
        """A byte is not what the checksum says."""
        data[CRC_START + self._random.randrange(len(data) - CRC_START)] ^= 1 + self._random.randrange(255)
        return bytes(data)

    def _miscounted(self, data: bytearray) -> bytes:
        """The right checksum over a wrong number of records."""
        header = read_header(data)
        HEADER.pack_into(data, 0, *header._replace(count=header.count + 1 + self._random.randrange(1000)))
        CRC.pack_into(data, CRC_POSITION, crc_of(data, 0, len(data)))
        return bytes(data)

    def _misframed(self, data: bytearray) -> bytes:
        """A batch that says it is longer than what was sent."""
        header = read_header(data)
        HEADER.pack_into(
            data, 0, *header._replace(length=header.length + 1 + self._random.randrange(1 << 20))
        )
        return bytes(data[: HEADER_BYTES + self._random.randrange(len(data) - HEADER_BYTES + 1)])

    # Frames

    def _frame(self, batch: bytes) -> bytes:
        partition = self._partition()
        part = SimpleNamespace(index=partition.partition, records=batch)
        topic = self._client.topic(partition.topic, partition_data=(part,))
        message = SimpleNamespace(transactional_id=None, acks=1, timeout=1000, topic_data=(topic,))
        return encode_request_frame(PRODUCE, 9, 1, self._client.name, message)

    async def _leave(self, wire: Wire) -> None:
        """Whatever the answer is, it is not for us to understand."""
        await self._client.runtime.tasks.sleep(self._random.between(0.0, ANSWER_WAIT_S))
        wire.close()
