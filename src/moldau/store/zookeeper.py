"""The cluster store in a ZooKeeper ensemble (3.6 or newer), through kazoo: for brokers on several machines.

One kazoo client is one session of ZooKeeper: it reconnects by itself, and is done with when its session expires; the
store then goes on with another. So nothing that was asked in one session is ever done in the next. A client takes
requests only while it is connected: what it could not send is not sent later, behind the back of whoever has read in
the meantime.

An entry `/a/b` is the node `/a:/b`: what is below a path is in a folder of its own, so that entries need no parents.
Folders are made when something is created in them, and removed again when they are empty, below the first level.

kazoo works in threads of its own; `Bridge` is the one place where they meet the loop. After every reconnect the
server that was found catches up (`sync`) before anything is read from it, and every watch is set again and called.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from kazoo.exceptions import (
    BadVersionError,
    ConnectionClosedError,
    ConnectionLoss,
    KazooException,
    NodeExistsError,
    NoNodeError,
    RolledBackError,
    RuntimeInconsistency,
    SessionExpiredError,
)
from kazoo.protocol.states import KazooState

from moldau.runtime.ports import Tasks
from moldau.runtime.real.machine import OwnThread
from moldau.store.engine import CANDIDATE, Engine, PathWatch
from moldau.store.port import (
    SESSION_TIMEOUT_S,
    Check,
    Conflict,
    Create,
    Delete,
    Entry,
    Operation,
    Put,
    SessionEnded,
    Unavailable,
    Unknown,
    parent_of,
)
from moldau.store.zookeeper_client import Bridge, SessionClient, stop_client
from moldau.store.zookeeper_log import Absence, logger
from moldau.store.zookeeper_reads import NODES_MAX, ReadMany
from moldau.store.zookeeper_url import Address

REQUESTS_MAX = 64
"""Requests of one store that are under way at once; further ones wait. kazoo is told of each by a byte through a socket
that must not fill up."""
MULTI_ATTEMPTS = 10
"""A folder may be removed again while another process is about to create something in it."""
STOP_TIMEOUT_S = 3.0
SHUTDOWN_BOTH = 2
NEXT_SESSION_S = 0.02
OPEN_TIMEOUT_S = 15.0
CATCH_UP_AGAIN_S = 1.0
LOST = (ConnectionLoss, ConnectionClosedError)


class ZookeeperStore(Engine):
    def __init__(self, tasks: Tasks, address: Address, session_timeout_s: float) -> None:
        super().__init__(tasks)
        self._timers = tasks
        self._address = address
        self._timeout_s = session_timeout_s
        self._bridge = Bridge()
        self._client: SessionClient | None = None
        self._is_ready = asyncio.Event()
        """Connected, and caught up."""
        self._absence = Absence(tasks, address.hosts)
        self._silences = 0
        """How often the connection has come or gone."""
        self._refusal = ""
        self._is_closed = False
        self._requests = asyncio.Semaphore(REQUESTS_MAX)
        self._folders: set[str] = set()
        """Those that are known to be there."""
        self._sentinels: dict[str, _Sentinel] = {}
        self._stopping = OwnThread("moldau-zookeeper")

    @classmethod
    async def open(
        cls,
        tasks: Tasks,
        address: Address,
        *,
        session_timeout_s: float = SESSION_TIMEOUT_S,
        timeout_s: float = OPEN_TIMEOUT_S,
    ) -> ZookeeperStore:
        """OSError where no server can be reached in time."""
        store = cls(tasks, address, session_timeout_s)
        store._connect()
        try:
            async with asyncio.timeout(timeout_s):
                await store._is_ready.wait()
        except TimeoutError:
            store.abandon()
            reason = f"no ZooKeeper server at {address.hosts} has taken the connection within {timeout_s:g} s"
            raise Unavailable(f"cannot open the cluster store: {store._refusal or reason}") from None
        return store

    # Entries

    async def get(self, path: str) -> Entry | None:
        try:
            value, stat = await self._ask(lambda client: client.get_async(self._node(path)))
        except NoNodeError:
            return None
        return Entry(path, value, stat.version)

    async def children(self, path: str) -> list[Entry]:
        folder = self._folder(path)
        try:
            names = await self._ask(lambda client: client.get_children_async(folder))
        except NoNodeError:
            return []
        names = sorted(name for name in names if not name.endswith(":"))
        nodes = [f"{folder}/{name}" for name in names]
        parts = [nodes[first : first + NODES_MAX] for first in range(0, len(nodes), NODES_MAX)]
        answers = await asyncio.gather(*(self._ask(partial(_read_many, part)) for part in parts))
        found = [read for answer in answers for read in answer]
        return [
            Entry(f"{path}/{name}", read[0], read[1].version)
            for name, read in zip(names, found, strict=True)
            if read is not None
        ]

    async def multi(self, operations: Sequence[Operation]) -> None:
        session_id = self.session_id
        if session_id is None and any(isinstance(op, Create) and op.ephemeral for op in operations):
            raise SessionEnded("an ephemeral entry needs a session")
        client = self._connected()
        for _ in range(MULTI_ATTEMPTS):
            for operation in operations:
                if isinstance(operation, Create):
                    await self._make_folder(client, parent_of(operation.path))
            failure = await self._commit(client, session_id, operations)
            if failure is None:
                self._tidy(operations)
                return
            operation, error = failure
            if not (isinstance(operation, Create) and isinstance(error, NoNodeError)):
                raise Conflict(operation.path)
            self._forget_folder(parent_of(operation.path))
        raise Unavailable("the folders of the cluster store are removed again and again")

    async def _commit(
        self, client: SessionClient, session_id: str | None, operations: Sequence[Operation]
    ) -> tuple[Operation, Exception] | None:
        """The operation that failed, and why."""
        transaction = client.transaction()
        for operation in operations:
            node = self._node(operation.path)
            match operation:
                case Create(_, value, ephemeral):
                    transaction.create(node, value, ephemeral=ephemeral)
                case Put(_, value, version):
                    transaction.set_data(node, value, version)
                case Delete(_, version):
                    transaction.delete(node, version)
                case Check(_, version):
                    transaction.check(node, version)
        results = await self._write(client, session_id, transaction.commit_async)
        for operation, result in zip(operations, results, strict=False):
            if isinstance(result, Exception) and not isinstance(
                result, RolledBackError | RuntimeInconsistency
            ):
                if not isinstance(result, NodeExistsError | NoNodeError | BadVersionError):
                    raise _unavailable(result)
                return operation, result
        return None

    async def create_candidate(self, path: str, value: bytes) -> str:
        session_id = self.session_id
        while self.session_id == session_id is not None:
            client = self._connected()
            await self._make_folder(client, path)
            prefix = f"{self._folder(path)}/{CANDIDATE}"
            try:
                node = await self._write(
                    client,
                    session_id,
                    lambda: client.create_async(prefix, value, ephemeral=True, sequence=True),  # noqa: B023
                )
                return f"{path}/{node.rpartition('/')[2]}"
            except NoNodeError:
                self._forget_folder(path)
            except Unknown:
                await self._is_ready.wait()
                found = await self._own_candidate(path, session_id)
                if found is not None:
                    return found
        raise SessionEnded("the session is over")

    async def _own_candidate(self, path: str, session_id: str | None) -> str | None:
        """The candidate that this session has already: the answer was lost, or not even the question arrived."""
        folder = self._folder(path)
        for name in sorted(await self._ask(lambda client: client.get_children_async(folder))):
            stat = await self._ask(lambda client: client.exists_async(f"{folder}/{name}"))  # noqa: B023
            if stat is not None and f"{stat.ephemeralOwner:#x}" == session_id:
                return f"{path}/{name}"
        return None

    # The session

    async def begin_session(self, on_end: Callable[[], object]) -> str:
        if self.session_id is not None:
            raise RuntimeError("there is a session already")
        client_id = self._connected().client_id
        if client_id is None:
            raise Unavailable("there is no connection to ZooKeeper")
        session_id = f"{client_id[0]:#x}"
        self.session_begun(session_id, on_end)
        return session_id

    async def end_session(self) -> None:
        if self.session_id is None:
            return
        was_ready = self._is_ready.is_set()
        client = self._client
        self.session_over(self.session_id, tell=False)
        self._client = None
        self._is_ready.clear()
        ended = await self._stop(client)
        self._connect()
        if not (ended and was_ready):
            raise Unavailable("ZooKeeper could not be told of the session's end")
        if not self._is_closed:
            try:
                await asyncio.wait_for(self._is_ready.wait(), STOP_TIMEOUT_S)
            except TimeoutError:
                pass  # the session is over, which is what was asked for

    async def _stop(self, client: SessionClient | None) -> bool:
        """Whether it ended in time; it goes on to end otherwise."""
        if client is None:
            return True
        ending = self.tasks.spawn(self._retire(client), name="end of a ZooKeeper session")
        try:
            await asyncio.wait_for(asyncio.shield(ending), STOP_TIMEOUT_S)
        except TimeoutError:
            return False
        return True

    async def _retire(self, client: SessionClient) -> None:
        await self._stopping.run(stop_client, client)
        self._bridge.drop(client)

    async def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        try:
            await self.end_session()
        except Unavailable:
            pass
        await self._stop(self._client)
        self._let_go()

    def abandon(self) -> None:
        """As if the process had died: ZooKeeper finds out by itself that the session is over."""
        self._is_closed = True
        self.session_over(self.session_id, tell=False)
        client, self._client = self._client, None
        if client is not None:
            client._stopped.set()
            try:
                client._connection._socket.shutdown(SHUTDOWN_BOTH)
            except (AttributeError, OSError):
                pass  # not connected
            self._bridge.drop(client)
        self._let_go()

    def _let_go(self) -> None:
        self._is_ready.clear()
        self._client = None
        self._absence.close()
        self.watches.clear()
        self._stopping.close()

    # The connection

    def _connect(self) -> None:
        if self._is_closed or self._client is not None:
            return
        client = SessionClient(self._address, self._timeout_s)
        client.add_listener(lambda state: self._bridge.to_loop(self._on_state, client, state))
        self._client = client
        client.start_async()

    def _on_state(self, client: SessionClient, state: str) -> None:
        if client is not self._client:
            return
        if self._is_ready.is_set() and state != KazooState.CONNECTED:
            self._absence.begin()
        self._is_ready.clear()
        self._silences += 1
        if state == KazooState.CONNECTED:
            self.tasks.spawn(self._catch_up(client), name="cluster store catches up")
        elif state == KazooState.SUSPENDED:
            self._timers.call_later(self._timeout_s, self._on_silence, client, self._silences)
        elif state == KazooState.LOST:
            self._end(client)

    def _on_silence(self, client: SessionClient, silence: int) -> None:
        """Without a connection ZooKeeper's word on the session does not come either: it has gone by the clock."""
        if client is self._client and silence == self._silences:
            logger.warning("no connection for the session time-out: the session is over")
            self._end(client)

    def _expired(self, client: SessionClient) -> None:
        """As a request shows. A server that took the connection while the session was being closed keeps it open and
        answers its pings, so kazoo will not say it."""
        if client is self._client:
            self._end(client)

    def _end(self, client: SessionClient) -> None:
        self._client = None
        self._is_ready.clear()
        self.session_over(self.session_id)
        self.tasks.spawn(self._retire(client), name="end of a ZooKeeper session")
        self._timers.call_later(NEXT_SESSION_S, self._connect)

    async def _catch_up(self, client: SessionClient) -> None:
        try:
            async with asyncio.timeout(self._timeout_s):
                await self._make_root(client)
                await self._bridge.outcome(client, client.sync_async(self._address.root or "/"))
        except SessionExpiredError:
            self._expired(client)
            return
        except TimeoutError:  # pings are answered, or kazoo would have seen it, but requests are not
            logger.warning("no answer within the session time-out: another connection is tried")
            self._expired(client)
            return
        except LOST:
            return  # the next connection catches up
        except KazooException as error:
            self._refused(error)
            self._timers.call_later(CATCH_UP_AGAIN_S, self._catch_up_again, client, self._silences)
            return
        if client is self._client and client.connected:
            self._absence.end()
            self._is_ready.set()
            for sentinel in self._sentinels.values():
                sentinel.disturbed()

    def _catch_up_again(self, client: SessionClient, silence: int) -> None:
        if client is self._client and silence == self._silences:
            self.tasks.spawn(self._catch_up(client), name="cluster store catches up")

    def _refused(self, error: KazooException) -> None:
        refusal = f"ZooKeeper refuses {self._address.root or '/'}: {type(error).__name__}"
        if refusal != self._refusal:
            logger.error(refusal)
        self._refusal = refusal

    async def _make_root(self, client: SessionClient) -> None:
        path = ""
        for part in self._address.root.split("/")[1:]:
            path += f"/{part}"
            await self._create_folder(client, path)

    # Watches

    def watch(self, path: str, callback: Callable[[], object]) -> PathWatch:
        watch = super().watch(path, callback)
        if path not in self._sentinels:
            self._sentinels[path] = _Sentinel(self, path)
        self._sentinels[path].disturbed()
        return watch

    def unwatched(self, path: str) -> None:
        sentinel = self._sentinels.pop(path, None)
        if sentinel is not None:
            sentinel.is_over = True

    async def set_watches(self, path: str, watch: Callable[[Any], object]) -> None:
        """Be told of the next change of the entry and of those below; Unavailable."""
        folder = self._folder(path)
        await self._ask(lambda client: client.exists_async(self._node(path), watch))
        await self._ask(lambda client: client.exists_async(folder, watch))
        try:
            names = await self._ask(lambda client: client.get_children_async(folder, watch))
        except NoNodeError:
            return
        nodes = [f"{folder}/{name}" for name in names if not name.endswith(":")]
        await asyncio.gather(*(self._ask(partial(_exists, node, watch)) for node in nodes))

    # Nodes

    def _node(self, path: str) -> str:
        return self._address.root + path.replace("/", ":/")[1:]

    def _folder(self, path: str) -> str:
        return self._node(path) + ":"

    async def _make_folder(self, client: SessionClient, path: str) -> None:
        if path not in self._folders:
            above = parent_of(path)
            if above:
                await self._make_folder(client, above)
            try:
                await self._create_folder(client, self._folder(path))
            except NoNodeError:
                self._forget_folder(above)
                await self._make_folder(client, path)
            except KazooException as error:
                if isinstance(error, SessionExpiredError):
                    self._expired(client)
                raise _unavailable(error) from error
            self._folders.add(path)

    async def _create_folder(self, client: SessionClient, node: str) -> None:
        try:
            await self._bridge.outcome(client, client.create_async(node, b""))
        except NodeExistsError:
            pass

    def _forget_folder(self, path: str) -> None:
        while path:
            self._folders.discard(path)
            path = parent_of(path)

    def _tidy(self, operations: Sequence[Operation]) -> None:
        """Remove folders that may be empty now; those with something in them stay."""
        emptied = dict.fromkeys(
            parent_of(operation.path) for operation in operations if isinstance(operation, Delete)
        )
        paths = [path for path in emptied if path.count("/") > 1]
        self._folders.difference_update(paths)
        if paths:
            self.tasks.spawn(self._remove_folders(paths), name="empty folders of the cluster store")

    async def _remove_folders(self, paths: Sequence[str]) -> None:
        for path in paths:
            try:
                await self._ask(partial(_delete, self._folder(path)))
            except (NoNodeError, Unavailable):
                pass  # in use, or gone, or not now: it only takes room

    # Asking

    def _connected(self) -> SessionClient:
        if not self._is_ready.is_set() or self._client is None:
            raise Unavailable("there is no connection to ZooKeeper")
        return self._client

    async def _ask(self, request: Callable[[SessionClient], Any]) -> Any:
        """Read; NoNodeError, Unavailable."""
        async with self._requests:
            try:
                client = self._connected()
                return await self._bridge.outcome(client, request(client))
            except NoNodeError:
                raise
            except KazooException as error:
                raise _unavailable(error) from error

    async def _write(self, client: SessionClient, session_id: str | None, request: Callable[[], Any]) -> Any:
        """NoNodeError, Unknown, SessionEnded, Unavailable."""
        async with self._requests:
            try:
                return await self._bridge.outcome(client, request())
            except NoNodeError:
                raise
            except SessionExpiredError as error:
                self._expired(client)
                self.session_over(session_id)
                raise (Unavailable if session_id is None else SessionEnded)(str(error)) from error
            except ConnectionClosedError as error:
                raise _unavailable(error) from error
            except ConnectionLoss as error:
                raise Unknown("the connection to ZooKeeper was lost") from error
            except KazooException as error:
                raise _unavailable(error) from error


class _Sentinel:
    """Keeps one path's watches set: after an event it sets them again, and then has the watchers called."""

    def __init__(self, store: ZookeeperStore, path: str) -> None:
        self.is_over = False
        self._store = store
        self._path = path
        self._is_disturbed = False
        self._is_at_work = False

    def event(self, _event: Any) -> None:
        """On a thread of kazoo."""
        self._store._bridge.to_loop(self.disturbed)

    def disturbed(self) -> None:
        self._is_disturbed = True
        if not self._is_at_work and not self.is_over and self._store._is_ready.is_set():
            self._is_at_work = True
            self._store.tasks.spawn(self._work(), name=f"watch of {self._path}")

    async def _work(self) -> None:
        try:
            while self._is_disturbed and not self.is_over:
                self._is_disturbed = False
                await self._store.set_watches(self._path, self.event)
                self._store.watches.touched_at(self._path)
        except Unavailable:
            pass  # the next connection sets all watches
        finally:
            self._is_at_work = False


def _read_many(nodes: Sequence[str], client: SessionClient) -> Any:
    result = client.handler.async_result()
    client._call(ReadMany(nodes), result)
    return result


def _delete(node: str, client: SessionClient) -> Any:
    return client.delete_async(node)


def _exists(node: str, watch: Callable[[Any], object], client: SessionClient) -> Any:
    return client.exists_async(node, watch)


def _unavailable(error: Exception) -> Unavailable:
    return Unavailable(f"ZooKeeper: {type(error).__name__} {error}".rstrip())
