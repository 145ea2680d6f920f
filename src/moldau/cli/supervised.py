"""The main program of a broker that `moldau up` supervises.

What to run comes in as one JSON line on the standard input, which then stays open as long as the supervisor lives: a
line `stop` asks for a clean stop, and its end is the supervisor's end, and the broker's too, whatever it is doing. What
became of the start goes out on the standard output, a JSON line each; logs go to the standard error, with the name of
the broker. SIGTERM stops it cleanly; Ctrl-C on the terminal, and the terminal's end, are the supervisor's business.
"""

from __future__ import annotations

import asyncio
import ctypes
import json
import logging
import os
import signal
import sys
import threading
from collections.abc import Sequence
from typing import Any, NamedTuple, TextIO

from moldau.cli.errors import CliError, Exit, unexpected
from moldau.cli.first_user import FirstUser
from moldau.cli.launch import Launch, note_hangup, prepare_process, serve, stop_or_leave
from moldau.config.broker import BrokerConfig
from moldau.runtime.ports import Runtime
from moldau.runtime.real import run
from moldau.runtime.real.process import install_hangup_handler

log = logging.getLogger("moldau.cli")

STOP = "stop"
PR_SET_PDEATHSIG = 1  # linux/prctl.h

_output: TextIO = sys.stdout


class Order(NamedTuple):
    """What the supervisor asks for: the fields of a `Launch` that can be written down."""

    name: str
    settings: dict[str, str]
    store: str
    log_level: str
    log_format: str
    supervisor: int
    """Its process id."""
    starting: int
    """How many brokers it starts."""
    thrown_away: str = ""
    first_user: Sequence[str] = ()
    """The fields of a `FirstUser`."""

    def launch(self) -> Launch:
        config = BrokerConfig.parse(self.settings)
        return Launch(
            config,
            self.store,
            log_level=self.log_level,
            log_format=self.log_format,
            name=self.name,
            thrown_away=self.thrown_away,
            starting=self.starting,
            first_user=FirstUser(*self.first_user) if self.first_user else None,
        )


def main() -> None:
    global _output
    _output = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what else is printed gets nowhere between the lines that the supervisor reads
    order = Order(**json.loads(sys.stdin.readline()))
    end_with(order.supervisor)
    if sys.platform != "win32":
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTTOU, signal.SIG_IGN)  # a background process may log to any terminal
    try:
        launch = order.launch()
        prepare_process(launch)
        run(lambda runtime: work(runtime, launch), syncs=not launch.thrown_away)
    except Exception as error:
        said = error if isinstance(error, CliError) else unexpected(error)
        if said is not error:
            log.critical("the broker has ended: %s", error, exc_info=error)
        tell(json.loads(said.as_json()) | {"code": int(said.code)})
        os._exit(said.code)
    os._exit(Exit.OK)  # the thread that listens to the supervisor is not waited for


async def work(runtime: Runtime, launch: Launch) -> None:
    loop = asyncio.get_running_loop()
    stopping, ready = asyncio.Event(), threading.Event()
    if sys.platform != "win32":
        loop.add_signal_handler(signal.SIGTERM, lambda: stop_or_leave(stopping))
    install_hangup_handler(loop, note_hangup)

    def on_ready(servers: str) -> None:
        ready.set()
        tell({"ready": True, "bootstrap_servers": servers})

    threading.Thread(target=listen, args=(loop, stopping, ready), daemon=True).start()
    await serve(runtime, launch, stopping, on_ready)


def listen(loop: asyncio.AbstractEventLoop, stopping: asyncio.Event, ready: threading.Event) -> None:
    """The supervisor's words, until it is gone. A broker that has not worked yet has nothing to close."""
    for line in sys.stdin:
        if line.strip() == STOP and not ready.is_set():
            os._exit(Exit.OK)
        if line.strip() == STOP:
            loop.call_soon_threadsafe(stopping.set)
    os._exit(Exit.FAILED)


def end_with(supervisor: int) -> None:
    """End when the supervisor does, even while this process is stopped or hangs. Elsewhere than on Linux the end of
    the standard input must do.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != supervisor:
            os._exit(Exit.FAILED)  # it ended before we asked


def tell(document: dict[str, Any]) -> None:
    try:
        _output.write(json.dumps(document) + "\n")
        _output.flush()
    except BrokenPipeError:
        pass  # the supervisor is gone, and so are we


if __name__ == "__main__":
    main()
