"""A router that leaves at any moment leaves no block behind, on either worker."""

import asyncio
import random
from dataclasses import replace

import grpc
import grpc.aio
import pytest
from kvarn_decode.settings import HandoffSettings
from kvarn_engine.core.sampling import SamplingParams
from kvarn_engine.serving.simulated import CostModel
from kvarn_proto.v1 import decode_pb2

from tests.integration.worker_pair import (
    SIMULATED,
    AnyCall,
    GatedRunner,
    decode_stub,
    eventually,
    generate,
    local_answer,
    request,
    running_decode,
    running_prefill,
)

PROMPT = list(range(400, 480))
LONG = SamplingParams(max_tokens=300, seed=5, ignore_eos=True)
SLOW = replace(SIMULATED, cost=CostModel(step_s=0.002))


async def read_until(call: AnyCall, kind: str) -> None:
    while True:
        event = await call.read()
        assert isinstance(event, decode_pb2.GenerateEvent)
        if event.WhichOneof("event") == kind:
            return


async def read_reasons(call: AnyCall) -> dict[int, int]:
    reasons = {}
    while isinstance(event := await call.read(), decode_pb2.GenerateEvent):
        if event.WhichOneof("event") == "finished":
            reasons[event.finished.choice] = event.finished.reason
    return reasons


@pytest.mark.parametrize("steps", [0, 1, 3])
async def test_cancel_while_the_peer_prefills(steps: int) -> None:
    """80 tokens are five chunks; the router leaves after some of them."""
    runner = GatedRunner()
    async with running_prefill(runner=runner) as prefill, running_decode() as decode:
        try:
            async with decode_stub(decode.address) as stub:
                call = stub.Generate(request(PROMPT, [prefill.address], LONG))
                await read_until(call, "accepted")
                for _ in range(steps):
                    runner.permits.release()
                await eventually(lambda: runner.steps == steps and prefill.parts.gate.in_flight == 1)
                call.cancel()
                await eventually(lambda: prefill.parts.gate.in_flight == 0)
        finally:
            runner.open()
        await prefill.assert_idle()
        await decode.assert_idle()
        assert runner.steps <= steps + 2


async def test_cancel_while_decoding() -> None:
    async with running_prefill() as prefill, running_decode(SLOW) as decode:
        async with decode_stub(decode.address) as stub:
            call = stub.Generate(request(PROMPT, [prefill.address], LONG))
            for _ in range(3):
                await read_until(call, "tokens")
            call.cancel()
        await prefill.assert_idle()
        await decode.assert_idle()


async def test_cancel_while_queued() -> None:
    """Eight sequences fill the decode worker; the ninth waits and leaves."""
    async with running_decode(SLOW) as decode, decode_stub(decode.address) as stub:
        calls = [stub.Generate(request([n, *PROMPT], sampling=LONG, request_id=f"r{n}")) for n in range(9)]
        await eventually(lambda: decode.parts.gate.in_flight == 9 and decode.parts.engine.load().waiting >= 1)
        for call in reversed(calls):
            call.cancel()
        await decode.assert_idle()


async def test_random_cancels_leak_nothing_and_later_answers_are_right() -> None:
    dice = random.Random(4)
    codes: set[grpc.StatusCode] = set()
    async with running_prefill(SLOW) as prefill, running_decode(SLOW) as decode:

        async def abandon(number: int) -> None:
            async with decode_stub(decode.address) as stub:
                message = request([number, *PROMPT], [prefill.address], LONG, request_id=f"r{number}")
                call = stub.Generate(message)
                try:
                    for _ in range(dice.randrange(5)):
                        await call.read()
                except grpc.aio.AioRpcError as error:
                    codes.add(error.code())
                call.cancel()

        await asyncio.gather(*(abandon(number) for number in range(40)))
        assert codes <= {grpc.StatusCode.RESOURCE_EXHAUSTED}
        await prefill.assert_idle()
        await decode.assert_idle()
        message = request(PROMPT, [prefill.address])
        assert (await generate(decode.address, message)).tokens == (await local_answer(message)).tokens


async def test_stop_choice_ends_one_choice_and_not_the_other() -> None:
    async with running_prefill() as prefill, running_decode(SLOW) as decode, decode_stub(decode.address) as stub:
        sampling = replace(LONG, max_tokens=100)
        call = stub.Generate(request(PROMPT, [prefill.address], sampling, outputs=[(), ()], request_id="two"))
        await read_until(call, "tokens")
        answer = await stub.StopChoice(decode_pb2.StopChoiceRequest(request_id="two", choice=1))
        assert answer.found
        reasons = await read_reasons(call)
        assert reasons == {0: decode_pb2.FINISH_REASON_LENGTH, 1: decode_pb2.FINISH_REASON_ABORTED}
        await decode.assert_idle()
        again = await stub.StopChoice(decode_pb2.StopChoiceRequest(request_id="two", choice=1))
        assert not again.found


async def test_choice_stopped_during_the_handoff_still_finishes() -> None:
    runner = GatedRunner()
    async with (
        running_prefill(runner=runner) as prefill,
        running_decode() as decode,
        decode_stub(decode.address) as stub,
    ):
        try:
            sampling = SamplingParams(max_tokens=5, seed=5, ignore_eos=True)
            call = stub.Generate(request(PROMPT, [prefill.address], sampling, outputs=[(), ()], request_id="two"))
            await read_until(call, "accepted")
            answer = await stub.StopChoice(decode_pb2.StopChoiceRequest(request_id="two", choice=0))
            assert answer.found
        finally:
            runner.open()
        reasons = await read_reasons(call)
        assert reasons[1] == decode_pb2.FINISH_REASON_LENGTH
        assert reasons[0] == decode_pb2.FINISH_REASON_ABORTED
        await decode.assert_idle()


async def test_heartbeats_keep_a_slow_peer() -> None:
    """Each of five chunks takes longer than the decode worker waits for a frame."""
    slow = replace(SIMULATED, cost=CostModel(step_s=0.6))
    patience = HandoffSettings(local_prefill_max_tokens=0, handoff_idle_timeout_s=0.4)
    async with running_prefill(slow, heartbeat_s=0.1) as prefill, running_decode(handoff=patience) as decode:
        answer = await generate(decode.address, request(PROMPT, [prefill.address]))
        assert answer.done is not None
        assert answer.done.prefill_worker_id == "peer-0"
