"""Both workers as processes with mutual TLS: a hand-off runs over it, and what is wrong with the files is told."""

import asyncio
from pathlib import Path

import grpc.aio
import pytest
from kvarn_engine.wire.channels import open_channel
from kvarn_engine.wire.tls import TlsFiles, TlsSettings
from kvarn_proto.v1 import decode_pb2_grpc

from tests.integration.worker_pair import Answer, generate, local_answer, request
from tests.support.certificates import make_authority
from tests.support.stack import free_port
from tests.support.worker_child import SIMULATED, address_of, probe, read_until, worker

PROMPT = list(range(100, 200))


def flags(tls: TlsSettings) -> tuple[str, ...]:
    files = ("--tls-cert-file", tls.tls_cert_file, "--tls-key-file", tls.tls_key_file, "--tls-ca-file", tls.tls_ca_file)
    return (*SIMULATED, *files)


async def test_a_hand_off_runs_over_mutual_tls(tmp_path: Path) -> None:
    authority = make_authority(tmp_path, "root")
    settings = {name: authority.issue(tmp_path / name) for name in ("prefill", "decode", "router")}
    port = free_port()
    async with (
        worker("kvarn_prefill", *flags(settings["prefill"])) as prefill,
        worker("kvarn_decode", *flags(settings["decode"]), "--metrics-port", str(port)) as decode,
    ):
        message = request(PROMPT, [await address_of(prefill)])
        address = await address_of(decode)
        answer = Answer()
        async with open_channel(address, tls=TlsFiles(settings["router"])) as channel:
            async for event in decode_pb2_grpc.DecodeStub(channel).Generate(message, timeout=30):
                answer.take(event)
        assert answer.done is not None
        assert answer.done.prefill_worker_id == "peer-0"
        assert answer.tokens == (await local_answer(message)).tokens
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await generate(address, message)
        assert refused.value.code() is grpc.StatusCode.UNAVAILABLE
        assert "kvarn_tls_certificate_expiry_seconds 1." in (await probe(port, "/metrics"))[1]


async def test_a_worker_does_not_start_with_files_that_cannot_work(tmp_path: Path) -> None:
    settings = make_authority(tmp_path, "root").issue(tmp_path / "worker")
    (tmp_path / "worker" / "tls.crt").write_text("no certificate")
    async with worker("kvarn_decode", *flags(settings)) as process:
        line = await read_until(process, "TlsError")
        assert await asyncio.wait_for(process.wait(), 60) == 1
    assert "worker/tls.crt: holds no PEM certificate" in line


async def test_one_tls_file_alone_is_a_wrong_setting() -> None:
    async with worker("kvarn_decode", *SIMULATED, "--tls-cert-file", "tls.crt") as process:
        line = await read_until(process, "tls")
        assert await asyncio.wait_for(process.wait(), 60) == 2
    assert "tls_key_file, tls_ca_file missing" in line
