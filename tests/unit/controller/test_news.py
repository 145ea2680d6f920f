"""What the controller's log tells of topics and configs."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import pytest

from moldau.base.errors import ErrorCode
from moldau.base.limits import NEWS_LINES_MAX, NEWS_WINDOW_S
from moldau.controller.configs import Alteration, Alterations, Operation
from moldau.controller.news import News
from moldau.controller.topics import MorePartitions, NewTopic, TopicReference
from moldau.metadata.records import ConfigChanged, ConfigResource, ResourceType
from moldau.store.memory import MemoryStore

from .stores import TestTasks
from .test_controller import Node, run

RETENTION = "retention.ms"


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.message for record in caplog.records if record.name == "moldau.controller.news"]


async def alter(node: Node, type_: ResourceType, name: str, *changes: Alteration) -> None:
    (outcome,) = await node.controller.alter_configs([Alterations(type_, name, changes)])
    assert outcome.error is ErrorCode.none, outcome


def test_topics_and_configs_that_are_created_changed_and_deleted_are_a_line_each(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main() -> None:
        node = await Node.start(MemoryStore())
        await node.controller.create_topics([NewTopic("orders", 3, 1, configs=[(RETENTION, "1000")])])
        await node.controller.create_partitions([MorePartitions("orders", 5)])
        await alter(node, ResourceType.TOPIC, "orders", Alteration(RETENTION, "2000"))
        await alter(node, ResourceType.TOPIC, "orders", Alteration(RETENTION, "2000"))
        await alter(node, ResourceType.TOPIC, "orders", Alteration(RETENTION, None, Operation.DELETE))
        await alter(node, ResourceType.BROKER, "", Alteration("log.retention.ms", "5000"))
        await node.controller.delete_topics([TopicReference("orders")])

    with caplog.at_level(logging.INFO):
        run(main())
    assert told(caplog) == [
        "topic orders is created: partitions=3, replication.factor=1, retention.ms=1000",
        "topic orders has more partitions: 5, and had 3",
        "config of topic orders is changed: retention.ms=2000 (was 1000)",
        "config of topic orders is changed: retention.ms is not set any more",
        "config of all brokers is changed: log.retention.ms=5000",
        "topic orders is deleted",
    ]


class Window(TestTasks):
    """Ends when it is told to."""

    def call_later(self, delay_s: float, callback: Any, *args: Any) -> Any:
        assert delay_s == NEWS_WINDOW_S
        self.end = callback


@pytest.mark.parametrize(
    "name",
    ["ssl.keystore.password", "listener.name.external.plain.sasl.jaas.config", "made.up.plugin.secret"],
)
def test_what_may_be_a_password_is_not_told(caplog: pytest.LogCaptureFixture, name: str) -> None:
    async def main() -> None:
        node = await Node.start(MemoryStore())
        news, changed = (
            News(Window()),
            ConfigChanged(ConfigResource(ResourceType.BROKER, "1"), {name: "hush"}),
        )
        news.tell(news.prepare(node.controller.image, [changed]), [changed])

    with caplog.at_level(logging.INFO):
        run(main())
    assert told(caplog) == [f"config of broker 1 is changed: {name} (hidden)"]


def test_what_is_refused_or_only_validated_is_no_news(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        node = await Node.start(MemoryStore())
        await node.controller.create_topics([NewTopic("a", 1, 1)], validate_only=True)
        await node.controller.create_topics([NewTopic("a", 1, 7)])
        await node.controller.delete_topics([TopicReference("a")])

    with caplog.at_level(logging.INFO):
        run(main())
    assert told(caplog) == []


def test_whoever_changes_much_at_once_does_not_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    def topics(first: int, count: int) -> Sequence[NewTopic]:
        return [NewTopic(f"t{number}", 1, 1) for number in range(first, first + count)]

    window = Window()

    async def main() -> None:
        node = await Node.start(MemoryStore())
        node.controller._news = News(window)
        await node.controller.create_topics(topics(0, NEWS_LINES_MAX + 20))
        await node.controller.create_topics(topics(1000, 1))
        assert len(told(caplog)) == NEWS_LINES_MAX
        window.end()
        await node.controller.create_topics(topics(2000, 1))

    with caplog.at_level(logging.INFO):
        run(main())
    lines = told(caplog)
    assert len(lines) == NEWS_LINES_MAX + 2
    assert lines[NEWS_LINES_MAX] == "21 more changes of topics and configs are not told one by one"
    assert lines[-1].startswith("topic t2000 is created")


def test_a_line_stays_a_line_and_short(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        node = await Node.start(MemoryStore())
        match = Alteration("match", "client_id=" + "x" * 500)
        await alter(node, ResourceType.CLIENT_METRICS, "two\nlines", match)

    with caplog.at_level(logging.INFO):
        run(main())
    (line,) = told(caplog)
    assert "\n" not in line and len(line) < 200
