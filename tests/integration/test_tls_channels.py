"""Mutual TLS over real sockets: who is let in, who is not, and certificates renewed under a running server."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc.aio
import pytest
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from kvarn_engine.wire.channels import listen, open_channel
from kvarn_engine.wire.tls import TlsFiles

from tests.support.certificates import Authority, make_authority

DEADLINE_S = 10.0


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return make_authority(tmp_path, "root")


@asynccontextmanager
async def serving(tls: TlsFiles | None) -> AsyncIterator[str]:
    server = grpc.aio.server()
    servicer = health.aio.HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(servicer, server)
    port = listen(server, "127.0.0.1:0", tls)
    await server.start()
    await servicer.set("", health_pb2.HealthCheckResponse.SERVING)
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await server.stop(None)


async def ask(channel: grpc.aio.Channel) -> int:
    answer = await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=DEADLINE_S)
    return int(answer.status)


async def ask_once(address: str, tls: TlsFiles | None) -> int:
    async with open_channel(address, tls=tls) as channel:
        return await ask(channel)


async def refused(address: str, tls: TlsFiles | None) -> bool:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await ask_once(address, tls)
    return caught.value.code() is grpc.StatusCode.UNAVAILABLE


async def test_peers_of_one_authority_talk(tmp_path: Path, authority: Authority) -> None:
    server, client = TlsFiles(authority.issue(tmp_path / "server")), TlsFiles(authority.issue(tmp_path / "client"))
    async with serving(server) as address:
        assert await ask_once(address, client) == health_pb2.HealthCheckResponse.SERVING


async def test_a_client_of_another_authority_is_refused(tmp_path: Path, authority: Authority) -> None:
    stranger = TlsFiles(make_authority(tmp_path, "stranger").issue(tmp_path / "client"))
    # The server's own authority is trusted, so only what the client shows can be wrong.
    (tmp_path / "client" / "ca.crt").write_bytes(authority.certificate.read_bytes())
    async with serving(TlsFiles(authority.issue(tmp_path / "server"))) as address:
        assert await refused(address, stranger)


async def test_a_server_of_another_authority_is_refused(tmp_path: Path, authority: Authority) -> None:
    settings = make_authority(tmp_path, "stranger").issue(tmp_path / "server")
    (tmp_path / "server" / "ca.crt").write_bytes(authority.certificate.read_bytes())
    async with serving(TlsFiles(settings)) as address:
        assert await refused(address, TlsFiles(authority.issue(tmp_path / "client")))


async def test_a_server_with_another_name_is_refused(tmp_path: Path, authority: Authority) -> None:
    settings = authority.issue(tmp_path / "server", dns_name="somebody-else")
    async with serving(TlsFiles(settings)) as address:
        assert await refused(address, TlsFiles(authority.issue(tmp_path / "client")))


async def test_a_client_without_a_certificate_is_refused(tmp_path: Path, authority: Authority) -> None:
    trusting = grpc.ssl_channel_credentials(authority.certificate.read_bytes())
    options = (("grpc.ssl_target_name_override", "kvarn-worker"),)
    async with (
        serving(TlsFiles(authority.issue(tmp_path / "server"))) as address,
        grpc.aio.secure_channel(address, trusting, options=options) as channel,
    ):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await ask(channel)
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE


async def test_plain_and_encrypted_do_not_mix(tmp_path: Path, authority: Authority) -> None:
    files = TlsFiles(authority.issue(tmp_path / "both"))
    async with serving(files) as address:
        assert await refused(address, None)
    async with serving(None) as address:
        assert await refused(address, files)


async def test_certificates_are_renewed_without_a_restart(tmp_path: Path, authority: Authority) -> None:
    """A new authority takes over on both ends: open connections go on, new ones use the new certificates."""
    server, client = TlsFiles(authority.issue(tmp_path / "server")), TlsFiles(authority.issue(tmp_path / "client"))
    late = TlsFiles(authority.issue(tmp_path / "late"))
    async with serving(server) as address, open_channel(address, tls=client) as old_channel:
        await ask(old_channel)
        successor = make_authority(tmp_path, "successor")
        successor.issue(tmp_path / "server")
        successor.issue(tmp_path / "client")
        assert await ask_once(address, client) == health_pb2.HealthCheckResponse.SERVING
        assert await ask(old_channel) == health_pb2.HealthCheckResponse.SERVING
        assert await refused(address, late)
