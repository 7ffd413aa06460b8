"""Prompt on one worker, tokens on the other, and the same tokens as on one worker alone."""

import asyncio

import pytest
from kvarn_decode.importer import INLINE_BYTES
from kvarn_decode.settings import HandoffSettings
from kvarn_engine.core.sampling import SamplingParams
from kvarn_engine.serving.simulated import SimulatedSettings

from tests.integration.worker_pair import BLOCK_SIZE, generate, local_answer, request, running_decode, running_prefill

PROMPT = list(range(100, 150))  # 12 full blocks of 4 and 2 tokens, prefilled in chunks of 16
SAMPLED = SamplingParams(max_tokens=10, seed=11)
GREEDY = SamplingParams(max_tokens=10, temperature=0.0)


@pytest.mark.parametrize("sampling", [GREEDY, SAMPLED, SamplingParams(max_tokens=1, seed=3)])
@pytest.mark.parametrize("length", [1, 3, 4, 5, 16, 50])
async def test_two_pools_equal_one_worker(sampling: SamplingParams, length: int) -> None:
    async with running_prefill() as prefill, running_decode() as decode:
        message = request(PROMPT[:length], [prefill.address], sampling)
        answer = await generate(decode.address, message)
        alone = await local_answer(message)
        assert answer.tokens == alone.tokens
        assert len(answer.tokens[0]) == sampling.max_tokens
        assert answer.reasons == alone.reasons
        assert answer.done is not None
        assert answer.done.prefill_worker_id == "peer-0"
        assert answer.done.handoff_bytes > 0
        await prefill.assert_idle()
        await decode.assert_idle()


async def test_choices_share_one_prefill() -> None:
    async with running_prefill() as prefill, running_decode() as decode:
        message = request(PROMPT, [prefill.address], SAMPLED, outputs=[(), (), ()])
        answer = await generate(decode.address, message)
        assert answer.tokens == (await local_answer(message)).tokens
        assert len({tuple(tokens) for tokens in answer.tokens.values()}) == 3
        assert prefill.parts.metrics.prompt_tokens._value.get() == len(PROMPT)
        await decode.assert_idle()


async def test_warm_prefix_skips_blocks_on_the_wire() -> None:
    async with running_prefill() as prefill, running_decode() as decode:
        cold = await generate(decode.address, request(PROMPT, [prefill.address]))
        longer = request([*PROMPT[:48], *range(300, 310)], [prefill.address])
        warm = await generate(decode.address, longer)
        assert cold.done is not None
        assert warm.done is not None
        assert cold.done.cached_tokens == 0
        assert warm.accepted_cached == warm.done.cached_tokens == 48
        assert warm.done.handoff_bytes < cold.done.handoff_bytes / 2
        assert warm.tokens == (await local_answer(longer)).tokens


async def test_prefix_cached_on_the_prefill_worker_only_counts_as_cached() -> None:
    async with running_prefill() as prefill:
        async with running_decode() as first:
            await generate(first.address, request(PROMPT, [prefill.address]))
        async with running_decode() as second:
            answer = await generate(second.address, request(PROMPT, [prefill.address]))
            assert answer.accepted_cached == 0
            assert answer.done is not None
            assert answer.done.cached_tokens == 48
            assert answer.tokens == (await local_answer(request(PROMPT))).tokens


async def test_short_uncached_suffix_is_prefilled_here() -> None:
    async with running_prefill() as prefill, running_decode(handoff=HandoffSettings(50)) as decode:
        answer = await generate(decode.address, request(PROMPT, [prefill.address]))
        assert answer.done is not None
        assert answer.done.prefill_worker_id == ""
        assert prefill.parts.metrics.prompt_tokens._value.get() == 0


@pytest.mark.parametrize("sent", [1, 5, 9])
async def test_resumed_stream_goes_on_where_it_broke(sent: int) -> None:
    async with running_prefill() as prefill, running_decode() as decode:
        whole = (await local_answer(request(PROMPT, sampling=SAMPLED))).tokens[0]
        message = request(PROMPT, [prefill.address], SAMPLED, outputs=[whole[:sent]])
        answer = await generate(decode.address, message)
        assert whole[:sent] + answer.tokens[0] == whole
        assert answer.done is not None
        assert answer.done.prefill_worker_id == "peer-0"


async def test_resumed_choices_are_prefilled_here() -> None:
    async with running_prefill() as prefill, running_decode() as decode:
        whole = (await local_answer(request(PROMPT, sampling=SAMPLED, outputs=[(), ()]))).tokens
        message = request(PROMPT, [prefill.address], SAMPLED, outputs=[whole[0][:3], whole[1][:6]])
        answer = await generate(decode.address, message)
        assert whole[0][:3] + answer.tokens[0] == whole[0]
        assert whole[1][:6] + answer.tokens[1] == whole[1]
        assert answer.done is not None
        assert answer.done.prefill_worker_id == ""


async def test_first_token_that_ends_the_choice_finishes_it() -> None:
    first = (await local_answer(request(PROMPT, sampling=SAMPLED))).tokens[0][0]
    stopping = SamplingParams(max_tokens=10, seed=11, stop_token_ids=frozenset({first}))
    async with running_prefill() as prefill, running_decode() as decode:
        message = request(PROMPT, [prefill.address], stopping)
        answer = await generate(decode.address, message)
        assert answer.tokens == {0: [first]}
        assert answer.reasons == (await local_answer(message)).reasons
        await decode.assert_idle()


async def test_many_requests_at_once_stay_apart() -> None:
    async with running_prefill() as prefill, running_decode() as decode:
        messages = [
            request([n, *PROMPT[: 5 * n + 1]], [prefill.address], SAMPLED, request_id=f"r{n}") for n in range(8)
        ]
        answers = await asyncio.gather(*(generate(decode.address, message) for message in messages))
        for message, answer in zip(messages, answers, strict=True):
            assert answer.tokens == (await local_answer(message)).tokens
        await prefill.assert_idle()
        await decode.assert_idle()


def test_prompt_spans_chunks_and_a_partial_block() -> None:
    assert len(PROMPT) % BLOCK_SIZE


async def test_frames_too_large_for_the_event_loop_are_checked_as_well() -> None:
    """One block of 16,384 slots is 128 KiB."""
    wide = SimulatedSettings(num_blocks=4, block_size=16_384, max_model_len=512)
    async with running_prefill(wide) as prefill, running_decode(wide) as decode:
        answer = await generate(decode.address, request(PROMPT, [prefill.address]))
        assert answer.done is not None
        assert answer.done.handoff_bytes > INLINE_BYTES
        assert answer.tokens == (await local_answer(request(PROMPT))).tokens
