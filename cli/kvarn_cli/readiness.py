"""When a stack that `up` starts serves, and the ready file that says so."""

import asyncio
from pathlib import Path

import httpx

from kvarn_cli.ready_file import write_ready_file
from kvarn_cli.router_view import parse_workers
from kvarn_cli.supervisor import Supervisor

POLL_S = 0.2


async def wait_serving(base_url: str, workers: int) -> None:
    """Until the router takes requests and has let every worker in."""
    async with httpx.AsyncClient(base_url=base_url, timeout=5.0) as client:
        while not await _is_serving(client, workers):  # noqa: ASYNC110 -- the event is in another process
            await asyncio.sleep(POLL_S)


async def _is_serving(client: httpx.AsyncClient, workers: int) -> bool:
    try:
        rows = parse_workers((await client.get("/debug/workers")).raise_for_status().json())
        if sum(1 for row in rows if not row.refused) < workers:
            return False
        return (await client.get("/ready")).status_code == httpx.codes.OK
    except httpx.HTTPError:
        return False


class ReadyBoard:
    """Keeps the ready file true from the moment the stack serves until it stops."""

    def __init__(self, path: Path | None, base_url: str) -> None:
        self.base_url = base_url
        self._path = path
        self._supervisor: Supervisor | None = None

    def open(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor
        self.refresh()

    def close(self) -> None:
        self._supervisor = None

    def refresh(self) -> None:
        """A process started, became ready or ended."""
        if self._supervisor is not None and self._path is not None:
            write_ready_file(self._path, self.base_url, self._supervisor.processes)
