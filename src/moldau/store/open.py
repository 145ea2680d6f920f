"""The one place that knows the engines: `open_store` by URL, for the command line, clusters and tests.

`sqlite:PATH` is a file on this machine, `zookeeper:HOST:PORT,...` an ensemble (`zookeeper_url` says what else may
stand there).
"""

from __future__ import annotations

from moldau.runtime.ports import Runtime
from moldau.store.port import SESSION_TIMEOUT_S, Store


def check_store_url(url: str) -> None:
    """ValueError with the reason where a URL names no store; nothing is opened."""
    kind, _, rest = url.partition(":")
    if kind == "sqlite" and rest:
        return
    if kind == "zookeeper" and rest:
        from moldau.store.zookeeper_url import parse

        parse(rest)
        return
    raise ValueError(f"'{url}' is neither sqlite:PATH nor zookeeper:HOST:PORT,.../CHROOT")


async def open_store(
    url: str, runtime: Runtime, session_timeout_s: float = SESSION_TIMEOUT_S, *, syncs: bool = True
) -> Store:
    """ValueError where the URL is wrong, OSError where the store cannot be opened; both say why. `syncs`: not where it
    is a file that is thrown away."""
    check_store_url(url)
    kind, _, rest = url.partition(":")
    if kind == "sqlite":
        from moldau.store.sqlite import SqliteStore

        return await SqliteStore.open(runtime.tasks, rest, session_timeout_s=session_timeout_s, syncs=syncs)
    from moldau.store.zookeeper import ZookeeperStore
    from moldau.store.zookeeper_url import parse

    return await ZookeeperStore.open(runtime.tasks, parse(rest), session_timeout_s=session_timeout_s)
