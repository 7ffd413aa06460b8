"""A request can end at every stage of its life; afterwards every block is free or cached and the engine still right."""

import asyncio
import random
import threading

import pytest
from kvarn_engine.core.plan import StepPlan
from kvarn_engine.core.sampling import FinishReason, SampledToken
from kvarn_engine.serving.engine import StepEngine
from kvarn_engine.serving.protocol import BlocksReady, ChoiceSpec, FinishedEvent, TokensEvent
from kvarn_engine.serving.simulated import SimulatedRunner, SimulatedSettings

from tests.unit.serving.engine_builders import (
    collect,
    expected_tokens,
    generate,
    prompt,
    request,
    runner,
    running,
    split,
    until,
)


class GatedRunner(SimulatedRunner):
    """Each step waits for one permit and counts itself."""

    def __init__(self) -> None:
        super().__init__(SimulatedSettings(num_blocks=64, block_size=4, vocab_size=600))
        self.permits = threading.Semaphore(0)
        self.steps = 0

    def execute(self, plan: StepPlan) -> list[list[SampledToken]]:
        self.steps += 1
        self.permits.acquire()
        return super().execute(plan)

    def open_up(self) -> None:
        self.permits.release(100_000)


async def all_free(engine: StepEngine) -> None:
    await until(lambda: engine.load().blocks_in_use == 0, "blocks are still held")
    assert engine.load().running == engine.load().waiting == 0
    engine.check_integrity()


async def test_leaving_before_the_start() -> None:
    async with running() as engine:
        async with engine.open_generation(request(prompt(20))) as generation:
            assert generation.cached_blocks == 0
            assert engine.load().blocks_in_use == 5
        await all_free(engine)


async def test_leaving_during_the_import() -> None:
    spec = request(prompt(20))
    async with running() as source, running() as target:
        async with source.open_prefill(spec, 20, 0) as prefill, target.open_generation(spec) as generation:
            async for event in prefill.events():
                if isinstance(event, BlocksReady):
                    generation.write_block(0, event.hashes[0], source.read_block(event.indexes[0]))
                    break
        await all_free(source)
        await all_free(target)
        assert target.load().blocks_cached == 1
        assert await split(source, target, spec) == {0: expected_tokens(prompt(20), 12)}


@pytest.mark.parametrize("after", [1, 2, 11])
async def test_leaving_during_decode(after: int) -> None:
    async with running() as engine:
        spec = request(prompt(20), 100, [ChoiceSpec(0), ChoiceSpec(1)])
        async with engine.open_generation(spec) as generation:
            await generation.start()
            async for event in generation.events():
                after -= isinstance(event, TokensEvent)
                if not after:
                    break
        await all_free(engine)
        assert await generate(engine, request(prompt(20))) == {0: expected_tokens(prompt(20), 12)}


async def test_cancelled_in_the_queue() -> None:
    async with running(max_sequences=1) as engine:
        async with engine.open_generation(request(prompt(5))):
            waiting = asyncio.create_task(generate(engine, request(prompt(6))), name="waiting")
            await until(lambda: engine.load().waiting == 1, "nothing waits")
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            await until(lambda: engine.load().waiting == 0, "still queued")
        await all_free(engine)


async def test_ten_cancelled_prefills_cost_the_next_request_one_chunk() -> None:
    model = GatedRunner()
    async with running(model, max_sequences=16) as engine:

        async def prefill(length: int, seed: int) -> None:
            async with engine.open_prefill(request(prompt(length, seed)), length, 0) as opened:
                async for _ in opened.events():
                    pass

        tasks = [asyncio.create_task(prefill(20, seed), name=f"long-{seed}") for seed in range(10)]
        await until(lambda: model.steps == 1, "no chunk is being computed")
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        short = asyncio.create_task(prefill(4, 99), name="short")
        await asyncio.sleep(0)  # the short prefill has submitted its command
        model.open_up()
        await short
        assert model.steps == 2
        await all_free(engine)


async def test_stopping_one_choice_leaves_the_others() -> None:
    model = GatedRunner()
    spec = request(prompt(6), 5, [ChoiceSpec(0), ChoiceSpec(1), ChoiceSpec(2)])
    async with running(model) as engine, engine.open_generation(spec) as generation:
        generation.stop_choice(0)
        await generation.start()
        await until(lambda: model.steps == 1, "no step")
        generation.stop_choice(2)
        generation.stop_choice(2)
        model.open_up()
        tokens, reasons = await collect(generation)
        assert reasons == {0: FinishReason.ABORTED, 1: FinishReason.LENGTH, 2: FinishReason.ABORTED}
        assert 0 not in tokens
        assert len(tokens[1]) == 5
        assert len(tokens.get(2, [])) <= 1


async def test_stopping_every_choice_before_the_start() -> None:
    async with running() as engine, engine.open_generation(request(prompt(6))) as generation:
        generation.stop_choice(0)
        await generation.start()
        assert [event async for event in generation.events()] == [FinishedEvent(0, FinishReason.ABORTED)]
        assert engine.load().blocks_in_use == 0


async def test_two_hundred_requests_that_end_at_random_moments() -> None:
    """On a pool so small that they also preempt each other; whoever is left alone gets the right tokens."""
    chance = random.Random(7)
    async with running(runner(num_blocks=40)) as source, running(runner(num_blocks=40)) as target:

        async def one(number: int) -> bool:
            length = chance.randint(1, 40)
            count = chance.randint(1, 20)
            whole = asyncio.create_task(
                split(source, target, request(prompt(length, number % 7), count)), name=f"request-{number}"
            )
            patience = chance.choice([0, 1, 3, 10, 30, 1_000_000])
            while not whole.done() and patience:
                await asyncio.sleep(0)
                patience -= 1
            whole.cancel()
            try:
                assert await whole == {0: expected_tokens(prompt(length, number % 7), count)}
            except asyncio.CancelledError:
                return False
            return True

        served = 0
        for start in range(0, 200, 20):
            served += sum(await asyncio.gather(*(one(number) for number in range(start, start + 20))))
        assert 10 < served < 190
        await all_free(source)
        await all_free(target)
