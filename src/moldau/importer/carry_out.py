"""Carrying out an import: into a new folder for `moldau up`, or in the very folders that Kafka wrote.

A copy is made in `import.partial` within its place, and moved from there when it is whole and durable. Interrupted, it
leaves nothing that a broker would take for data, and the next import into the same place begins anew. Kafka's
folders are only read.

In place nothing is copied: the store gets its name when it is complete, and from then on the folders are Moldau's.
Kafka's metadata log is put aside under another name, with which Kafka refuses to open the folder: it would take what
Moldau writes from now on for strays.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Protocol
from uuid import UUID

from moldau.controller.persistence import CLUSTER_ID, PersistentImage
from moldau.controller.users import SECRET_BYTES, decoy_record
from moldau.importer.kraft_log import FOLDER as METADATA_FOLDER
from moldau.importer.plan import Plan
from moldau.log import names
from moldau.log.checkpoints import write_offsets, write_properties
from moldau.log.folder import META_VERSION, DataFolder
from moldau.log.inspect.files import OFFSET_CHECKPOINTS
from moldau.metadata.records import ProducerIdsAllocated
from moldau.runtime.ports import Disk, Random
from moldau.store.port import Create, Store

PARTIAL = "import.partial"
ASIDE = METADATA_FOLDER + ".kafka"
"""Kafka's metadata log after an import in place; not the name of a partition's folder."""
OnBytes = Callable[[int], object]


class How(Enum):
    """How a file came over."""

    SHARED = "shared"
    CLONED = "cloned"
    COPIED = "copied"


class Carrier(Protocol):
    """What an import needs of files that the Disk port does not have."""

    def bring(self, source: str, target: str, *, may_share: bool, on_bytes: OnBytes) -> How:
        """Make `target` the same as `source`: one file with it where that is allowed, else one of its own."""
        ...

    def sync(self) -> None:
        """Return when everything that was brought over is durable."""
        ...


def stage_copy(
    plan: Plan,
    folder: str,
    disk: Disk,
    carrier: Carrier,
    *,
    directory_id: UUID,
    share: bool,
    on_bytes: OnBytes,
) -> dict[How, int]:
    """Make a broker's data folder from Kafka's; the bytes by how they came over.

    With `share`, closed segments stay one file with Kafka's: nobody writes to them again.
    """
    disk.make_folder(folder)
    tally = dict.fromkeys(How, 0)
    for log in plan.logs:
        target = f"{folder}/{log.partition}"
        disk.make_folder(target)
        for file in log.files:
            how = carrier.bring(
                f"{log.folder}/{file.name}",
                f"{target}/{file.name}",
                may_share=share and file.is_closed,
                on_bytes=on_bytes,
            )
            tally[how] += file.size
    _write_small_files(plan, folder, disk, directory_id)
    return tally


def _write_small_files(plan: Plan, folder: str, disk: Disk, directory_id: UUID) -> None:
    source = plan.source
    for name in OFFSET_CHECKPOINTS:
        offsets = {
            partition: offset
            for kafka in source.folders
            for partition, offset in kafka.state.checkpoints[name].items()
            if partition in source.logs
        }
        disk.write_atomic(f"{folder}/{name}", write_offsets(offsets))
    properties = {
        "version": META_VERSION,
        "cluster.id": source.cluster_id,
        "node.id": str(source.node_id),
        "directory.id": names.id_text(directory_id),
    }
    disk.write_atomic(f"{folder}/{names.META_PROPERTIES}", write_properties(properties))
    DataFolder(disk, folder).leave_clean_mark(broker_epoch=0)


def publish_copy(disk: Disk, data: str, broker_folder: str, store_name: str) -> None:
    """Move a staged copy to its place. The store comes last: without it the folder's logs are nobody's."""
    for name in (broker_folder, store_name):
        disk.rename(f"{data}/{PARTIAL}/{name}", f"{data}/{name}")
        disk.sync_folder(data)
    disk.remove_tree(f"{data}/{PARTIAL}")


def publish_in_place(plan: Plan, disk: Disk, partial_store: str, store: str) -> None:
    """Give the store its name, and put Kafka's metadata aside."""
    first = plan.source.folders[0].path
    disk.rename(partial_store, store)
    disk.sync_folder(first)
    for folder in plan.source.folders:
        if folder.metadata is not None:
            disk.rename(folder.metadata, f"{folder.path}/{ASIDE}")
            disk.sync_folder(folder.path)


async def write_store(plan: Plan, store: Store, random: Random) -> None:
    """The cluster's identity, the next producer ids, topics and settings, into an empty store."""
    source = plan.source
    await store.multi([Create(CLUSTER_ID, source.cluster_id.encode())])
    image = await PersistentImage.take_over(store, random, source.node_id)
    records = [ProducerIdsAllocated(plan.next_producer_id), *plan.records]
    if plan.has_users:
        records.append(decoy_record(random.bytes(SECRET_BYTES)))
    async for _ in image.write(records):
        pass
