"""What every worker answers beside its role: identity, the cache feed, health, draining and errors."""

import asyncio

import grpc
import grpc.aio
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from kvarn_engine.core.errors import Draining, InvalidRequest
from kvarn_engine.core.hashing import block_hashes, root_hash
from kvarn_engine.core.sampling import SamplingParams
from kvarn_engine.serving.worker_settings import WorkerSettings
from kvarn_engine.wire.channels import open_channel
from kvarn_engine.wire.status import error_from_call
from kvarn_proto.v1 import common_pb2, worker_pb2, worker_pb2_grpc

from tests.integration.worker_pair import (
    BLOCK_SIZE,
    GatedRunner,
    eventually,
    generate,
    local_answer,
    request,
    running_decode,
    running_prefill,
)

PROMPT = list(range(10, 31))
LONG = SamplingParams(max_tokens=400, seed=1, ignore_eos=True)


async def test_describe_tells_identity_and_limits() -> None:
    async with running_prefill() as prefill, open_channel(prefill.address) as channel:
        answer = await worker_pb2_grpc.WorkerStub(channel).Describe(worker_pb2.DescribeRequest(), timeout=5)
        engine = prefill.parts.engine
        assert answer.role == common_pb2.ROLE_PREFILL
        assert answer.incarnation == prefill.parts.identity.incarnation
        assert answer.layout_fingerprint == engine.layout.fingerprint
        assert (answer.max_model_len, answer.vocab_size) == (engine.max_model_len, engine.vocab_size)
        assert not answer.draining
        assert answer.load.blocks_total == 256


async def test_watch_sends_snapshot_then_deltas_without_a_gap() -> None:
    async with running_decode() as decode, open_channel(decode.address) as channel:
        await generate(decode.address, request(PROMPT))
        stub = worker_pb2_grpc.WorkerStub(channel)
        call = stub.Watch(worker_pb2.WatchRequest())
        first = await call.read()
        expected = block_hashes(root_hash("render", "layout"), PROMPT, BLOCK_SIZE)
        assert set(expected) <= set(first.snapshot.hashes)
        await generate(decode.address, request([7, *PROMPT]))
        wanted = set(block_hashes(root_hash("render", "layout"), [7, *PROMPT], BLOCK_SIZE))
        sequence, loads = first.sequence, 0
        while wanted or not loads:
            event = await call.read()
            assert event.incarnation == decode.parts.identity.incarnation
            if event.WhichOneof("event") == "delta":
                sequence += 1
                wanted -= set(event.delta.stored)
            else:
                loads += 1
            assert event.sequence == sequence
        call.cancel()


async def test_drain_finishes_what_runs_and_refuses_what_comes() -> None:
    runner = GatedRunner()
    async with running_decode(runner=runner) as decode, open_channel(decode.address) as channel:
        running = asyncio.ensure_future(generate(decode.address, request(PROMPT, sampling=LONG)))
        await eventually(lambda: decode.parts.gate.in_flight == 1)
        stub = worker_pb2_grpc.WorkerStub(channel)
        watch = stub.Watch(worker_pb2.WatchRequest())
        drain = stub.Drain(worker_pb2.DrainRequest(timeout_s=20))
        await eventually(lambda: decode.parts.gate.draining)
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await generate(decode.address, request(PROMPT))
        assert isinstance(error_from_call(raised.value), Draining)
        assert raised.value.code() is grpc.StatusCode.UNAVAILABLE
        runner.open()
        answer = await drain
        assert (answer.drained, answer.remaining) == (True, 0)
        assert (await running).tokens == (await local_answer(request(PROMPT, sampling=LONG))).tokens
        while not (await watch.read()).load.draining:
            pass
        watch.cancel()


async def test_drain_says_when_time_is_over() -> None:
    async with running_prefill() as prefill, open_channel(prefill.address) as channel:
        with prefill.parts.gate.admit():
            stub = worker_pb2_grpc.WorkerStub(channel)
            answer = await stub.Drain(worker_pb2.DrainRequest(timeout_s=0.0), timeout=5)
            assert (answer.drained, answer.remaining) == (False, 1)


async def test_shutdown_stages_health_first() -> None:
    async with running_prefill() as prefill, open_channel(prefill.address) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        for name in ("", "kvarn.v1.Prefill", "kvarn.v1.Worker"):
            answer = await stub.Check(health_pb2.HealthCheckRequest(service=name), timeout=5)
            assert answer.status == health_pb2.HealthCheckResponse.SERVING
        assert await prefill.app.drain(asyncio.Event())
        answer = await stub.Check(health_pb2.HealthCheckRequest(), timeout=5)
        assert answer.status == health_pb2.HealthCheckResponse.NOT_SERVING


async def test_second_signal_ends_the_wait() -> None:
    force = asyncio.Event()
    async with running_decode(settings=WorkerSettings(shutdown_timeout_s=600)) as decode:
        with decode.parts.gate.admit():
            stopping = asyncio.ensure_future(decode.app.drain(force))
            await eventually(lambda: decode.parts.gate.draining)
            force.set()
            assert not await stopping


async def test_stop_tells_callers_in_flight_why() -> None:
    runner = GatedRunner()
    async with running_decode(runner=runner) as decode:
        running = asyncio.ensure_future(generate(decode.address, request(PROMPT, sampling=LONG)))
        await eventually(lambda: decode.parts.gate.in_flight == 1)
        stopping = asyncio.ensure_future(decode.app.stop())
        # Runs after the engine was told to stop, which waits for the step at the gate.
        asyncio.get_running_loop().call_soon(runner.open)
        await stopping
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await running
        assert error_from_call(raised.value).retryable


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"prompt_tokens": []}, "prompt_tokens"),
        ({"choices": []}, "choices"),
        ({"choices": [common_pb2.Choice(), common_pb2.Choice()]}, "choices"),
        ({"root_hash": b"short"}, "root_hash"),
        ({"prompt_tokens": [10**6]}, "prompt_tokens"),
        ({"sampling": common_pb2.Sampling(temperature=1, top_p=1, repetition_penalty=1)}, "max_tokens"),
    ],
)
async def test_bad_request_is_refused_naming_its_field(change: dict[str, object], field: str) -> None:
    message = request(PROMPT)
    for name, value in change.items():
        message.ClearField(name)  # type: ignore[arg-type]
        message.MergeFrom(type(message)(**{name: value}))  # type: ignore[arg-type]
    async with running_decode() as decode:
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await generate(decode.address, message)
        error = error_from_call(raised.value)
        assert isinstance(error, InvalidRequest)
        assert error.field == field
        assert raised.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        await decode.assert_idle()


async def test_lost_step_loop_ends_the_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running_decode(settings=WorkerSettings(load_report_interval_s=0.01)) as decode:
        assert not decode.app.failed.is_set()
        monkeypatch.setattr(type(decode.parts.engine), "is_defective", True)
        await eventually(decode.app.failed.is_set)
