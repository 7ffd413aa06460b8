"""What a connection may cost before there is a request: slow and endless headers, idle ones, over real sockets."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
import pytest
import uvicorn
from kvarn_router.http_connection import HttpConnection
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send

from tests.support.polling import until


class Hurried(HttpConnection):
    header_timeout_s = 0.05


async def reads_all(scope: Scope, receive: Receive, send: Send) -> None:
    while (await receive()).get("more_body"):
        pass
    await PlainTextResponse("served")(scope, receive, send)


@asynccontextmanager
async def serving(connection: type[HttpConnection] = HttpConnection) -> AsyncIterator[tuple[uvicorn.Server, int]]:
    options = {"http": connection, "lifespan": "off", "log_config": None, "port": 0}
    server = uvicorn.Server(uvicorn.Config(reads_all, **options))
    running = asyncio.create_task(server._serve())
    await until(lambda: server.started, "the server listens")
    try:
        yield server, server.servers[0].sockets[0].getsockname()[1]
    finally:
        server.should_exit = True
        await running


def only_connection(server: uvicorn.Server) -> HttpConnection:
    (connection,) = server.server_state.connections
    assert isinstance(connection, HttpConnection)
    return connection


async def said(port: int, *pieces: bytes) -> bytes:
    """All that the server answers until it closes the connection, which is left open from this side."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
        return await asyncio.wait_for(reader.read(), 20)
    except ConnectionResetError:
        return b"reset"
    finally:
        writer.close()


@pytest.mark.parametrize("begun", [b"", b"GET / HTTP/1.1\r\nhost: a\r\n"], ids=["nothing", "half a header"])
async def test_headers_that_do_not_come_end_the_connection(begun: bytes) -> None:
    async with serving(Hurried) as (server, port):
        assert await said(port, begun) == b""
        await until(lambda: not server.server_state.connections, "the connection is forgotten")


async def test_the_second_request_s_headers_are_bounded_too() -> None:
    async with serving() as (server, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n")
        assert (await reader.readuntil(b"served")).startswith(b"HTTP/1.1 200 OK")
        only_connection(server).header_timeout_s = 0.05
        writer.write(b"GET / HTTP/1.1\r\n")
        assert await asyncio.wait_for(reader.read(), 20) == b""
        writer.close()


async def test_endless_headers_are_refused() -> None:
    async with serving() as (server, port):
        flood = [b"x-%d: %s\r\n" % (number, b"a" * 1000) for number in range(80)]
        answer = await said(port, b"GET / HTTP/1.1\r\n", *flood)
        assert answer == b"reset" or answer.startswith(b"HTTP/1.1 431 ")
        await until(lambda: not server.server_state.connections, "the connection is forgotten")


async def test_a_body_is_not_counted_as_headers() -> None:
    async with serving() as (server, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 200000\r\n\r\n")
        await until(lambda: any(each.cycle for each in server.server_state.connections), "the headers are read")
        assert only_connection(server)._header_timer is None
        writer.write(bytes(200_000))
        assert (await reader.readuntil(b"served")).startswith(b"HTTP/1.1 200 OK")
        writer.close()


async def test_an_idle_connection_outlives_what_load_balancers_keep() -> None:
    """They keep one for 60 s, and lose the request that they send on one that is being closed."""
    async with serving() as (server, port), httpx.AsyncClient() as client:
        assert (await client.get(f"http://127.0.0.1:{port}/")).text == "served"
        connection = only_connection(server)
        assert connection._header_timer is None
        assert connection.timeout_keep_alive_task is not None
        assert connection.timeout_keep_alive_task.when() - asyncio.get_running_loop().time() > 70
