"""`kvarn up`: the whole stack as processes of this machine, from the model's conversion to Ctrl-C."""

import asyncio
import contextlib
import os
import signal
import sys
from dataclasses import dataclass, replace
from pathlib import Path

from kvarn_engine.model_folder import ModelNotFound
from kvarn_engine.process.tasks import TaskOwner
from rich.console import Console
from rich.text import Text

from kvarn_cli.greeting import ask_served, show_banner, show_sample
from kvarn_cli.log_view import LogView
from kvarn_cli.model_setup import prepare_model
from kvarn_cli.ports import free_ports, is_free
from kvarn_cli.readiness import ReadyBoard, wait_serving
from kvarn_cli.stack_plan import LOOPBACK, StackOptions, plan_stack, ports_needed
from kvarn_cli.supervisor import Supervisor


@dataclass(frozen=True, slots=True)
class UpOptions:
    stack: StackOptions
    chat: bool
    ready_file: Path | None
    grace_s: float


class UpFailed(Exception):
    """The stack cannot serve; the message says why."""


class StopRequest:
    """What SIGINT and SIGTERM do: the first asks for an orderly end, a second one kills."""

    def __init__(self) -> None:
        self.wanted = asyncio.Event()
        self.supervisor: Supervisor | None = None

    def __call__(self) -> None:
        if self.wanted.is_set() and self.supervisor is not None:
            self.supervisor.kill()
        self.wanted.set()


def run_up(options: UpOptions, console: Console) -> int:
    """The exit status: 0 when it was told to stop, 1 when the stack could not serve."""
    try:
        asyncio.run(_until_stopped(_with_port(options), console))
    except (UpFailed, ModelNotFound) as error:
        console.print(Text(f"kvarn up: {error}", style="bold red"), soft_wrap=True)
        return 1
    return 0


def _with_port(options: UpOptions) -> UpOptions:
    """A free port for `--port 0`; a taken one is refused before anything starts."""
    stack = options.stack
    if stack.port and not is_free(stack.host, stack.port):
        raise UpFailed(f"port {stack.port} is taken; choose another with --port, or --port 0 for a free one")
    return replace(options, stack=replace(stack, port=stack.port or free_ports(1)[0]))


async def _until_stopped(options: UpOptions, console: Console) -> None:
    stop = StopRequest()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop)
    stack = asyncio.create_task(_run_stack(options, console, stop), name="up/stack")
    wanted = asyncio.create_task(stop.wanted.wait(), name="up/stop")
    await asyncio.wait({stack, wanted}, return_when=asyncio.FIRST_COMPLETED)
    wanted.cancel()
    if not stack.done():
        stack.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await stack


async def _run_stack(options: UpOptions, console: Console, stop: StopRequest) -> None:
    """Ends by cancellation, after every process has ended, or raises UpFailed or ModelNotFound."""
    stack = options.stack
    view = LogView(console)
    await prepare_model(stack.model, lambda line: view.show("model", "model", line))
    plans = plan_stack(stack, free_ports(ports_needed(stack)), os.environ, os.cpu_count() or 1, sys.executable)
    board = ReadyBoard(options.ready_file, _base_url(stack))
    supervisor = stop.supervisor = Supervisor(plans, view.show_line, board.refresh, options.grace_s)
    try:
        async with TaskOwner("up") as owner:
            owner.spawn(_greet(options, view, supervisor, board), "greeting")
            raise UpFailed(await supervisor.wait_failure())
    finally:
        board.close()
        console.print(Text("stopping", style="dim"))
        await supervisor.stop()
        console.print(Text("stopped", style="dim"))


async def _greet(options: UpOptions, view: LogView, supervisor: Supervisor, board: ReadyBoard) -> None:
    console = view.console
    with console.status("starting workers and router"):
        await supervisor.bring_up()
        await wait_serving(board.base_url, options.stack.prefill + options.stack.decode)
    board.open(supervisor)
    with view.held():
        served = await ask_served(board.base_url, options.stack.model)
        show_banner(console, board.base_url, served)
        if options.chat and not served.needs_key:
            await show_sample(console, board.base_url, served.model)
        console.print(Text("serving until Ctrl-C", style="dim"))


def _base_url(stack: StackOptions) -> str:
    """An address that works from this machine, also when the router listens on all interfaces."""
    host = LOOPBACK if stack.host in ("0.0.0.0", "::") else stack.host
    return f"http://{host}:{stack.port}"
