"""Batches that unfold, claim or repeat too much, and expressions that cost more than their letters."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from moldau.records.compression import Codec

from . import target as content
from .attack import Attack, one, request
from .issue import heartbeat_with, produce_frame
from .records import COUNT_MAX, FUTURE_MS, bomb, claimed_batch, folded_zeros, tiny_records
from .requests import Raw, element_of
from .target import Target

CODECS = (Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD)
TINY = 14_900_000
EXPRESSIONS = {
    "nested repeats": "((.{0,30}){0,30})" * 4,
    "deeply nested": "(" * 2000 + "a" + ")*" * 2000,
    "many alternatives": "(" + "|".join(f"{number:x}{'.?' * 9}z" for number in range(400)) + ")*",
    "optional letters": "".join(f"[{chr(97 + n % 26)}-z]?" for n in range(1600)),
    "long repeats": ".{0,999}" * 5,
    "10,000 letters": ".*a?" * 2500,
    "too long": "a" * 1_000_000,
}


def batches() -> Iterator[Attack]:
    for codec in CODECS:
        name = codec.name.lower()
        for topic, where in ((content.MANY_TOPIC, ""), (content.COMPACTED_TOPIC, ", compacted")):
            if codec is Codec.SNAPPY:  # it folds to no less than 4.7 MB, more than a topic takes
                continue
            for batch, what in (
                (partial(bomb, codec), "one record of 100 MB"),
                (partial(bomb, codec, later_ms=FUTURE_MS), "one record of 100 MB, future timestamp"),
                (partial(tiny_records, codec, TINY), "15 M tiny records"),
                (
                    partial(tiny_records, codec, TINY, later_ms=FUTURE_MS),
                    "15 M tiny records, future timestamp",
                ),
            ):
                yield _produced(f"Produce, 64 partitions x {name}, {what}{where}", topic, batch)
    claims = {
        "2^31-1 records, one byte of gzip": (b"\x1f", Codec.GZIP),
        "2^31-1 records, zstd": (None, Codec.ZSTD),
        "2^31-1 records, uncompressed": (bytes(100), Codec.NONE),
    }
    for claim, (folded, codec) in claims.items():
        make = partial(_claiming, folded, codec)
        yield _produced(
            f"Produce, 64 batches that claim {claim}", content.MANY_TOPIC, make, must_fail=True, is_quick=True
        )


def _claiming(folded: bytes | None, codec: Codec) -> bytes:
    return claimed_batch(folded_zeros(codec, 1_000_000) if folded is None else folded, codec, COUNT_MAX)


def _produced(
    name: str, topic: str, batch: Callable[[], bytes], *, must_fail: bool = False, is_quick: bool = False
) -> Attack:
    def make(_: Target) -> bytes:
        return produce_frame(topic, batch(), content.MANY_PARTITIONS)

    return Attack(name, request("Produce", 9, make, must_fail=must_fail), is_quick=is_quick, spoils=True)


def expressions() -> Iterator[Attack]:
    for what, expression in EXPRESSIONS.items():
        name = f"ConsumerGroupHeartbeat, a regular expression: {what}"
        yield Attack(name, heartbeat_with(expression), is_quick=True)
    for what, expression in EXPRESSIONS.items():
        name = f"ListTransactions, a pattern: {what}"
        yield Attack(name, one("ListTransactions", 2, partial(_patterned, expression)))
    yield Attack(
        "ListTransactions, 100,000 producer ids, 500 transactions",
        one("ListTransactions", 2, _filtered),
        is_quick=True,
    )


def _patterned(expression: str, target: Target) -> dict[str, object]:
    target.ensure(content.many_transactions)
    return {"transactional_id_pattern": expression}


def _filtered(target: Target) -> dict[str, object]:
    target.ensure(content.many_transactions)
    ids = (
        element_of("ListTransactions", 2, "producer_id_filters", 10**12 + number) for number in range(100_000)
    )
    return {"producer_id_filters": Raw(100_000, b"".join(ids))}
