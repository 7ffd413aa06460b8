"""Whatever a prefill peer does wrong, the request is answered with the right tokens and no block is lost."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

import grpc.aio
import pytest
from kvarn_decode.settings import HandoffSettings
from kvarn_engine.core.sampling import SamplingParams
from kvarn_engine.wire.channels import open_channel
from kvarn_engine.wire.frames import HEADER_BYTES
from kvarn_engine.wire.prefill_rpc import RunContext, add_prefill_servicer, run_prefill
from kvarn_proto.v1 import prefill_pb2

from tests.integration.worker_pair import (
    SIMULATED,
    Answer,
    generate,
    local_answer,
    request,
    running_decode,
    running_prefill,
)

PROMPT = list(range(200, 250))
SAMPLED = SamplingParams(max_tokens=6, seed=5)
Send = Callable[[bytes], Awaitable[None]]
Meddle = Callable[[Sequence[bytes], Send, RunContext], Awaitable[None]]


@dataclass
class MeddlingPeer:
    """Collects an honest worker's whole answer, then sends what `meddle` makes of it."""

    honest: str
    meddle: Meddle
    calls: int = 0

    async def Run(self, message: prefill_pb2.PrefillRequest, context: RunContext) -> None:
        self.calls += 1
        async with open_channel(self.honest) as channel:
            frames = [frame async for frame in run_prefill(channel, message, message.request_id)]
        await self.meddle(frames, context.write, context)


@asynccontextmanager
async def meddling(honest: str, meddle: Meddle) -> AsyncIterator[tuple[MeddlingPeer, str]]:
    peer = MeddlingPeer(honest, meddle)
    server = grpc.aio.server()
    add_prefill_servicer(peer, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield peer, f"127.0.0.1:{port}"
    finally:
        await server.stop(None)


def flipped(frame: bytes, offset: int) -> bytes:
    return frame[:offset] + bytes([frame[offset] ^ 0xFF]) + frame[offset + 1 :]


def is_blocks(frame: bytes) -> bool:
    return frame[5] == 2


async def corrupt_block(frames: Sequence[bytes], send: Send, context: RunContext) -> None:
    for frame in frames:
        await send(flipped(frame, len(frame) - 1) if is_blocks(frame) else frame)


async def wrong_hash(frames: Sequence[bytes], send: Send, context: RunContext) -> None:
    for frame in frames:
        await send(flipped(frame, HEADER_BYTES) if is_blocks(frame) else frame)


async def wrong_position(frames: Sequence[bytes], send: Send, context: RunContext) -> None:
    for frame in frames:
        await send(flipped(frame, 28) if is_blocks(frame) else frame)


async def wrong_generation(frames: Sequence[bytes], send: Send, context: RunContext) -> None:
    for frame in frames:
        await send(flipped(frame, 24))


async def truncated(frames: Sequence[bytes], send: Send, context: RunContext) -> None:
    for frame in frames:
        await send(frame[:-1])


async def die_after_first_blocks(frames: Sequence[bytes], send: Send, context: RunContext) -> None:
    blocks = [frame for frame in frames if is_blocks(frame)]
    assert len(blocks) > 1
    await send(frames[0])
    await send(blocks[0])
    await context.abort(grpc.StatusCode.UNAVAILABLE, "gone")


async def die_after_first_tokens(frames: Sequence[bytes], send: Send, context: RunContext) -> None:
    last_blocks = max(number for number, frame in enumerate(frames) if is_blocks(frame))
    for frame in frames[:last_blocks]:
        await send(frame)
    await context.abort(grpc.StatusCode.UNAVAILABLE, "gone")


async def end_early(frames: Sequence[bytes], send: Send, context: RunContext) -> None:
    await send(frames[0])


async def done_without_blocks(frames: Sequence[bytes], send: Send, context: RunContext) -> None:
    await send(frames[0])
    await send(frames[-1])


async def freeze(frames: Sequence[bytes], send: Send, context: RunContext) -> None:
    await send(frames[0])
    await asyncio.Event().wait()


ALL_FAULTS = [
    corrupt_block, wrong_hash, wrong_position, wrong_generation, truncated, die_after_first_blocks,
    die_after_first_tokens, end_early, done_without_blocks, freeze,
]  # fmt: skip
IMPATIENT = HandoffSettings(local_prefill_max_tokens=0, handoff_idle_timeout_s=0.5)


def assert_same(answer: Answer, alone: Answer) -> None:
    assert answer.tokens == alone.tokens
    assert answer.reasons == alone.reasons
    assert answer.done is not None


@pytest.mark.parametrize("meddle", ALL_FAULTS)
@pytest.mark.parametrize("outputs", [[()], [(), ()]], ids=["one-choice", "two-choices"])
async def test_last_peer_fails_and_the_prompt_is_computed_here(meddle: Meddle, outputs: list[tuple[int, ...]]) -> None:
    async with (
        running_prefill() as honest,
        meddling(honest.address, meddle) as (peer, address),
        running_decode(handoff=IMPATIENT) as decode,
    ):
        message = request(PROMPT, [address], SAMPLED, outputs=outputs)
        answer = await generate(decode.address, message)
        assert_same(answer, await local_answer(message))
        assert peer.calls == 1
        assert answer.done is not None
        assert answer.done.prefill_worker_id == ""
        assert decode.parts.metrics.handoff_failures._value.get() == 1
        await decode.assert_idle()
        await honest.assert_idle()


@pytest.mark.parametrize("meddle", ALL_FAULTS)
async def test_next_peer_takes_over(meddle: Meddle) -> None:
    async with (
        running_prefill() as honest,
        meddling(honest.address, meddle) as (_, address),
        running_decode(handoff=IMPATIENT) as decode,
    ):
        message = request(PROMPT, [address, honest.address], SAMPLED)
        answer = await generate(decode.address, message)
        assert_same(answer, await local_answer(message))
        assert answer.done is not None
        assert answer.done.prefill_worker_id == "peer-1"
        await decode.assert_idle()


async def test_blocks_that_arrived_whole_are_not_sent_again() -> None:
    async with (
        running_prefill() as honest,
        meddling(honest.address, die_after_first_blocks) as (_, address),
        running_decode() as decode,
    ):
        retried = await generate(decode.address, request(PROMPT, [address, honest.address], SAMPLED))
        async with running_decode() as other:
            straight = await generate(other.address, request(PROMPT, [honest.address], SAMPLED))
        assert retried.done is not None
        assert straight.done is not None
        assert abs(retried.done.handoff_bytes - straight.done.handoff_bytes) <= HEADER_BYTES


@pytest.mark.parametrize("max_tokens", [1, 6])
async def test_first_token_already_sent_is_not_sent_twice(max_tokens: int) -> None:
    async with (
        running_prefill() as honest,
        meddling(honest.address, die_after_first_tokens) as (_, address),
        running_decode() as decode,
    ):
        message = request(PROMPT, [address], replace(SAMPLED, max_tokens=max_tokens))
        answer = await generate(decode.address, message)
        assert len(answer.tokens[0]) == max_tokens
        assert_same(answer, await local_answer(message))


async def test_unreachable_peer_is_passed_over() -> None:
    async with running_decode() as decode:
        message = request(PROMPT, ["127.0.0.1:1"], SAMPLED)
        assert_same(await generate(decode.address, message), await local_answer(message))


async def test_peer_with_another_layout_is_refused_by_it_and_passed_over() -> None:
    other_model = replace(SIMULATED, model_revision="another")
    async with running_prefill(other_model) as prefill, running_decode() as decode:
        message = request(PROMPT, [prefill.address], SAMPLED)
        assert_same(await generate(decode.address, message), await local_answer(message))
        assert prefill.parts.metrics.prompt_tokens._value.get() == 0


async def test_draining_peer_is_passed_over() -> None:
    async with running_prefill() as prefill, running_decode() as decode:
        prefill.parts.gate.close()
        message = request(PROMPT, [prefill.address], SAMPLED)
        assert_same(await generate(decode.address, message), await local_answer(message))
