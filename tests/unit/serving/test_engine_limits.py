"""StepEngine refuses what it cannot do, survives failed steps, stops, and reports its load."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest
from kvarn_engine.core.errors import Draining, EngineFailure, HandoffError, InvalidRequest, Overloaded
from kvarn_engine.core.ids import BlockHash
from kvarn_engine.core.plan import StepPlan
from kvarn_engine.core.sampling import SampledToken
from kvarn_engine.serving.engine import StepEngine
from kvarn_engine.serving.engine_settings import EngineSettings
from kvarn_engine.serving.protocol import ChoiceSpec, PrefillFinished, RequestSpec
from kvarn_engine.serving.simulated import CostModel, SimulatedRunner, SimulatedSettings

from tests.unit.serving.engine_builders import (
    collect,
    expected_tokens,
    generate,
    prompt,
    request,
    runner,
    running,
    until,
)


class FailingRunner(SimulatedRunner):
    """Fails every step while `is_broken`."""

    is_broken = False

    def execute(self, plan: StepPlan) -> list[list[SampledToken]]:
        if self.is_broken:
            raise OSError("device lost")
        return super().execute(plan)


@pytest.mark.parametrize(
    ("spec", "field", "message"),
    [
        (request(()), "prompt_tokens", "empty"),
        (request((5, 600)), "prompt_tokens", "from 0 to 599"),
        (request((5, -1)), "prompt_tokens", "from 0 to 599"),
        (request((5,), choices=[ChoiceSpec(0, (600,))]), "prompt_tokens", "from 0 to 599"),
        (request(prompt(99), 2), "prompt_tokens", "99 prompt tokens and max_tokens 2 exceed the model's limit of 100"),
        (request(prompt(5), 0), "max_tokens", "at least 1"),
        (request(prompt(5), choices=()), "choices", "at least one"),
        (request(prompt(5), choices=[ChoiceSpec(index) for index in range(9)]), "n", "9 choices exceed .* limit of 8"),
        (request(prompt(5), choices=[ChoiceSpec(1), ChoiceSpec(1)]), "choices", "once"),
    ],
)
async def test_requests_that_can_never_succeed(spec: RequestSpec, field: str, message: str) -> None:
    async with running(runner(num_blocks=16, max_model_len=100)) as engine:
        for opened in (engine.open_generation(spec), engine.open_prefill(spec, len(spec.prompt_tokens), 0)):
            with pytest.raises(InvalidRequest, match=message) as refused:
                await opened.__aenter__()
            assert refused.value.field == field


@pytest.mark.parametrize(("num_prompt_tokens", "have_blocks", "field"), [
    (0, 0, "num_prompt_tokens"), (10, 0, "num_prompt_tokens"), (9, 4, "have_blocks"), (9, -1, "have_blocks"),
])  # fmt: skip
async def test_prefills_that_contradict_themselves(num_prompt_tokens: int, have_blocks: int, field: str) -> None:
    async with running() as engine:
        with pytest.raises(InvalidRequest) as refused:
            await engine.open_prefill(request(prompt(9)), num_prompt_tokens, have_blocks).__aenter__()
        assert refused.value.field == field


async def test_a_request_larger_than_the_store_is_refused() -> None:
    async with running(runner(num_blocks=16)) as engine:
        with pytest.raises(InvalidRequest, match=r"50 prompt tokens and max_tokens 15 exceed .* KV store of 64 tokens"):
            await engine.open_generation(request(prompt(50), 15)).__aenter__()
        with pytest.raises(InvalidRequest, match=r"65 tokens exceed .* KV store of 64 tokens"):
            await engine.open_prefill(request(prompt(65), 1), 65, 0).__aenter__()


async def test_a_prefill_needs_no_room_for_the_output_to_come() -> None:
    async with running(runner(num_blocks=16)) as engine, engine.open_prefill(request(prompt(64), 30), 64, 0) as prefill:
        happened = [event async for event in prefill.events()]
        assert isinstance(happened[-1], PrefillFinished)


async def test_the_largest_request_that_fits_is_served() -> None:
    async with running(runner(num_blocks=16)) as engine:
        assert await generate(engine, request(prompt(50), 14)) == {0: expected_tokens(prompt(50), 14)}


async def test_a_full_queue_is_an_overload() -> None:
    async with running(max_sequences=1, max_waiting=1) as engine:
        async with engine.open_generation(request(prompt(5))):
            waiting = asyncio.create_task(generate(engine, request(prompt(6))), name="waiting")
            await until(lambda: engine.load().waiting == 1, "nothing waits")
            with pytest.raises(Overloaded) as refused:
                await engine.open_generation(request(prompt(7))).__aenter__()
            assert refused.value.retry_after_s >= 1
        assert await waiting == {0: expected_tokens(prompt(6), 12)}


async def test_a_failed_step_fails_what_is_in_flight_and_nothing_later() -> None:
    model = FailingRunner(SimulatedSettings(num_blocks=64, block_size=4, vocab_size=600))
    async with running(model) as engine:
        spec = request(prompt(10))
        assert await generate(engine, spec) == {0: expected_tokens(prompt(10), 12)}
        async with engine.open_generation(request(prompt(9, 2))) as generation:
            model.is_broken = True
            async with engine.open_prefill(request(prompt(9, 3)), 9, 0) as prefill:
                with pytest.raises(EngineFailure, match="OSError"):
                    await anext(prefill.events())
            with pytest.raises(EngineFailure, match="OSError"):
                await collect(generation)
        model.is_broken = False
        assert await generate(engine, spec) == {0: expected_tokens(prompt(10), 12)}


class ForgetfulRunner(SimulatedRunner):
    """Answers no draw."""

    def execute(self, plan: StepPlan) -> list[list[SampledToken]]:
        return [[] for _ in super().execute(plan)]


async def test_a_runner_that_answers_too_little_fails_the_step() -> None:
    model = ForgetfulRunner(SimulatedSettings(num_blocks=64, block_size=4, vocab_size=600))
    async with running(model) as engine:
        with pytest.raises(EngineFailure, match="RuntimeError"):
            await generate(engine, request(prompt(6)))


async def test_a_defect_of_the_step_loop_fails_what_is_there_and_what_comes(caplog: pytest.LogCaptureFixture) -> None:
    engine = StepEngine(runner(), EngineSettings(), clock=lambda: 1 // 0)
    await engine.start()
    for _ in range(2):
        with pytest.raises(EngineFailure, match="must be restarted"):
            await generate(engine, request(prompt(6)))
    assert "step loop crashed" in caplog.text
    await engine.stop()


async def test_stop_fails_what_is_in_flight_and_refuses_more() -> None:
    engine = StepEngine(runner(), EngineSettings())
    with pytest.raises(EngineFailure):
        await engine.open_generation(request(prompt(5))).__aenter__()
    await engine.start()
    async with engine.open_generation(request(prompt(5))) as generation:
        await engine.stop()
        with pytest.raises(Draining, match="ends"):
            await collect(generation)
    engine.check_integrity()
    assert engine.load().blocks_in_use == 0
    with pytest.raises(EngineFailure, match="not running"):
        await engine.open_prefill(request(prompt(5)), 5, 0).__aenter__()


async def test_blocks_are_checked_before_they_are_written() -> None:
    spec = request(prompt(10))
    async with running() as source, running() as target, source.open_prefill(spec, 10, 0) as prefill:
        ready = [event async for event in prefill.events()][1]
        assert (ready.first, len(ready.indexes)) == (0, 3)
        payload = source.read_block(ready.indexes[0])
        async with target.open_generation(spec) as generation:
            with pytest.raises(HandoffError, match="another hash"):
                generation.write_block(0, BlockHash(bytes(16)), payload)
            with pytest.raises(HandoffError, match="block 3 is not among"):
                generation.write_block(3, ready.hashes[0], payload)
            with pytest.raises(HandoffError, match="cannot be written"):
                generation.write_block(0, ready.hashes[0], payload[:-1])
            with pytest.raises(HandoffError, match="4 blocks announced"):
                await generation.allocate_import(4)
            await generation.allocate_import(3)
            generation.write_block(1, ready.hashes[1], source.read_block(ready.indexes[1]))
            assert generation.received_blocks == 0
            generation.write_block(0, ready.hashes[0], payload)
            assert generation.received_blocks == 2
            with pytest.raises(HandoffError, match="block 1 is not among"):
                generation.write_block(1, ready.hashes[1], payload)
            with pytest.raises(HandoffError, match=r"no first token for choices \[0\]"):
                await generation.start([(1, SampledToken(5))])
        with pytest.raises(HandoffError, match="takes no blocks"):
            generation.write_block(0, ready.hashes[0], payload)


async def test_a_corrupt_block_is_a_failure_and_never_a_wrong_token() -> None:
    spec = request(prompt(10))
    async with running() as source, running() as target, source.open_prefill(spec, 10, 0) as prefill:
        ready = [event async for event in prefill.events()][1]
        async with target.open_generation(spec) as generation:
            for position, (index, block_hash) in enumerate(zip(ready.indexes, ready.hashes, strict=True)):
                payload = bytearray(source.read_block(index))
                payload[0] ^= position == 1
                generation.write_block(position, block_hash, memoryview(payload))
            await generation.start([(0, SampledToken(5))])
            with pytest.raises(EngineFailure):
                await collect(generation)


class Clock:
    """Virtual seconds: a step's cost passes when the runner sleeps."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


async def test_load_reports_measured_rates() -> None:
    clock = Clock()
    settings = SimulatedSettings(64, 4, vocab_size=600, cost=CostModel(prefill_token_s=0.01, decode_sequence_s=0.5))
    engine = StepEngine(SimulatedRunner(settings, clock.sleep), EngineSettings(16, 8), clock)
    await engine.start()
    fresh = engine.load()
    assert (fresh.prefill_tokens_per_s, fresh.decode_step_s, fresh.blocks_total) == (0.0, 0.0, 64)
    async with engine.open_generation(request(prompt(20))) as generation:
        assert (engine.load().running, engine.load().blocks_in_use) == (1, 5)
        await generation.start()
        await collect(generation)
    await until(lambda: engine.load().running == 0, "still running")
    report = engine.load()
    assert report.prefill_tokens_per_s == pytest.approx(100)
    assert report.decode_step_s == pytest.approx(0.5)
    assert (report.blocks_in_use, report.waiting, report.queued_prefill_tokens) == (0, 0, 0)
    assert report.blocks_cached == 7
    await engine.stop()


async def test_a_prefill_adds_up_its_compute_time() -> None:
    clock = Clock()
    settings = SimulatedSettings(64, 4, vocab_size=600, cost=CostModel(prefill_token_s=0.01))
    engine = StepEngine(SimulatedRunner(settings, clock.sleep), EngineSettings(16, 8), clock)
    await engine.start()
    async with engine.open_prefill(request(prompt(30)), 30, 0) as prefill:
        finished = [event async for event in prefill.events()][-1]
        assert finished.compute_s == pytest.approx(0.3)
    await engine.stop()


@pytest.mark.parametrize("limits", [{"max_sequences": 0}, {"max_batch_tokens": 3}, {"feed_bound": 0}])
def test_settings_that_cannot_work(limits: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=next(iter(limits))):
        replace(EngineSettings(), **limits)


def test_logprobs_are_given_when_asked_for() -> None:
    model = runner()

    async def first(**sampling: object) -> Sequence[SampledToken]:
        async with running(model) as engine, engine.open_prefill(request(prompt(5), **sampling), 5, 0) as prefill:
            event = await anext(prefill.events())
            return event.tokens[0][1:]

    assert asyncio.run(first())[0].logprob is None
    (token,) = asyncio.run(first(logprobs=2))
    assert token.logprob == token.top_logprobs[0].logprob
    assert token.token_id == token.top_logprobs[0].token_id
