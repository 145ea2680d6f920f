"""`moldau import`: take over the data of an Apache Kafka 4 node that was stopped."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from moldau.cli.complete import folders
from moldau.cli.data_folder import STORE_FILE, broker_folder, prepare_folder, visible_names
from moldau.cli.errors import CliError, file_error, usage
from moldau.cli.help import Command
from moldau.cli.import_report import bytes_bar, describe, document, show_plan
from moldau.cli.log_places import DEFAULT_DATA
from moldau.cli.options import json_option
from moldau.cli.output import count_of, good, human_bytes, note, print_json, say

if TYPE_CHECKING:
    from moldau.importer.carry_out import How
    from moldau.importer.plan import Plan

ROOM_LEFT_BYTES = 64 * 1024 * 1024
"""What an import leaves free on the disk."""


@click.command(
    name="import",
    cls=Command,
    examples="""
# What is in a folder of Kafka's log.dirs, and can it be imported?
moldau import --from /var/lib/kafka --dry-run
# Copy it; Kafka's folder is only read
moldau import --from /var/lib/kafka --data ./moldau-data
moldau up --data ./moldau-data
# Kafka had several log.dirs; do not copy closed segments but share them
moldau import --from /disk1/kafka --from /disk2/kafka --link
# Without a copy: the folder becomes Moldau's, for `moldau broker`
moldau import --in-place /var/lib/kafka
""",
)
@click.option(
    "--from",
    "sources",
    multiple=True,
    metavar="DIR",
    shell_complete=folders,
    help="A folder of Kafka's log.dirs; repeat it for each. It is only read.",
)
@click.option(
    "-d",
    "--data",
    metavar="DIR",
    shell_complete=folders,
    help=f"Where to: a new or empty folder.  [default: {DEFAULT_DATA}]",
)
@click.option("--link", is_flag=True, help="Share closed segments with Kafka's folder as hard links.")
@click.option(
    "--in-place",
    "in_place",
    multiple=True,
    metavar="DIR",
    shell_complete=folders,
    help="Make this folder of Kafka's log.dirs Moldau's own; repeat it for each.",
)
@click.option("-n", "--dry-run", is_flag=True, help="Say what would be imported; write nothing.")
@json_option()
def command(
    sources: tuple[str, ...],
    data: str | None,
    link: bool,
    in_place: tuple[str, ...],
    dry_run: bool,
    as_json: bool,
) -> None:
    """Take over the data of an Apache Kafka 4 node.

    Topics keep their ids, settings and records, with offsets and timestamps; groups keep their committed offsets,
    producers their sequences and transactions; the node keeps its id. Kafka must have been stopped cleanly, and be a
    cluster of one node.
    """
    if bool(sources) == bool(in_place):
        raise usage(
            "Name Kafka's folders with either --from or --in-place.", "--dry-run shows what is there."
        )
    if in_place and (data is not None or link):
        raise usage("--in-place copies nothing, so it takes no --data and no --link.")
    paths = [os.path.abspath(path) for path in sources or in_place]
    plan = planned(paths)
    if in_place:
        import_in_place(plan, dry_run, as_json)
    else:
        import_copy(plan, os.path.abspath(data or DEFAULT_DATA), link, dry_run, as_json)


def planned(paths: Sequence[str]) -> Plan:
    from moldau.cli.log_disk import ReadOnlyDisk
    from moldau.importer.plan import plan_import
    from moldau.importer.refusal import ImportRefused
    from moldau.importer.source import survey
    from moldau.runtime.real.clock import RealClock

    if len(set(paths)) < len(paths):
        raise usage("A folder is named twice.")
    for path in paths:
        if not os.path.isdir(path):
            raise file_error(FileNotFoundError(None, None, path), path)
        if os.path.exists(os.path.join(path, STORE_FILE)):
            raise CliError(
                f"{path} is Moldau's already: it has a {STORE_FILE}.", "Run it with `moldau broker`."
            )
    try:
        return plan_import(survey(ReadOnlyDisk(), paths), RealClock().wall_ms())
    except ImportRefused as refusal:
        raise CliError(refusal.message, refusal.hint) from refusal
    except OSError as error:
        raise file_error(error, paths[0]) from error


# ---- into a new folder ------------------------------------------------------------------------------------------


def import_copy(plan: Plan, data: str, link: bool, dry_run: bool, as_json: bool) -> None:
    mode = "link" if link else "copy"
    show_plan(plan, as_json)
    check_place(data, [folder.path for folder in plan.source.folders])
    how: dict[How, int] = {}
    if not dry_run:
        how = copy_over(plan, data, link)
    if as_json:
        print_json(document(plan, mode, data, dry_run, how))
        return
    total = f"{count_of(len(plan.logs), 'partition')}, {human_bytes(plan.size)}"
    if dry_run:
        note(f"Nothing was written. Without --dry-run, {total} go to {data}.")
    else:
        say(f"{good('imported')}: {total} ({describe(how)}) in {data}")
        say(f"Start it with: moldau up --data {data}")
        note(
            "Settings of Kafka's server.properties are not part of its data: pass on those that matter with --set."
        )


def check_place(data: str, sources: Sequence[str]) -> None:
    from moldau.importer.carry_out import PARTIAL

    for source in sources:
        if (data + os.sep).startswith(source + os.sep):
            raise CliError(
                f"{data} lies in Kafka's own folder {source}.", "Name a folder elsewhere, or use --in-place."
            )
    found = [name for name in visible_names(data) if name != PARTIAL]
    if found:
        raise CliError(
            f"{data} is not empty ({', '.join(found[:3])}).", "Name a new or empty folder with --data."
        )
    if os.path.exists(data) and not os.path.isdir(data):
        raise CliError(f"{data} is not a folder.", "Name a new or empty folder with --data.")


def copy_over(plan: Plan, data: str, link: bool) -> dict[How, int]:
    from moldau.cli.import_files import RealCarrier
    from moldau.controller.persistence import new_uuid
    from moldau.importer.carry_out import PARTIAL, publish_copy, stage_copy
    from moldau.runtime.real.disk import RealDisk
    from moldau.runtime.real.features import Features
    from moldau.runtime.real.random import RealRandom

    was_there = os.path.isdir(data)
    prepare_folder(data, "--data")
    partial = os.path.join(data, PARTIAL)
    remove_leftover(partial)
    disk, carrier = RealDisk(Features.detect()), RealCarrier()
    broker = os.path.basename(broker_folder(data, plan.source.node_id))
    try:
        check_room(plan, data, link)
        with bytes_bar("importing", plan.size) as on_bytes:
            how = stage_copy(
                plan,
                f"{partial}/{broker}",
                disk,
                carrier,
                directory_id=new_uuid(RealRandom()),
                share=link,
                on_bytes=on_bytes,
            )
        make_store(plan, f"{partial}/{STORE_FILE}")
        carrier.sync()
        publish_copy(disk, data, broker, STORE_FILE)
    except BaseException as error:
        remove_all(data, (PARTIAL, broker, STORE_FILE), itself=not was_there)
        if isinstance(error, OSError):
            raise failed(error) from error
        raise
    return how


def remove_all(data: str, made: Sequence[str], *, itself: bool) -> None:
    """What an import that failed has made; the folder was empty before."""
    for name in made:
        shutil.rmtree(os.path.join(data, name), ignore_errors=True)
        remove_files(os.path.join(data, name))
    if itself:
        with contextlib.suppress(OSError):
            os.rmdir(data)


def remove_leftover(path: str) -> None:
    """Of an import that was interrupted."""
    if os.path.isdir(path):
        note(f"Removing {path}, which an interrupted import left.")
        shutil.rmtree(path)


def check_room(plan: Plan, data: str, link: bool) -> None:
    from moldau.cli.import_files import can_clone

    needed = sum(file.size for log in plan.logs for file in log.files if not (link and file.is_closed))
    free = shutil.disk_usage(data).free
    if needed + ROOM_LEFT_BYTES > free and not can_clone(
        f"{plan.source.folders[0].path}/meta.properties", data
    ):
        raise CliError(
            f"{human_bytes(needed)} are to be copied to {data}, where {human_bytes(free)} are free.",
            "Name a folder on another disk, share closed segments with --link, or import with --in-place.",
        )


# ---- in Kafka's own folders -------------------------------------------------------------------------------------


def import_in_place(plan: Plan, dry_run: bool, as_json: bool) -> None:
    paths = [folder.path for folder in plan.source.folders]
    show_plan(plan, as_json)
    if not dry_run:
        take_over(plan)
    if as_json:
        print_json(document(plan, "in-place", paths[0], dry_run, {}))
        return
    total = f"{count_of(len(plan.logs), 'partition')}, {human_bytes(plan.size)}"
    if dry_run:
        note(f"Nothing was written. Without --dry-run, {total} become Moldau's in {', '.join(paths)}.")
    else:
        logs = [folder.path for folder in plan.source.folders if folder.partitions] or paths[:1]
        store = "" if logs[0] == paths[0] else f" --store sqlite:{os.path.join(paths[0], STORE_FILE)}"
        say(f"{good('taken over')}: {total} in {', '.join(paths)}")
        say(
            f"Start it with: moldau broker --config FILE --set node.id={plan.source.node_id}"
            f" --set log.dirs={','.join(logs)}{store}"
        )
        note("FILE may be Kafka's server.properties.")


def take_over(plan: Plan) -> None:
    from moldau.importer.carry_out import publish_in_place
    from moldau.runtime.real.disk import RealDisk
    from moldau.runtime.real.features import Features

    folder = plan.source.folders[0].path
    store = os.path.join(folder, STORE_FILE)
    partial = store + ".partial"  # a file: Kafka would stumble over a folder that is no partition's
    try:
        remove_files(partial)
        make_store(plan, partial)
        give_to_owner(partial, folder)
        publish_in_place(plan, RealDisk(Features.detect()), partial, store)
    except OSError as error:
        remove_files(store)
        raise failed(error) from error
    finally:
        remove_files(partial)


def remove_files(store: str) -> None:
    """A store that is not complete, with what SQLite has beside it."""
    for suffix in ("", "-wal", "-shm"):
        with contextlib.suppress(OSError):
            os.remove(store + suffix)


def give_to_owner(path: str, folder: str) -> None:
    """The broker may run as the user whose folder it is, while root imports."""
    if hasattr(os, "chown"):
        owner = os.stat(folder)
        with contextlib.suppress(PermissionError):  # only root may; a folder that is one's own needs none
            os.chown(path, owner.st_uid, owner.st_gid)


# ---- both -------------------------------------------------------------------------------------------------------


def make_store(plan: Plan, path: str) -> None:
    from moldau.importer.carry_out import write_store
    from moldau.runtime.ports import Runtime
    from moldau.runtime.real import run
    from moldau.store.sqlite import SqliteStore

    async def make(runtime: Runtime) -> None:
        store = await SqliteStore.open(runtime.tasks, path)
        try:
            await write_store(plan, store, runtime.random)
        finally:
            await store.close()

    run(make)


def failed(error: OSError) -> CliError:
    where = f" ({error.filename})" if error.filename else ""
    return CliError(
        f"The import failed: {error.strerror or error}{where}.",
        "Kafka's folder is as it was. Mend the cause and import again.",
    )
