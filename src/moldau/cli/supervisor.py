"""Several brokers on this machine, a process each: started together, started again when they end, stopped together.

Ready means that all are, and know each other. A broker that cannot start when the cluster does (a port in use, a folder
that is not its own) ends everything with its sentence; later it is tried again and again, with pauses. The first signal
stops the brokers one after the other, so that what they lead moves to those that are left and nothing needs to be
recovered, or all together where the data are thrown away; the second ends them at once. No broker outlives its
supervisor (`supervised` is their side).
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from moldau.cli.acquainted import wait_until_acquainted
from moldau.cli.data_folder import PID_FILE
from moldau.cli.errors import CliError, Exit
from moldau.cli.launch import announce
from moldau.cli.min_isr import Wanted, bring_into_force
from moldau.cli.own_way import OwnWay, address_here
from moldau.cli.restarts import Restarts
from moldau.cli.supervised import STOP, Order
from moldau.config.broker import BrokerConfig
from moldau.runtime.ports import Address
from moldau.runtime.real import close_runtime, real_runtime
from moldau.runtime.real.process import install_hangup_handler, install_signal_handlers

log = logging.getLogger("moldau.cli")

PROGRAM = ("-m", "moldau.cli.supervised")
STOP_TIMEOUT_S = 30.0
"""A broker that takes longer to stop is killed, and recovers at its next start."""
TOLD_BYTES_MAX = 1 << 20  # of one line from a broker


class Keeper:
    """Keeps one broker running."""

    def __init__(self, order: Order, *, restarts: bool) -> None:
        self.name = order.name
        self.bootstrap_servers = ""
        self.started: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when the broker works for the first time; a CliError where it cannot."""
        self.is_running = True
        self._order = order
        self._restarts = Restarts() if restarts else None
        self._process: asyncio.subprocess.Process | None = None
        self._ready_s: float | None = None
        self._error: CliError | None = None
        self._is_stopping = False

    async def keep(self) -> None:
        """Until it is stopped, or for good where it ended and is not started again."""
        try:
            while not self._is_stopping:
                await self._run_once()
                if self._is_stopping or not await self._goes_on():
                    break
        finally:
            self.is_running = False
            if not self.started.done():
                self.started.cancel()

    async def _run_once(self) -> None:
        self._ready_s = self._error = self._process = None
        try:
            process = self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                *PROGRAM,
                self.name,  # for those who look at the list of processes
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                limit=TOLD_BYTES_MAX,
                **apart(),
            )
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            self._error = CliError(f"There can be no process: {reason}.", code=Exit.CANNOT_START)
            return
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(json.dumps(self._order._asdict()).encode() + b"\n")
        async for line in process.stdout:
            self._take(json.loads(line))
        await process.wait()
        process.stdin.close()
        forget_pid(self._order.settings["log.dirs"], process.pid)

    def _take(self, told: dict[str, Any]) -> None:
        if "error" in told:
            error = told["error"]
            self._error = CliError(error["message"], error["hint"] or "", Exit(told["code"]))
            return
        self.bootstrap_servers = told["bootstrap_servers"]
        self._ready_s = time.monotonic()
        if not self.started.done():
            self.started.set_result(None)
        else:
            log.info("%s is back", self.name)

    async def _goes_on(self) -> bool:
        """The broker has ended, unasked: say so; whether it is started again, after a pause where that is due."""
        code = self._process.returncode if self._process is not None else None
        reason = reason_of_end(code or 0, self._error)
        if not self.started.done() and self._error is not None:
            self.started.set_exception(told_by(self.name, self._error))
            return False
        if self._restarts is None:
            log.error("%s has ended: %s; it is not started again", self.name, reason, extra=self._hint)
            return False
        worked_s = None if self._ready_s is None else time.monotonic() - self._ready_s
        pause_s = self._restarts.pause_s(worked_s)
        if pause_s:
            times = self._restarts.failures
            log.error(
                "%s has ended %d times soon after its start: %s; it is started again in %g s",
                self.name,
                times,
                reason,
                pause_s,
                extra=self._hint,
            )
        else:
            log.warning("%s has ended: %s; it is started again", self.name, reason, extra=self._hint)
        await asyncio.sleep(pause_s)
        return True

    @property
    def _hint(self) -> dict[str, str]:
        return {"hint": self._error.hint} if self._error is not None and self._error.hint else {}

    @property
    def address(self) -> Address:
        """Where it can be reached from this machine: what it advertises may not be."""
        endpoint = self.config.inter_broker_listener
        return address_here(endpoint.host, endpoint.port)

    @property
    def config(self) -> BrokerConfig:
        return self._order.launch().config

    @property
    def has_process(self) -> bool:
        return self._process is not None and self._process.returncode is None

    def ask_to_stop(self) -> None:
        self._is_stopping = True
        if self.has_process:
            assert self._process is not None and self._process.stdin is not None
            self._process.stdin.write(f"{STOP}\n".encode())

    def kill(self) -> None:
        self._is_stopping = True
        if self.has_process:
            assert self._process is not None
            self._process.kill()


class Supervisor:
    def __init__(self, orders: Sequence[Order], *, restarts: bool, min_isr: Wanted | None = None) -> None:
        """`min_isr`: what the cluster is to have before it is ready."""
        self._min_isr = min_isr
        self._keepers = [Keeper(order, restarts=restarts) for order in orders]
        self._tasks = [asyncio.ensure_future(keeper.keep()) for keeper in self._keepers]
        self._is_thrown_away = any(order.thrown_away for order in orders)
        self._stopping = asyncio.Event()
        self._signals = 0

    def stop(self) -> None:
        """A signal: the first asks for a clean end, the second ends everything now."""
        self._signals += 1
        if self._signals == 1:
            log.info("stopping; Ctrl-C once more ends it at once")
            self._stopping.set()
        else:
            self._kill()  # what is not on the disk is recovered at the next start

    def hang_up(self) -> None:
        """The terminal is gone: a clean end, however often a shell and the kernel say so."""
        if not self._signals:
            self.stop()

    async def run(self, on_ready: Callable[[str], object]) -> Exit:
        """Until a signal. CliError where a broker cannot start at all, or none is left."""
        try:
            if await self._unless_stopped(self._all_started()):
                on_ready(",".join(keeper.bootstrap_servers for keeper in self._keepers))
                if await self._unless_stopped(self._all_ended()):
                    raise CliError("All brokers have ended.", "The log above says why.")
            await self._stop_all()
        finally:
            self._kill()
            await asyncio.gather(*self._tasks, return_exceptions=True)
        log.info("stopped")
        return Exit.OK if self._signals == 1 else Exit.INTERRUPTED

    async def _unless_stopped(self, work: Any) -> bool:
        """Do this until it is done (true) or a signal comes."""
        tasks = [asyncio.ensure_future(work), asyncio.ensure_future(self._stopping.wait())]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            if tasks[0].done():
                tasks[0].result()
            return not self._stopping.is_set()
        finally:
            for task in tasks:
                task.cancel()

    async def _all_started(self) -> None:
        await asyncio.gather(*(asyncio.shield(keeper.started) for keeper in self._keepers))
        addresses = [keeper.address for keeper in self._keepers]
        runtime = real_runtime()
        try:
            way = OwnWay.of(runtime, self._keepers[0].config)
            await wait_until_acquainted(way, addresses)
            if self._min_isr is not None:
                await bring_into_force(way, addresses[0], self._min_isr)
        finally:
            close_runtime(runtime)

    async def _all_ended(self) -> None:
        await asyncio.gather(*(asyncio.shield(task) for task in self._tasks))

    async def _stop_all(self) -> None:
        if self._is_thrown_away:
            for keeper in self._keepers:
                keeper.ask_to_stop()
        for keeper, task in reversed(list(zip(self._keepers, self._tasks, strict=True))):
            keeper.ask_to_stop()
            if not keeper.has_process:
                task.cancel()
            await asyncio.wait([task], timeout=STOP_TIMEOUT_S)
            if not task.done():
                log.warning("%s did not stop within %g s: it is killed", keeper.name, STOP_TIMEOUT_S)
                keeper.kill()

    def _kill(self) -> None:
        for keeper, task in zip(self._keepers, self._tasks, strict=True):
            keeper.kill()
            if not keeper.has_process:
                task.cancel()


def supervise(
    orders: Sequence[Order],
    *,
    restarts: bool,
    as_json: bool,
    data: str,
    min_isr: Wanted | None = None,
    then: Callable[[str], object] | None = None,
) -> Exit:
    """Run the brokers until a signal, or until none is left; `then` is called behind the ready line."""

    async def main() -> Exit:
        supervisor = Supervisor(orders, restarts=restarts, min_isr=min_isr)
        install_signal_handlers(asyncio.get_running_loop(), supervisor.stop)
        install_hangup_handler(asyncio.get_running_loop(), supervisor.hang_up)
        return await supervisor.run(on_ready)

    def on_ready(bootstrap_servers: str) -> None:
        announce(bootstrap_servers, as_json)
        if then is not None:
            then(bootstrap_servers)
        log.info("ready; Ctrl-C stops it", extra={"bootstrap_servers": bootstrap_servers, "data": data})

    return asyncio.run(main())


def apart() -> dict[str, Any]:
    """In a process group of its own: Ctrl-C on the terminal reaches the supervisor alone."""
    if sys.platform == "win32":
        import subprocess

        return {"creationflags": subprocess.CREATE_NEW_PROCESS_GROUP}
    return {"process_group": 0}


def reason_of_end(code: int, error: CliError | None) -> str:
    if error is not None:
        return error.message.rstrip(".")
    if code < 0:
        return f"killed by {signal.Signals(-code).name}"
    return "stopped by a signal" if code == 0 else f"exit code {code}"


def told_by(name: str, error: CliError) -> CliError:
    return CliError(f"{name}: {error.message}", error.hint, error.code)


def forget_pid(folder: str, pid: int) -> None:
    """Remove the number that a broker has left behind: it may be another process's soon."""
    path = os.path.join(folder, PID_FILE)
    try:
        with open(path) as file:
            if file.read().strip() != str(pid):
                return
        os.remove(path)
    except OSError:
        pass
