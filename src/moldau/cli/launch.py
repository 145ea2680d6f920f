"""Running a broker in this process: configuration, store, signals, and what can stop it from starting.

The one line `ready: bootstrap.servers=...` on stdout says that clients can work. The first Ctrl-C or SIGTERM stops
cleanly, the second at once. A broker that is a daemon outlives its terminal: SIGHUP is noted, and changes nothing, as
nothing is read from files while it runs. One that is tried at a terminal ends with it, cleanly. Logs go to stderr.
"""

from __future__ import annotations

import asyncio
import errno
import json
import logging
import os
import socket
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from moldau.cli.data_folder import PID_FILE, STORE_FILE, cannot_start
from moldau.cli.errors import CliError, Exit, file_error, usage
from moldau.cli.first_user import FirstUser, see_to_first_user
from moldau.cli.logging_setup import FORMATS, LEVELS, set_up_logging
from moldau.cli.min_isr import MIN_ISR, Wanted, bring_into_force, warn_of_file
from moldau.cli.own_way import OwnWay, address_here

if TYPE_CHECKING:
    from moldau.broker.node import Broker
    from moldau.config.broker import BrokerConfig
    from moldau.config.key import Password
    from moldau.runtime.ports import Address, Runtime
    from moldau.store.port import Store

log = logging.getLogger("moldau.cli")
Decorator = Callable[[Any], Any]


@dataclass(frozen=True)
class Launch:
    """A broker that is to run: its settings, where the cluster's state is, and how it speaks."""

    config: BrokerConfig
    store: str
    as_json: bool = False
    log_level: str = "info"
    log_format: str = "auto"
    name: str = ""
    """Of the process among others of its kind, for the logs: `broker-2`."""
    min_isr: Wanted | None = None
    """What the cluster is to have before this broker is ready."""
    is_daemon: bool = False
    """Run from a configuration file, by a service manager or in the background; else at a terminal, on trial."""
    thrown_away: str = ""
    """The folder of all data, where that is removed at the end: nothing in it is synced or closed."""
    starting: int = 1
    """How many brokers start together, this one included."""
    remarks: Sequence[str] = ()
    """On the settings: what is said of them once there is a log."""
    first_user: FirstUser | None = None
    """Who is to be there before clients can work."""
    on_ready: Callable[[str], object] | None = None
    """Called behind the ready line, with the bootstrap servers."""

    @property
    def pid_file(self) -> str:
        return os.path.join(self.config.log_dir, PID_FILE)


def log_options(function: Any) -> Any:
    level = click.option(
        "--log-level", type=click.Choice(LEVELS), default="info", show_default=True, help="What is logged."
    )
    log_format = click.option(
        "--log-format",
        type=click.Choice(FORMATS),
        default="auto",
        show_default=True,
        help="auto: text on a terminal, else JSON lines.",
    )
    return level(log_format(function))


store_option = click.option(
    "--store",
    metavar="URL",
    help="Where the cluster's state is kept: sqlite:PATH on one machine, "
    f"zookeeper:HOST:PORT,.../CHROOT on several.  [default: {STORE_FILE} with the data]",
)


class Given(NamedTuple):
    """The settings of a broker as a person gave them."""

    config: BrokerConfig
    remarks: tuple[str, ...]
    """What was left out of them."""


def read_config(defaults: Mapping[str, str], path: str | None, options: Mapping[str, str]) -> Given:
    """The broker's settings: options over variables over the file over `defaults`."""
    from moldau.config.broker import BrokerConfig
    from moldau.config.foreign import foreign_keys
    from moldau.config.key import ConfigError
    from moldau.config.sources import is_toml, merged, parse_variables

    try:
        file = {} if path is None else read_file(path)
        foreign = [] if path is None or is_toml(path) else foreign_keys(file)
        known = {name: value for name, value in file.items() if name not in foreign}
        variables = parse_variables(os.environ)
        config = BrokerConfig.parse(merged({**defaults, **known}, variables.settings, options))
    except ConfigError as error:
        raise wrong_config(str(error)) from error
    return Given(config, tuple(remarks_on(path, foreign, variables.unknown)))


def remarks_on(path: str | None, foreign: Sequence[str], variables: Sequence[str]) -> Iterator[str]:
    if foreign:
        yield f"left out of {path}, being no keys of Moldau's: {', '.join(foreign)}"
    if variables:
        yield f"these variables name no configuration key, and have no effect: {', '.join(variables)}"


def read_file(path: str) -> dict[str, str]:
    from moldau.config.key import ConfigError
    from moldau.config.sources import parse_file

    try:
        with open(path, encoding="utf-8") as file:
            return parse_file(path, file.read())
    except ConfigError as error:
        raise usage(
            f"{path}: {error}.", "Write key = value lines, with texts in quotes in a .toml file."
        ) from error
    except UnicodeDecodeError as error:
        raise usage(f"{path} is not a text file in UTF-8.") from error
    except OSError as error:
        raise file_error(error, path) from error


def wrong_config(reason: str) -> CliError:
    sentence = sentence_case(reason)
    if sentence.endswith("?"):
        return usage(sentence)
    return usage(f"{sentence.rstrip('.')}.", "`moldau config keys` explains the keys and their values.")


def sentence_case(text: str) -> str:
    return text[:1].upper() + text[1:]


def configured_store(config: BrokerConfig) -> str:
    found: Password | None = config["moldau.store"]
    return "" if found is None else found.reveal()


def store_url(url: str, default_path: str) -> str:
    """The store that a `--store` names: checked as far as its text goes."""
    from moldau.store.open import check_store_url

    if not url:
        return f"sqlite:{default_path}"
    try:
        check_store_url(url)
    except ValueError as error:
        hint = "" if "sqlite:PATH" in str(error) else "Write zookeeper:HOST:PORT,HOST:PORT,.../CHROOT."
        raise usage(f"--store: {str(error).rstrip('.')}.", hint) from error
    return url


def run_broker(launch: Launch) -> None:
    """Run until a signal; CliError where it cannot start."""
    from moldau.runtime.real import run
    from moldau.runtime.real.process import end_quickly, install_hangup_handler, install_signal_handlers

    async def main(runtime: Runtime) -> None:
        loop, stopping = asyncio.get_running_loop(), asyncio.Event()
        install_signal_handlers(loop, lambda: stop_or_leave(stopping))
        install_hangup_handler(loop, note_hangup if launch.is_daemon else stopping.set)
        await serve(runtime, launch, stopping, on_ready)

    def on_ready(servers: str) -> None:
        announce(servers, launch.as_json)
        if launch.on_ready is not None:
            launch.on_ready(servers)

    prepare_process(launch)
    try:
        run(main, syncs=not launch.thrown_away)
    finally:
        end_quickly()


def prepare_process(launch: Launch) -> None:
    from moldau.runtime.real.process import raise_descriptor_limit

    log_format = "json" if launch.as_json else launch.log_format
    set_up_logging(launch.log_level, log_format, process=launch.name)
    raise_descriptor_limit()
    for warning in (*launch.remarks, *launch.config.warnings):
        log.warning(warning)


async def serve(
    runtime: Runtime, launch: Launch, stopping: asyncio.Event, on_ready: Callable[[str], object]
) -> None:
    """Run a broker until `stopping`, and stop it cleanly; `on_ready` is told the bootstrap servers."""
    from moldau.broker.loading import load_the_rest
    from moldau.broker.node import Broker
    from moldau.broker.sasl import login_of
    from moldau.runtime.real.machine import boot_id
    from moldau.runtime.real.process import tune_gc
    from moldau.runtime.real.web import fetch

    store = await opened_store(runtime, launch)
    broker = Broker(
        launch.config,
        runtime,
        store,
        process_id=os.getpid(),
        boot_id=boot_id(),
        host_name="localhost" if launch.store.startswith("sqlite:") else socket.getfqdn(),
        fetch=fetch,
    )
    broker.on_opened = tune_gc
    try:
        await start(broker, launch)
        if launch.first_user is not None:
            await see_to_first_user(broker, launch.first_user)
        if launch.min_isr is not None:
            way = OwnWay(broker.outward, login_of(launch.config))
            await bring_into_force(way, reached_here(broker), launch.min_isr)
        if launch.is_daemon:
            warn_of_file(launch.config, broker.config[MIN_ISR])
        warn_of_shortages(broker, launch)
        runtime.tasks.spawn(stop_on_failure(broker, stopping), name="watch for failure")
        write_pid(launch.pid_file)  # only now is the folder ours: until here the file may be another broker's
        on_ready(broker.bootstrap_servers)
        runtime.tasks.in_thread(load_the_rest)
        log.info("ready" if launch.name else "ready; Ctrl-C stops it", extra=facts(broker, launch))
        await stopping.wait()
        if broker.failure is not None:
            # Not closed cleanly, on purpose: what is on the disk is checked at the next start.
            raise stopped_itself(broker.failure)
        log.info("stopping")
        if launch.thrown_away:
            broker.crash()
        else:
            await broker.stop()
    finally:
        await store.close()
        remove_pid(launch.pid_file)
    log.info("stopped")


def warn_of_shortages(broker: Broker, launch: Launch) -> None:
    """Of those that start together one speaks: the controller."""
    from moldau.broker.shortage import shortages

    if launch.starting == 1 or broker.active_controller is not None:
        for shortage in shortages(broker.config, broker.image, launch.starting):
            log.warning(shortage.text, extra={"hint": shortage.advice})


def reached_here(broker: Broker) -> Address:
    """Where this process reaches its own broker, as another broker would."""
    return address_here(*broker.listeners[broker.config.inter_broker_listener.name].address)


async def opened_store(runtime: Runtime, launch: Launch) -> Store:
    from moldau.store.open import open_store
    from moldau.store.port import TooNew

    kind, _, path = launch.store.partition(":")
    try:
        if kind == "sqlite":
            os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
        is_kept = not launch.thrown_away or not path.startswith(launch.thrown_away + os.sep)
        timeout_s = launch.config["broker.session.timeout.ms"] / 1000
        return await open_store(launch.store, runtime, timeout_s, syncs=is_kept)
    except TooNew as error:
        raise too_new(error) from error
    except OSError as error:
        hint = "Name another file with --store sqlite:PATH."
        if kind != "sqlite":
            hint = "Check the addresses of --store, and that the ensemble runs."
        raise cannot_start(f"{sentence_case(str(error)).rstrip('.')}.", hint) from error


def too_new(error: OSError) -> CliError:
    return cannot_start(
        f"{sentence_case(str(error))}.",
        "Run the version of Moldau that ran here last, or a newer one"
        " (`pip install --upgrade .` in a clone of Moldau).",
    )


async def start(broker: Broker, launch: Launch) -> None:
    from moldau.broker.membership import IdInUse
    from moldau.config.key import ConfigError
    from moldau.log.folder import DataFolderError
    from moldau.store.port import TooNew

    try:
        await broker.start()
    except IdInUse as error:
        raise cannot_start(
            f"{sentence_case(str(error)).rstrip('.')}.", "Give it another node.id, or end that process."
        ) from error
    except DataFolderError as error:
        # Its text is for people already: what is wrong, then what to do.
        wrong, _, advice = str(error).partition(". ")
        raise cannot_start(f"{sentence_case(wrong).rstrip('.')}.", advice) from error
    except TooNew as error:
        raise too_new(error) from error
    except ConfigError as error:  # of a file that a setting names
        raise wrong_config(str(error)) from error
    except OSError as error:
        raise explain_start(error, launch, broker.listeners) from error


def stopped_itself(failure: BaseException) -> CliError:
    from moldau.log.folder import AllFoldersFailed

    hint = "The log above says where; please report it."
    if isinstance(failure, AllFoldersFailed):
        hint = "Look at the disks (`dmesg` says more), and start it again: it will check its logs."
    return CliError(f"The broker stopped itself: {failure}.", hint)


async def stop_on_failure(broker: Broker, stopping: asyncio.Event) -> None:
    await broker.wait_failed()
    stopping.set()


def facts(broker: Broker, launch: Launch) -> dict[str, str]:
    """What a person wants to know of a broker that has started."""
    told = {"bootstrap_servers": broker.bootstrap_servers, "data": os.path.abspath(launch.config.log_dir)}
    if broker.http is not None:
        host, port = broker.http.address
        scheme = "https" if broker.tls.of_http else "http"
        told["http"] = f"{scheme}://{host}:{port}"
    return told


def stop_or_leave(stopping: asyncio.Event) -> None:
    if stopping.is_set():
        os._exit(Exit.INTERRUPTED)  # the user insists: what is not on disk is recovered at the next start
    stopping.set()


def note_hangup() -> None:
    """SIGHUP to a daemon."""
    log.info(
        "SIGHUP: the broker goes on as it is; `moldau config set broker` changes its settings, SIGTERM stops it"
    )


def announce(bootstrap_servers: str, as_json: bool) -> None:
    line = f"ready: bootstrap.servers={bootstrap_servers}"
    if as_json:
        line = json.dumps({"ready": True, "bootstrap_servers": bootstrap_servers})
    try:
        sys.stdout.write(line + "\n")
        sys.stdout.flush()
    except BrokenPipeError:
        pass  # nobody wants to know; the broker serves all the same


def explain_start(error: OSError, launch: Launch, listening: Collection[str] = ()) -> CliError:
    """Why a broker cannot start, as the operating system said it; `listening` names the listeners that could."""
    address, option = failing_address(launch.config, listening)
    if error.errno == errno.EADDRINUSE:
        return cannot_start(
            f"The port is in use by another process ({address}).",
            f"Choose another with {option}, or end that process.",
        )
    if error.errno == errno.EADDRNOTAVAIL:
        return cannot_start(
            f"This machine has no such address ({address}).", f"Choose another with {option}."
        )
    if error.errno == errno.EHOSTUNREACH:
        unknown = sentence_case(error.strerror or str(error))
        return cannot_start(f"{unknown} ({address}).", f"Choose another with {option}.")
    if isinstance(error, PermissionError) and error.filename is None:
        return cannot_start(
            f"This user may not listen there ({address}).",
            "Take a port above 1023, or run it as another user.",
        )
    reason = error.strerror or str(error)
    place = f" ({error.filename})" if error.filename else ""
    return cannot_start(
        f"The broker cannot start: {reason}{place}.",
        f"`moldau doctor --data {launch.config.log_dir}` looks for the cause.",
    )


def failing_address(config: BrokerConfig, listening: Collection[str]) -> tuple[str, str]:
    """The first address that was not reached when a start failed, and the options that change it."""
    for endpoint in config.listeners:
        if endpoint.name not in listening:
            return str(endpoint), "--port or --set listeners=URL"
    host, port = config["moldau.http.host"], config["moldau.http.port"]
    return f"http://{host}:{port}", "--set moldau.http.port=PORT or moldau.http.host=HOST"


def write_pid(path: str) -> None:
    try:
        with open(path, "w") as file:
            file.write(f"{os.getpid()}\n")
    except (
        OSError
    ) as error:  # a disk that is full, or the one of several that is broken: no reason not to serve
        log.warning("cannot write %s: %s", path, error.strerror)


def remove_pid(path: str) -> None:
    """Remove our own number; that of a broker which holds the folder, and kept us from starting, stays."""
    try:
        with open(path) as file:
            if file.read().strip() != str(os.getpid()):
                return
        os.remove(path)
    except OSError:
        pass
