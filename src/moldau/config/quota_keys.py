"""The keys about client quotas: over how long they are measured. Quotas themselves are no keys (`moldau quota`)."""

from __future__ import annotations

from moldau.config.key import Key, Range, Type, Update

QUOTAS = (
    Key(
        "quota.window.num",
        Type.INT,
        "11",
        "Over how many samples the use of client quotas is measured: the last one is still growing.",
        Range(1),
        importance="low",
    ),
    Key(
        "quota.window.size.seconds",
        Type.INT,
        "1",
        "How long each of these samples is. No client waits longer than that for the loop's time, and no new "
        "connection for its turn.",
        Range(1),
        importance="low",
    ),
    Key(
        "controller.quota.window.num",
        Type.INT,
        "11",
        "How many samples of their quota clients may use in one go to create and delete partitions.",
        Range(1),
        importance="low",
    ),
    Key(
        "controller.quota.window.size.seconds",
        Type.INT,
        "1",
        "How long each of these samples is.",
        Range(1),
        importance="low",
    ),
    Key(
        "max.connection.creation.rate",
        Type.INT,
        "2147483647",
        "How many new connections the broker takes in a second; further ones wait. `listener.name.NAME.` in front: on "
        "that listener.",
        Range(0),
        update=Update.CLUSTER_WIDE,
    ),
)
