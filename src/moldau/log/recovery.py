"""Opening a log: what its folder holds, mended where a crash or damage left it incomplete. Blocks: runs in
threads.

After a clean stop the recovery point is the end of the log, so opening reads no data: the folder's names,
the small files, the size of the last segment and its last time index entry. That the recovery point is right is
confirmed by the snapshot of the same offset; where there is none, the last segment is gone through.

After a crash everything behind the recovery point is checked batch by batch (length, checksum, offsets that
ascend). At the first bad batch the log ends: the rest of that segment is cut off and later segments are removed.
Segments before the one of the recovery point are not read, but for the last headers of the one just before it; in
that of the recovery point, batches before it are followed by their headers, for the producers and the indexes.
Indexes of these segments are built anew; producers come from the newest good snapshot and the batches behind it,
leader epochs from their checkpoint and the batches. Missing or damaged index, snapshot and checkpoint files are
rebuilt, and a warning says so.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from moldau.log import names
from moldau.log.checkpoints import write_epochs
from moldau.log.disk_errors import is_no_room
from moldau.log.epochs import LeaderEpochs
from moldau.log.found_files import FoundFiles
from moldau.log.index import read_waiting
from moldau.log.loaded import LoadedLog
from moldau.log.mended import Mend, Mended
from moldau.log.producers import Producers
from moldau.log.reindex import build_indexes, count_in, indexes_look_right, install_indexes
from moldau.log.replay import replay
from moldau.log.scan import Batch, DamagedSegment, checked_batches, headers
from moldau.log.segment import INDEX_GAP_BYTES_MAX, RELATIVE_OFFSET_MAX, Segment
from moldau.log.transactions import Aborted
from moldau.log.transactions_index import AbortedIndexes, is_whole, packed
from moldau.records.batch import NO_TIMESTAMP
from moldau.runtime.ports import Disk

logger = logging.getLogger(__name__)

OFFSET_MAX = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Opening:
    """How a log is to be opened."""

    folder: str
    clean: bool
    """Whether the data folder was left by a clean stop."""
    recovery_point: int | None
    """From the checkpoint; None where it knows nothing of this log."""
    log_start_offset: int | None
    """From the checkpoint; None where that is lost."""
    has_checkpoint: bool
    """Whether there is a checkpoint of recovery points at all, or it is lost."""
    index_interval_bytes: int
    now_ms: int
    mended: list[Mended] = field(default_factory=list)
    """What a crash had left unfinished."""

    def note_mended(self, what: Mend, text: str, cut_bytes: int = 0) -> None:
        if self.clean:
            logger.warning(text)
        else:
            self.mended.append(Mended(what, cut_bytes))
            logger.debug(text)


def unopened_log(disk: Disk, folder: str, log_start_offset: int, next_offset: int) -> LoadedLog:
    """In the place of a log that cannot be opened: nothing is read or made."""
    active = Segment.new(disk, folder, next_offset, 0)
    bases = [next_offset]
    return LoadedLog(
        bases, active, next_offset, log_start_offset, next_offset, LeaderEpochs(), Producers(), -1, None
    )


def create_log(
    disk: Disk, folder: str, topic_id: uuid.UUID | None, now_ms: int, start_offset: int = 0
) -> LoadedLog:
    """An empty log in a new folder. Its files come with the first append, but for one that tells a start above 0."""
    disk.make_folder(folder)
    make = Segment.create if start_offset else Segment.new
    active = make(disk, folder, start_offset, now_ms)
    start = start_offset
    return LoadedLog([start], active, start, start, start, LeaderEpochs(), Producers(), -1, topic_id)


def load_log(disk: Disk, opening: Opening) -> LoadedLog:
    files = FoundFiles.of(disk, opening.folder)
    if opening.log_start_offset is None:
        opening = replace(opening, log_start_offset=files.start_of_epochs())
    if not files.bases:
        return _start_anew(disk, opening, files)
    if opening.clean and opening.recovery_point is None:
        # All but the last segment was flushed before the stop.
        opening = replace(opening, recovery_point=files.bases[-1])
    _mend_transaction_indexes(disk, opening, files)
    if opening.clean and _end_is_known(disk, opening, files):
        opening = _with_credible_start(opening, files)
        loaded = _load_clean(disk, opening, files)
    else:
        loaded = _recover(disk, opening, files)
    start = opening.log_start_offset or 0
    if loaded.next_offset < start:
        logger.warning(
            "%s ends at %d, before its start %d: it begins anew there",
            opening.folder,
            loaded.next_offset,
            start,
        )
        return _start_anew(disk, opening, files)
    return loaded


def _end_is_known(disk: Disk, opening: Opening, files: FoundFiles) -> bool:
    """Whether the recovery point is the end of a log that was closed cleanly. A checkpoint has no checksum, so
    another file has to say the same: a clean stop leaves a snapshot at the end."""
    end, last = opening.recovery_point, files.bases[-1]
    assert end is not None
    size = disk.size(files.path(last, names.LOG))
    if size == 0:
        return end == last
    if end <= last:
        return False
    if end not in files.snapshots:
        logger.warning("%s has no snapshot at its end %d: its last segment is checked", opening.folder, end)
        return False
    return True


def _with_credible_start(opening: Opening, files: FoundFiles) -> Opening:
    """Of a log whose end is known: it does not begin behind that, whatever the checkpoint says."""
    start, end = opening.log_start_offset, opening.recovery_point
    assert start is not None and end is not None
    if start <= end:
        return opening
    logger.warning("%s ends at %d, and its start cannot be %d", opening.folder, end, start)
    return replace(opening, log_start_offset=files.start_of_epochs())


def _mend_transaction_indexes(disk: Disk, opening: Opening, files: FoundFiles) -> None:
    """Make damaged indexes of aborted transactions anew, from the batches of their segments."""
    ends = dict(zip(files.bases, [*files.bases[1:], OFFSET_MAX], strict=True))
    for base_offset in files.offsets(names.TRANSACTION_INDEX):
        if base_offset not in ends:
            files.remove(base_offset, names.TRANSACTION_INDEX)  # of a segment that was removed
        elif not is_whole(disk, opening.folder, base_offset, ends[base_offset]):
            path = files.path(base_offset, names.TRANSACTION_INDEX)
            logger.warning("%s is damaged, and made anew", path)
            disk.write_atomic(path, packed(_aborted_in(disk, opening, files, base_offset)))


def _aborted_in(disk: Disk, opening: Opening, files: FoundFiles, base_offset: int) -> list[Aborted]:
    """The transactions that the markers of a segment have aborted."""
    producers = _producers_at(disk, opening, files, base_offset)[1]
    segment = _segment_of(disk, opening, base_offset)
    found: list[Aborted] = []
    try:
        for batch in headers(segment.log, 0, segment.size, read_waiting):
            aborted = producers.add_batch(segment.log, batch, read_waiting)
            if aborted is not None:
                found.append(aborted)
    except DamagedSegment as damage:
        logger.error("aborted transactions behind it are not known: %s", damage)
    return found


def _start_anew(disk: Disk, opening: Opening, files: FoundFiles) -> LoadedLog:
    # Also indexes whose segments are lost: their old entries must not show behind new ones.
    indexed = files.offsets(names.OFFSET_INDEX) + files.offsets(names.TIME_INDEX)
    for base_offset in (*files.bases, *indexed):
        files.remove_segment(base_offset)
    for offset in files.snapshots:
        files.remove(offset, names.SNAPSHOT)
    files.bases = files.snapshots = []
    start = opening.log_start_offset or 0
    make = Segment.create if start else Segment.new
    active = make(disk, opening.folder, start, opening.now_ms)
    epochs = files.epochs(opening.note_mended)
    epochs.truncate_from_end(start + 1)  # a leader that took over here and wrote nothing yet is kept
    return LoadedLog([start], active, start, start, start, epochs, Producers(), -1, files.topic_id())


def _load_clean(disk: Disk, opening: Opening, files: FoundFiles) -> LoadedLog:
    next_offset = opening.recovery_point
    assert next_offset is not None
    _mend_indexes(disk, opening, files.bases)
    last = files.bases[-1]
    active = Segment(disk, opening.folder, last, size=disk.size(files.path(last, names.LOG)), indexed=True)
    active.created_ms = opening.now_ms
    active.load_max_timestamp(read_waiting)
    files.remove_stray_snapshots(keep=next_offset)
    epochs = files.epochs(opening.note_mended, next_offset)
    log_start_offset = max(opening.log_start_offset or 0, files.bases[0])
    snapshot_offset, entries = files.snapshot(not_above=next_offset)
    producers = Producers(entries)
    if snapshot_offset < next_offset:
        _replay(disk, opening, files.bases, snapshot_offset, next_offset, producers)
    return LoadedLog(
        files.bases,
        active,
        next_offset,
        log_start_offset,
        next_offset,
        epochs,
        producers,
        snapshot_offset,
        files.topic_id(),
        files.transaction_indexes(),
    )


def _mend_indexes(disk: Disk, opening: Opening, bases: list[int]) -> None:
    for base_offset in bases:
        if not indexes_look_right(disk, opening.folder, base_offset):
            _rebuild_indexes(disk, opening, base_offset)


def _rebuild_indexes(disk: Disk, opening: Opening, base_offset: int) -> None:
    path = f"{opening.folder}/{names.file_name(base_offset, '')}"
    opening.note_mended(Mend.INDEXES, f"{path}: indexes are rebuilt")
    size = disk.size(path + names.LOG)
    build_indexes(disk, opening.folder, base_offset, size, opening.index_interval_bytes)
    install_indexes(disk, opening.folder, base_offset)


def _producers_at(disk: Disk, opening: Opening, files: FoundFiles, base_offset: int) -> tuple[int, Producers]:
    """The producers before a segment, and the offset of the snapshot that they come from. Batches behind it count
    though the log may begin later by now: it knew of them."""
    snapshot_offset, entries = files.snapshot(not_above=base_offset)
    producers = Producers(entries)
    _replay(disk, opening, files.bases, snapshot_offset, base_offset, producers)
    return snapshot_offset, producers


def _replay(
    disk: Disk, opening: Opening, bases: list[int], start: int, stop: int, producers: Producers
) -> None:
    """Bring the producers from one offset to another."""
    ends = [*bases[1:], stop]
    wanted = [base for base, end in zip(bases, ends, strict=True) if end > start and base < stop]
    replay((_segment_of(disk, opening, base) for base in wanted), start, stop, producers)


def _segment_of(disk: Disk, opening: Opening, base_offset: int) -> Segment:
    """A segment to be gone through, without its indexes."""
    size = disk.size(f"{opening.folder}/{names.file_name(base_offset, names.LOG)}")
    return Segment(disk, opening.folder, base_offset, size=size, indexed=False)


def _recover(disk: Disk, opening: Opening, files: FoundFiles) -> LoadedLog:
    """Check what lies behind the recovery point, and cut the log off where it goes bad."""
    recovery_point = opening.recovery_point or 0
    log_start_offset = max(opening.log_start_offset or 0, files.bases[0])
    first = max([0, *(i for i, base in enumerate(files.bases) if base <= recovery_point)])
    replayed = _Replayed.before(disk, opening, files, files.bases[first], log_start_offset)
    _mend_indexes(disk, opening, files.bases[:first])
    if first and recovery_point <= files.bases[first]:
        _mend_end(disk, opening, files.bases[first - 1], files.bases[first])
    files.bases, active, next_offset = _check_segments(disk, opening, files, first, replayed.take)
    if next_offset < recovery_point:
        logger.error(
            "%s ends at offset %d, but was on the disk up to %d: what lies between is lost",
            opening.folder,
            next_offset,
            recovery_point,
        )
    replayed.cut_off(files, log_start_offset, next_offset)
    replayed.sync(disk, opening.folder, active)
    has_epochs = _write_epochs(disk, opening, replayed.epochs)
    return LoadedLog(
        files.bases,
        active,
        next_offset,
        log_start_offset,
        next_offset if has_epochs else min(recovery_point, next_offset),
        replayed.epochs,
        replayed.producers,
        replayed.snapshot_offset,
        files.topic_id(),
        replayed.aborted.bases,
    )


@dataclass(frozen=True, slots=True)
class _Replayed:
    """What batches say that are gone through again: leader epochs, producers, aborted transactions."""

    epochs: LeaderEpochs
    producers: Producers
    snapshot_offset: int
    """Of the snapshot that the producers come from."""
    aborted: AbortedIndexes

    @classmethod
    def before(
        cls, disk: Disk, opening: Opening, files: FoundFiles, base_offset: int, log_start_offset: int
    ) -> _Replayed:
        """As it was where a segment begins; the indexes of aborted transactions from there on are made anew."""
        epochs = files.epochs(opening.note_mended, begin_offset=log_start_offset)
        snapshot_offset, producers = _producers_at(disk, opening, files, base_offset)
        for base in files.bases:
            if base >= base_offset:
                files.remove(base, names.TRANSACTION_INDEX)
        aborted = AbortedIndexes(disk, opening.folder, files.transaction_indexes())
        return cls(epochs, producers, snapshot_offset, aborted)

    def take(self, segment: Segment, batch: Batch) -> None:
        header = batch.header
        if header.leader_epoch > self.epochs.latest:
            self.epochs.assign(header.leader_epoch, header.base_offset)
        if header.base_offset >= self.snapshot_offset:
            aborted = self.producers.add_batch(segment.log, batch, read_waiting)
            if aborted is not None:
                self.aborted.append(segment.base_offset, aborted)

    def cut_off(self, files: FoundFiles, log_start_offset: int, next_offset: int) -> None:
        """Forget epochs and snapshots from outside the log."""
        self.epochs.truncate_from_end(next_offset)
        self.epochs.truncate_from_start(log_start_offset)
        for offset in files.snapshots:
            if offset > next_offset:
                files.remove(offset, names.SNAPSHOT)
        files.remove_stray_snapshots(keep=self.snapshot_offset)

    def sync(self, disk: Disk, folder: str, active: Segment) -> None:
        """What a killed process had not synced is read and confirmed to retries from now on, so it must outlast a
        power cut; and files that were removed must not come back beside new ones."""
        active.sync()
        for base_offset in self.aborted.bases:
            self.aborted.sync(base_offset)
        disk.sync_folder(folder)


def _write_epochs(disk: Disk, opening: Opening, epochs: LeaderEpochs) -> bool:
    """Whether what the batches told of epochs is on the disk, so that nobody has to go through them again."""
    if epochs.changed:
        try:
            path = f"{opening.folder}/{names.LEADER_EPOCHS}"
            disk.write_atomic(path, write_epochs(epochs.entries))
        except OSError as error:
            if not is_no_room(error):
                raise
            return False  # they are written with the next flush
        epochs.note_written()
    return True


def _mend_end(disk: Disk, opening: Opening, base_offset: int, end_offset: int) -> None:
    """See to the end of a closed segment that was flushed, and then rolled and perhaps not synced: an append that
    failed there was taken back, and what lies behind its last batch is cut off; its indexes may lack entries."""
    size = disk.size(f"{opening.folder}/{names.file_name(base_offset, names.LOG)}")
    segment = Segment(disk, opening.folder, base_offset, size=size, indexed=True)
    entry = segment.offsets.last(read_waiting)
    position = indexed_to = entry[1] if entry and entry[1] < size else 0
    next_offset, newest = base_offset, NO_TIMESTAMP
    try:
        for batch in headers(segment.log, position, size, read_waiting):
            if batch.header.base_offset >= end_offset:
                raise DamagedSegment(segment.log, batch.position, f"offset {batch.header.base_offset}")
            position, next_offset = batch.end_position, batch.header.next_offset
            newest = max(newest, batch.header.max_timestamp)
    except DamagedSegment as damage:
        if next_offset == end_offset:
            dropped = size - position
            opening.note_mended(Mend.ENDS, f"{damage}; cut off there, {dropped} bytes are dropped", dropped)
            segment.log.truncate(position)
        # else it is damage among its batches, which readers are told of
    last = segment.times.last(read_waiting)
    if newest > (last[0] if last else NO_TIMESTAMP) or position - indexed_to > INDEX_GAP_BYTES_MAX:
        _rebuild_indexes(disk, opening, base_offset)
        segment.reload_indexes(read_waiting)
    segment.sync()


def _check_segments(
    disk: Disk, opening: Opening, files: FoundFiles, first: int, take: Callable[[Segment, Batch], None]
) -> tuple[list[int], Segment, int]:
    """Check segments from one on; returns the base offsets that stay, the last segment and the next offset."""
    next_offset = files.bases[first]
    segment: Segment | None = None
    kept = first
    # Compaction may leave a gap before a segment, but only below the recovery point. Above it, the end of the
    # segment before was lost. Where the recovery point is lost, nobody can say which of the two it was.
    compacted_to = (opening.recovery_point or 0) if opening.has_checkpoint else files.bases[-1]
    for base_offset in files.bases[first:]:
        if segment is not None and next_offset < base_offset > compacted_to:
            break
        segment, next_offset, whole = _check_segment(
            disk, opening, base_offset, max(base_offset, next_offset), take
        )
        kept += 1
        if base_offset != files.bases[-1]:
            segment.sync()  # the recovery point will pass it with the next flush of the active segment
        if not whole:
            break
    assert segment is not None
    for base_offset in files.bases[kept:]:
        logger.warning("%s is removed: it lies behind lost data", files.path(base_offset, names.LOG))
        files.remove_segment(base_offset)
    return files.bases[:kept], segment, next_offset


def _check_segment(
    disk: Disk, opening: Opening, base_offset: int, next_offset: int, take: Callable[[Segment, Batch], None]
) -> tuple[Segment, int, bool]:
    """Check one segment, cut it off at the first bad batch, and build its indexes.

    Returns it with the offset after its last batch, and whether it was whole.
    """
    size = disk.size(f"{opening.folder}/{names.file_name(base_offset, names.LOG)}")
    segment = Segment(disk, opening.folder, base_offset, size=0, indexed=False)
    segment.offsets.file.truncate(0)
    segment.times.file.truncate(0)
    segment.created_ms = opening.now_ms
    try:
        for batch in _batches(segment, size, opening.recovery_point or 0):
            _check_offsets(segment, batch, next_offset)
            next_offset = batch.header.next_offset
            count_in(segment, batch, opening.index_interval_bytes)
            take(segment, batch)
    except DamagedSegment as damage:
        dropped = size - segment.size
        text = f"{damage}; cut off there, {dropped} bytes are dropped"
        if next_offset < (opening.recovery_point or 0):
            logger.warning(text)  # it was whole, on the disk
        else:
            opening.note_mended(Mend.ENDS, text, dropped)
        segment.log.truncate(segment.size)
    _seal(segment)
    return segment, next_offset, segment.size == size


def _batches(segment: Segment, size: int, recovery_point: int) -> Iterator[Batch]:
    """Every batch, with all its bytes checked from the recovery point on."""
    position = 0
    for batch in headers(segment.log, 0, size, read_waiting):
        if batch.header.next_offset > recovery_point:
            break
        yield batch
        position = batch.end_position
    segment.checked.above = position
    for batch, _ in checked_batches(segment.log, position, size, read_waiting):
        yield batch


def _seal(segment: Segment) -> None:
    try:
        segment.seal()
    except OSError as error:
        if not is_no_room(error):
            raise
        # Its entries are in memory still; a segment that is closed already is searched the long way.
        logger.warning("%s: there is no room for its indexes", segment.path)


def _check_offsets(segment: Segment, batch: Batch, next_offset: int) -> None:
    header = batch.header
    if header.base_offset < next_offset:
        what = f"offset {header.base_offset} where {next_offset} or more is due"
        raise DamagedSegment(segment.log, batch.position, what)
    if header.last_offset - segment.base_offset > RELATIVE_OFFSET_MAX:
        what = f"offset {header.last_offset} is too far from the segment's base offset"
        raise DamagedSegment(segment.log, batch.position, what)
