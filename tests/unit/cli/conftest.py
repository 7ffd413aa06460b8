"""A real HTTP server for one ASGI app of a test."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import pytest
import uvicorn

App = Callable[[Any, Any, Any], Coroutine[Any, Any, None]]


@pytest.fixture
async def serve() -> AsyncIterator[Callable[[App], Coroutine[Any, Any, str]]]:
    started: list[tuple[uvicorn.Server, asyncio.Task[None]]] = []

    async def start(app: App) -> str:
        server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="error", lifespan="off", ws="none"))
        started.append((server, asyncio.create_task(server.serve())))
        async with asyncio.timeout(20):
            while not server.started:  # noqa: ASYNC110 -- uvicorn has no event for it
                await asyncio.sleep(0.01)
        return f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"

    yield start
    for server, task in started:
        server.should_exit = True
        await task
