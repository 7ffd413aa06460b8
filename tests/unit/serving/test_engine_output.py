"""StepEngine gives the same tokens whole, split over two engines, preempted, forked, and resumed."""

import asyncio

import pytest
from kvarn_engine.core.sampling import FinishReason, SampledToken
from kvarn_engine.serving.protocol import BlocksReady, ChoiceSpec

from tests.unit.serving.engine_builders import (
    collect,
    expected_tokens,
    generate,
    prompt,
    request,
    runner,
    running,
    split,
)

LENGTHS = [1, 3, 4, 5, 8, 15, 16, 17, 32, 50]


@pytest.mark.parametrize("length", LENGTHS)
async def test_one_engine_follows_the_model_cold_and_warm(length: int) -> None:
    spec = request(prompt(length))
    expected = {0: expected_tokens(prompt(length), 12)}
    async with running() as engine:
        assert await generate(engine, spec) == expected
        async with engine.open_generation(spec) as generation:
            assert generation.cached_blocks == (length - 1) // 4
            await generation.start()
            assert (await collect(generation))[0] == expected


@pytest.mark.parametrize("length", LENGTHS)
async def test_two_engines_follow_the_model_cold_and_warm(length: int) -> None:
    spec = request(prompt(length))
    async with running() as source, running() as target:
        for _ in range(2):
            assert await split(source, target, spec) == {0: expected_tokens(prompt(length), 12)}
        async with source.open_prefill(spec, length, 0) as prefill:
            assert prefill.cached_tokens == (length - 1) // 4 * 4
        async with target.open_generation(spec) as generation:
            assert generation.cached_blocks == (length - 1) // 4


async def test_choices_fork_off_one_prefill_and_share_its_blocks() -> None:
    spec = request(prompt(18), 9, [ChoiceSpec(0), ChoiceSpec(1), ChoiceSpec(2)], temperature=1.0, seed=5)
    expected = {
        choice: expected_tokens(prompt(18), 9, key=lambda digest, choice=choice: (digest, 5, choice))
        for choice in range(3)
    }
    async with running() as source, running() as target:
        assert await generate(source, spec) == expected
        assert await split(source, target, spec) == expected


async def test_preemption_on_a_tiny_pool_changes_nothing() -> None:
    specs = [request(prompt(6, seed), 30) for seed in range(1, 6)]
    async with running(runner(num_blocks=14)) as engine:
        preempted = 0

        async def one(spec: object) -> list[int]:
            nonlocal preempted
            async with engine.open_generation(spec) as generation:
                await generation.start()
                tokens, _ = await collect(generation)
                preempted += generation.preemptions
                return tokens[0]

        results = await asyncio.gather(*(one(spec) for spec in specs))
        assert results == [expected_tokens(spec.prompt_tokens, 30) for spec in specs]
        assert preempted > 0


async def test_a_resumed_stream_continues_where_it_stopped() -> None:
    whole = expected_tokens(prompt(11), 12)
    for already in (1, 5, 11):
        spec = request(prompt(11), 12, [ChoiceSpec(0, tuple(whole[:already]))])
        async with running() as source, running() as target:
            assert await generate(source, spec) == {0: whole[already:]}
            assert await split(source, target, spec) == {0: whole[already:]}


async def test_a_stream_resumed_after_its_end_only_finishes() -> None:
    whole = expected_tokens(prompt(11), 12)
    spec = request(prompt(11), 12, [ChoiceSpec(0, tuple(whole)), ChoiceSpec(3)])
    async with running() as engine, engine.open_generation(spec) as generation:
        await generation.start()
        tokens, reasons = await collect(generation)
        assert tokens == {3: whole}
        assert reasons == {0: FinishReason.LENGTH, 3: FinishReason.LENGTH}


async def test_resumed_choices_with_different_outputs() -> None:
    def key(choice: int) -> object:
        return lambda digest: (digest, 0, choice)

    whole = [expected_tokens(prompt(10), 12, key=key(choice)) for choice in range(2)]
    choices = [ChoiceSpec(0, tuple(whole[0][:3])), ChoiceSpec(1, tuple(whole[1][:7]))]
    async with running() as engine:
        tokens = await generate(engine, request(prompt(10), 12, choices, temperature=0.5))
    assert tokens == {0: whole[0][3:], 1: whole[1][7:]}


async def test_stop_tokens_and_end_of_sequence_end_a_choice() -> None:
    whole = expected_tokens(prompt(9), 12)
    async with running(runner(eos_token_ids=frozenset({whole[4]}))) as engine:
        for spec, count in (
            (request(prompt(9), 12, ignore_eos=False), 5),
            (request(prompt(9), 12, stop_token_ids=frozenset({whole[2]})), 3),
            (request(prompt(9), 12, stop_token_ids=frozenset({whole[0]})), 1),
        ):
            async with engine.open_generation(spec) as generation:
                await generation.start()
                tokens, reasons = await collect(generation)
            assert tokens == {0: whole[:count]}
            assert reasons == {0: FinishReason.STOP}


async def test_a_first_token_from_a_peer_that_ends_the_choice_is_not_repeated() -> None:
    whole = expected_tokens(prompt(9), 1)
    spec = request(prompt(9), 12, stop_token_ids=frozenset(whole))
    async with running() as source, running() as target:
        assert await split(source, target, spec) == {0: whole}


@pytest.mark.parametrize("received", range(7))
async def test_an_interrupted_import_is_finished_by_computing(received: int) -> None:
    """22 tokens are five full blocks and a partial one; the first token never arrives."""
    spec = request(prompt(22))
    async with running() as source, running() as target, source.open_prefill(spec, 22, 0) as prefill:
        blocks = []
        async for event in prefill.events():
            if isinstance(event, BlocksReady):
                blocks.extend(zip(event.indexes, event.hashes, strict=True))
        assert len(blocks) == 6
        async with target.open_generation(spec) as generation:
            for position, (index, block_hash) in enumerate(blocks[:received]):
                generation.write_block(position, block_hash, source.read_block(index))
            assert generation.received_blocks == received
            await generation.start()
            assert (await collect(generation))[0] == {0: expected_tokens(prompt(22), 12)}


@pytest.mark.parametrize("choices", [(0,), (0, 1, 2)])
async def test_first_tokens_that_the_client_has_are_final_even_when_their_blocks_never_came(
    choices: tuple[int, ...],
) -> None:
    """The given tokens are none that this engine would draw, so only a continuation of them can pass."""
    spec = request(prompt(22), 6, [ChoiceSpec(index) for index in choices])
    given = {index: 100 + index for index in choices}
    async with running() as engine, engine.open_generation(spec) as generation:
        await generation.start([(index, SampledToken(token)) for index, token in given.items()])
        tokens, reasons = await collect(generation)
    assert tokens == {
        index: expected_tokens((*prompt(22), token), 5) for index, token in given.items()
    }
    assert set(reasons.values()) == {FinishReason.LENGTH}


async def test_a_known_first_token_can_end_a_choice_whose_blocks_never_came() -> None:
    spec = request(prompt(22), 1)
    async with running() as engine, engine.open_generation(spec) as generation:
        await generation.start([(0, SampledToken(7))])
        assert await collect(generation) == ({}, {0: FinishReason.LENGTH})
