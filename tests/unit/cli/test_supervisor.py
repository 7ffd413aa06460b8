"""Supervision over real processes: ready, restart, give up, stop, and death with the parent."""

import asyncio
import os
import signal
import sys
import textwrap
from collections.abc import Callable

from kvarn_cli.backoff import CALM_S, FIRST_S, LIMIT_S, Backoff
from kvarn_cli.child import Child
from kvarn_cli.stack_plan import ProcessPlan
from kvarn_cli.supervisor import Stage, Supervisor

SERVE = "import time; print('ready address=x', flush=True); time.sleep(600)"
STUBBORN = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN);" + SERVE
FAIL = "import sys; print('no model'); sys.exit(3)"
DEADLINE_S = 30.0


def plan(name: str, script: str, role: str = "decode") -> ProcessPlan:
    return ProcessPlan(name, role, "x", 0, (sys.executable, "-c", script), dict(os.environ))


class Lines:
    def __init__(self) -> None:
        self.seen: list[str] = []

    def __call__(self, source: ProcessPlan, line: str) -> None:
        self.seen.append(f"{source.name}: {line}")


def supervise(*plans: ProcessPlan, grace_s: float = 20.0) -> tuple[Supervisor, Lines]:
    lines = Lines()
    return Supervisor(plans, lines, lambda: None, grace_s), lines


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while not condition():  # noqa: ASYNC110 -- the event is in another process
            await asyncio.sleep(0.02)


def is_alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


async def test_all_become_ready_and_all_end() -> None:
    supervisor, lines = supervise(plan("decode-0", SERVE), plan("router", SERVE, "router"))
    await asyncio.wait_for(supervisor.bring_up(), DEADLINE_S)
    pids = [each.pid for each in supervisor.processes]
    assert all(is_alive(pid) for pid in pids)
    await supervisor.stop()
    assert not any(is_alive(pid) for pid in pids)
    assert {each.stage for each in supervisor.processes} == {Stage.STOPPED}
    assert sorted(lines.seen) == ["decode-0: ready address=x", "router: ready address=x"]


async def test_a_crashed_process_starts_again() -> None:
    supervisor, lines = supervise(plan("decode-0", SERVE))
    await asyncio.wait_for(supervisor.bring_up(), DEADLINE_S)
    first = supervisor.processes[0].pid
    os.kill(first, signal.SIGKILL)
    await until(lambda: supervisor.processes[0].restarts == 1 and supervisor.processes[0].stage is Stage.READY)
    assert supervisor.processes[0].pid != first
    assert "decode-0: ended with status -9; starts again in 0.5 s" in lines.seen
    await supervisor.stop()


async def test_a_process_that_never_was_ready_is_a_failure() -> None:
    supervisor, lines = supervise(plan("decode-0", FAIL), plan("router", SERVE, "router"))
    coming = asyncio.create_task(supervisor.bring_up())
    reason = await asyncio.wait_for(supervisor.wait_failure(), DEADLINE_S)
    coming.cancel()
    assert reason == "decode-0 ended with status 3 before it was ready"
    assert "decode-0: no model" in lines.seen
    await supervisor.stop()


async def test_who_ignores_the_request_to_end_is_killed() -> None:
    supervisor, _ = supervise(plan("decode-0", STUBBORN), grace_s=0.2)
    await asyncio.wait_for(supervisor.bring_up(), DEADLINE_S)
    pid = supervisor.processes[0].pid
    await asyncio.wait_for(supervisor.stop(), DEADLINE_S)
    assert not is_alive(pid)


async def test_children_die_with_a_killed_parent() -> None:
    parent_script = textwrap.dedent(f"""
        import asyncio, os, sys
        from kvarn_cli.child import Child
        async def main():
            child = await Child.start((sys.executable, "-c", {SERVE!r}), os.environ, lambda line: None)
            print(child.pid, flush=True)
            await child.wait()
        asyncio.run(main())
    """)
    printed: asyncio.Queue[str] = asyncio.Queue()
    parent = await Child.start((sys.executable, "-c", parent_script), os.environ, printed.put_nowait)
    ended = asyncio.create_task(parent.wait())
    grandchild = int(await asyncio.wait_for(printed.get(), DEADLINE_S))
    assert is_alive(grandchild)
    parent.kill()
    assert await ended == -signal.SIGKILL
    await until(lambda: not is_alive(grandchild))


async def test_a_progress_bar_becomes_one_line() -> None:
    seen: list[str] = []
    script = "print('10 %\\r50 %\\r100 %\\nlast', end='')"
    child = await Child.start((sys.executable, "-c", script), os.environ, seen.append)
    assert await asyncio.wait_for(child.wait(), DEADLINE_S) == 0
    assert seen == ["100 %", "last"]


def test_backoff_doubles_up_to_its_limit_and_forgets_after_a_calm_life() -> None:
    backoff = Backoff()
    delays = [backoff.delay_s(0.0) for _ in range(8)]
    assert delays[:3] == [FIRST_S, 2 * FIRST_S, 4 * FIRST_S]
    assert delays[-1] == LIMIT_S
    assert backoff.delay_s(CALM_S) == FIRST_S
