"""What each broker of `moldau up --brokers N` is given: its id, its folder, its addresses, and settings that suit N.

Broker I gets the addresses that one broker would get with I - 1 added to each port. Topics get copies on other brokers
as far as there are any: Kafka's own default is one copy of a topic, whatever the number of brokers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from moldau.cli.data_folder import broker_folder, cannot_start, is_broker_folder, visible_names
from moldau.cli.errors import usage
from moldau.cli.reach import listeners_of

if TYPE_CHECKING:
    from moldau.config.broker import BrokerConfig
    from moldau.config.listeners import Endpoint

BROKERS_MAX = 100
REPLICAS_WANTED = 3
PORT_MAX = 65535


def settings_for(brokers: int) -> dict[str, str]:
    """Where `moldau up` starts from something else than Kafka's default."""
    copies = min(REPLICAS_WANTED, brokers)
    in_sync = in_sync_for(brokers)
    settings = {
        "listeners": listeners_of(None, is_open=False),
        # On one machine, for one person: nobody else is about to join a group.
        "group.initial.rebalance.delay.ms": "0",
        "offsets.topic.replication.factor": str(copies),
        "transaction.state.log.replication.factor": str(copies),
        "transaction.state.log.min.isr": str(in_sync),
    }
    if brokers > 1:
        settings |= {"default.replication.factor": str(copies), "min.insync.replicas": str(in_sync)}
    return settings


def in_sync_for(brokers: int) -> int:
    """`min.insync.replicas` of a cluster of so many."""
    return 2 if brokers >= REPLICAS_WANTED else 1


def number_of_brokers(data: str, wanted: int | None) -> int:
    """How many brokers to run: as many as were asked for, or as the data folder has. A broker whose data are there
    is not left out.
    """
    there = broker_ids(data)
    if wanted is None:
        return max(1, len(there))
    if wanted == 1 and len(there) <= 1:
        return 1
    left_out = [number for number in there if number > wanted]
    if not left_out:
        return wanted
    if there == list(range(1, len(there) + 1)):
        raise cannot_start(
            f"The folder {data} has the data of {len(there)} brokers, and --brokers {wanted} would leave out "
            f"{named(left_out)}.",
            f"Start with --brokers {len(there)}; `moldau cluster drain` and `unregister` take a broker out of "
            "the cluster, and its folder can be removed then.",
        )
    raise cannot_start(
        f"The folder {data} has the data of {named(there)}; `moldau up --brokers {wanted}` runs brokers 1 to "
        f"{wanted}.",
        "Name another folder with --data, or run each with `moldau broker --config FILE`.",
    )


def broker_ids(data: str) -> list[int]:
    return sorted(
        int(name.rpartition("-")[2]) for name in visible_names(data) if is_broker_folder(data, name)
    )


def named(ids: Sequence[int]) -> str:
    return f"broker{'s' if len(ids) > 1 else ''} {', '.join(map(str, ids))}"


def configs_of(
    base: BrokerConfig, data: str, brokers: int, free_port: Callable[[], int]
) -> list[BrokerConfig]:
    """The settings of each of the brokers; `free_port` gives a port in place of 0."""
    from moldau.config.broker import BrokerConfig

    configs = []
    for number in range(1, brokers + 1):
        settings = dict(base.static)
        settings |= {
            "node.id": str(number),
            "broker.id": str(number),
            "log.dirs": broker_folder(data, number),
            "listeners": ",".join(str(moved(one, number, free_port)) for one in base.listeners),
        }
        if base.advertised_listeners:
            settings["advertised.listeners"] = ",".join(
                f"{name}://{bracketed(host)}:{shifted(port, number)}"
                for name, (host, port) in base.advertised_listeners.items()
            )
        if base["moldau.http.port"] > 0:
            settings["moldau.http.port"] = str(shifted(base["moldau.http.port"], number))
        configs.append(BrokerConfig.parse(settings))
    return configs


def moved(endpoint: Endpoint, number: int, free_port: Callable[[], int]) -> Endpoint:
    return endpoint._replace(port=shifted(endpoint.port, number) if endpoint.port else free_port())


def shifted(port: int, number: int) -> int:
    result = port + number - 1
    if result > PORT_MAX:
        raise usage(f"There is no port {result} for broker {number}.", "Choose a lower port.")
    return result


def bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def new_brokers(data: str, brokers: int) -> list[int]:
    """Those that join a cluster which was there before."""
    there = broker_ids(data)
    return [number for number in range(1, brokers + 1) if number not in there] if there else []
