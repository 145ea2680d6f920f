"""What compaction must know of transactions, as Kafka's cleaner does.

Records of aborted transactions go at once: no reader with read_committed may see them, and nobody else needs
them. A marker goes when nothing of its transaction is left in the log, and then only after it has waited for
`delete.retention.ms` like a tombstone, so that a reader who has seen the records comes to see the marker too.

Which transactions were aborted is the log's to say (its transaction index); without any, all are committed.
"""

from __future__ import annotations

from collections.abc import Iterable

from moldau.log.transactions import Aborted, read_marker
from moldau.records.batch import BatchHeader
from moldau.runtime.ports import Buffer


class Transactions:
    """Fed with every batch of a log in order, from its start on."""

    def __init__(self, aborted: Iterable[Aborted] = ()) -> None:
        self._aborted = sorted(aborted, key=lambda one: one.first_offset, reverse=True)
        self._aborting: dict[int, Aborted] = {}
        self._seen_aborting: set[int] = set()
        """Producers of which a batch of the transaction that is being aborted was still there."""
        self._seen_committing: set[int] = set()
        self.remaining: list[Aborted] = []
        """Aborted ones whose marker stays because some of their batches were there: the new index."""

    def may_discard(self, header: BatchHeader, batch: Buffer) -> bool:
        """Whether a batch is of no use to any reader: its transaction was aborted, or its marker ends one
        of which nothing is left."""
        if not header.is_control:
            return header.is_transactional and self._is_aborted(header)
        self._begin_up_to(header.last_offset)
        if header.count == 0:
            return True  # it was kept for its producer's epoch
        marker = read_marker(batch)
        if marker is None:
            return False  # a control record of another kind
        producer_id = header.producer_id
        if marker.is_commit:
            was_seen = producer_id in self._seen_committing
            self._seen_committing.discard(producer_id)
            return not was_seen
        ended = self._aborting.pop(producer_id, None)
        if ended is None or producer_id not in self._seen_aborting:
            return True
        self._seen_aborting.discard(producer_id)
        self.remaining.append(ended)
        return False

    def _is_aborted(self, header: BatchHeader) -> bool:
        self._begin_up_to(header.last_offset)
        if header.producer_id in self._aborting:
            self._seen_aborting.add(header.producer_id)
            return True
        self._seen_committing.add(header.producer_id)
        return False

    def _begin_up_to(self, offset: int) -> None:
        while self._aborted and self._aborted[-1].first_offset <= offset:
            begun = self._aborted.pop()
            self._aborting[begun.producer_id] = begun
            self._seen_aborting.discard(begun.producer_id)
