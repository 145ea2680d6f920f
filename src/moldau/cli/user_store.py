"""Users of a cluster none of whose brokers runs: read from its store, and written to it as a controller does."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from moldau.broker.membership import live_brokers
from moldau.cli.data_folder import STORE_FILE
from moldau.cli.errors import CliError, usage
from moldau.cli.launch import sentence_case, store_url
from moldau.cli.outcomes import Outcome
from moldau.cli.user import no_user
from moldau.controller.loading import load_image
from moldau.controller.persistence import PersistentImage, check_layout
from moldau.controller.users import SECRET_BYTES, Deletion, Upsertion, UserOutcome, decide_alter_users
from moldau.metadata.image import ClusterImage
from moldau.metadata.records import ResourceType
from moldau.runtime.line import whole
from moldau.runtime.ports import Runtime
from moldau.runtime.real import run
from moldau.security.sasl import DECOYS
from moldau.security.sasl.credentials import MECHANISMS, SALT_BYTES
from moldau.store.open import open_store
from moldau.store.port import Store

NOBODY = -1
"""The controller's id while a command is it."""
T = TypeVar("T")


def url_of(data: str | None, store: str | None) -> str:
    if store is not None:
        return store_url(store, "")
    assert data is not None
    return f"sqlite:{os.path.join(os.path.abspath(data), STORE_FILE)}"


def users(url: str) -> dict[str, list[str]]:
    """The mechanisms of each user."""

    async def read(store: Store, _runtime: Runtime) -> dict[str, list[str]]:
        known = (await load_image(store)).configs_of(ResourceType.USER)
        return {name: [m for m in MECHANISMS if m in own] for name, own in known.items() if name != DECOYS}

    _, _, path = url.partition(":")
    if url.startswith("sqlite:") and not os.path.exists(path):
        raise CliError(f"There is no cluster store {path}.", "`moldau user create` makes it.")
    return _with_store(url, read)


def set_password(url: str, name: str, password: str, mechanisms: Sequence[str], iterations: int) -> Outcome:
    def upsertion(mechanism: str, runtime: Runtime) -> Upsertion:
        kind, salt = MECHANISMS[mechanism], runtime.random.bytes(SALT_BYTES)
        return Upsertion(name, int(kind), iterations, salt, kind.salted(password, salt, iterations))

    async def write(store: Store, runtime: Runtime) -> Outcome:
        state = await _taken_over(store, runtime)
        for mechanism in mechanisms:
            refused = _refused(await _alter(state, runtime, [], [upsertion(mechanism, runtime)]))
            if refused is not None:
                return refused
        return "created"

    _, _, path = url.partition(":")
    if url.startswith("sqlite:"):
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    return _with_store(url, write)


def delete_users(url: str, names: Sequence[str], mechanisms: Sequence[str]) -> dict[str, Outcome]:
    async def write(store: Store, runtime: Runtime) -> dict[str, Outcome]:
        state = await _taken_over(store, runtime)
        return {name: await _delete(state, runtime, name, mechanisms) for name in names}

    return _with_store(url, write)


async def _delete(state: PersistentImage, runtime: Runtime, name: str, mechanisms: Sequence[str]) -> Outcome:
    known = state.image.configs_of(ResourceType.USER).get(name, {})
    own = [mechanism for mechanism in mechanisms if mechanism in known]
    if not own or name == DECOYS:
        return no_user(name)
    for mechanism in own:
        deletion = Deletion(name, int(MECHANISMS[mechanism]))
        if (refused := _refused(await _alter(state, runtime, [deletion], []))) is not None:
            return refused
    return "deleted"


async def _taken_over(store: Store, runtime: Runtime) -> PersistentImage:
    if live := await live_brokers(store):
        raise CliError(
            f"Broker {min(live)} of this cluster runs.",
            "Leave out --data and --store, and name it by --bootstrap.",
        )
    return await PersistentImage.take_over(store, runtime.random, NOBODY)


async def _alter(
    state: PersistentImage, runtime: Runtime, deletions: Sequence[Deletion], upsertions: Sequence[Upsertion]
) -> list[UserOutcome]:
    image: ClusterImage = state.image
    secret = runtime.random.bytes(SECRET_BYTES)
    outcomes, records = whole(decide_alter_users(image, deletions, upsertions, secret))
    async for _ in state.write(records):
        pass
    return outcomes


def _refused(outcomes: Sequence[UserOutcome]) -> CliError | None:
    (outcome,) = outcomes
    return CliError(f"{outcome.user}: {outcome.message}.") if outcome.error else None


def _with_store(url: str, work: Callable[[Store, Runtime], Awaitable[T]]) -> T:
    results: list[T] = []

    async def main(runtime: Runtime) -> None:
        store = await open_store(url, runtime)
        try:
            await check_layout(store)
            results.append(await work(store, runtime))
        finally:
            await store.close()

    try:
        run(main)
    except ValueError as error:
        raise usage(f"{sentence_case(str(error)).rstrip('.')}.") from error
    except OSError as error:
        raise CliError(f"{sentence_case(str(error)).rstrip('.')}.", "Check --data or --store.") from error
    return results[0]
