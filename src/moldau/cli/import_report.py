"""What `moldau import` shows: the topics that it found, what a person should know, and a bar while it copies."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from moldau.cli.output import (
    Column,
    console,
    count_of,
    human_bytes,
    note,
    print_table,
    say,
    wants_drawing,
)

if TYPE_CHECKING:
    from moldau.importer.carry_out import How
    from moldau.importer.plan import Plan
    from moldau.importer.source_log import SourceLog


def show_plan(plan: Plan, as_json: bool) -> None:
    """Before anything is done. With --json all of it comes at the end, in one document."""
    if as_json:
        return
    source = plan.source
    say(
        f"Apache Kafka's node {source.node_id} of cluster {source.cluster_id}"
        f" (metadata.version {source.cluster.metadata_version}): {count_of(len(plan.topics), 'topic')}"
    )
    if plan.topics:
        columns = [
            Column("topic", style="bold"),
            Column("partitions", right=True),
            Column("offsets", right=True),
            Column("size", right=True, fold=False),
            Column("settings"),
        ]
        rows = [
            [
                topic["name"],
                str(topic["partitions"]),
                f"{topic['offsets']:,}",
                human_bytes(topic["bytes"]),
                ", ".join(f"{key}={value}" for key, value in topic["configs"].items()),
            ]
            for topic in topics_of(plan)
        ]
        print_table(columns, rows)
    for remark in plan.notes:
        note(f"Note: {remark}")


def topics_of(plan: Plan) -> list[dict[str, Any]]:
    from moldau.base.internal_topics import INTERNAL_TOPICS
    from moldau.log.names import id_text

    logs_of: dict[str, list[SourceLog]] = {}
    for log in plan.logs:
        logs_of.setdefault(log.partition.topic, []).append(log)
    topics = []
    for topic in plan.topics:
        logs = logs_of.get(topic.name, [])
        topics.append(
            {
                "name": topic.name,
                "id": id_text(topic.topic_id),
                "internal": topic.name in INTERNAL_TOPICS,
                "partitions": len(topic.partitions),
                "offsets": sum(log.next_offset - log.log_start_offset for log in logs),
                "bytes": sum(log.size for log in logs),
                "configs": dict(sorted(topic.configs.items())),
            }
        )
    return topics


def document(plan: Plan, mode: str, data: str, dry_run: bool, how: Mapping[How, int]) -> dict[str, Any]:
    source = plan.source
    return {
        "mode": mode,
        "dry_run": dry_run,
        "from": [folder.path for folder in source.folders],
        "data": data,
        "cluster_id": source.cluster_id,
        "node_id": source.node_id,
        "metadata_version": source.cluster.metadata_version,
        "next_producer_id": source.cluster.next_producer_id,
        "topics": topics_of(plan),
        "partitions": len(plan.logs),
        "bytes": plan.size,
        "brought_over": {way.value: size for way, size in how.items()},
        "notes": plan.notes,
    }


def describe(how: Mapping[How, int]) -> str:
    return ", ".join(f"{human_bytes(size)} {way.value}" for way, size in how.items() if size) or "empty"


@contextlib.contextmanager
def bytes_bar(title: str, total: int) -> Iterator[Callable[[int], object]]:
    """A bar on stderr where a person looks at it; nothing otherwise. It is told of bytes as they are done."""
    if not wants_drawing(sys.stderr):
        yield lambda _bytes: None
        return
    import rich.progress as rich

    shown = (
        rich.TextColumn("{task.description}"),
        rich.BarColumn(),
        rich.DownloadColumn(binary_units=True),
        rich.TransferSpeedColumn(),
        rich.TimeRemainingColumn(),
    )
    with rich.Progress(*shown, console=console(err=True), transient=True) as drawn:
        task = drawn.add_task(title, total=total)
        yield lambda done: drawn.advance(task, done)
