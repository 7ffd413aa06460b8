"""Builders for tests of StepEngine over SimulatedRunner, and a naive reference for its tokens."""

import asyncio
from array import array
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from hashlib import blake2b
from zlib import crc32

from kvarn_engine.core.hashing import root_hash
from kvarn_engine.core.ids import RequestId
from kvarn_engine.core.sampling import FinishReason, SampledToken, SamplingParams
from kvarn_engine.serving.engine import StepEngine
from kvarn_engine.serving.engine_settings import EngineSettings
from kvarn_engine.serving.protocol import (
    BlocksReady,
    ChoiceSpec,
    FinishedEvent,
    FirstTokens,
    Generation,
    Prefill,
    PrefillFinished,
    RequestSpec,
    TokensEvent,
)
from kvarn_engine.serving.simulated import SimulatedRunner, SimulatedSettings

ROOT = root_hash("render", "layout")


def prompt(length: int, seed: int = 1) -> tuple[int, ...]:
    return tuple((seed * 7919 + index * 31) % 500 + 10 for index in range(length))


def request(
    tokens: Sequence[int],
    max_tokens: int = 12,
    choices: Sequence[ChoiceSpec] = (ChoiceSpec(0),),
    **sampling: object,
) -> RequestSpec:
    params = SamplingParams(max_tokens=max_tokens, **{"temperature": 0.0, "ignore_eos": True, **sampling})
    return RequestSpec(RequestId("r"), tuple(tokens), params, tuple(choices), ROOT)


def runner(num_blocks: int = 64, block_size: int = 4, **settings: object) -> SimulatedRunner:
    values = {"vocab_size": 600, "max_model_len": 400, **settings}
    return SimulatedRunner(SimulatedSettings(num_blocks=num_blocks, block_size=block_size, **values))


@asynccontextmanager
async def running(model: SimulatedRunner | None = None, **settings: int) -> AsyncIterator[StepEngine]:
    values = {"max_batch_tokens": 16, "max_sequences": 8, **settings}
    engine = StepEngine(model if model is not None else runner(), EngineSettings(**values))
    await engine.start()
    try:
        yield engine
        await until(lambda: engine.load().blocks_in_use == 0, "blocks are still held")
        engine.check_integrity()
    finally:
        await engine.stop()


async def until(condition: Callable[[], bool], message: str, deadline_s: float = 10.0) -> None:
    """Poll a condition; fail with `message` after the deadline."""
    end = asyncio.get_running_loop().time() + deadline_s
    while not condition():
        assert asyncio.get_running_loop().time() < end, message
        await asyncio.sleep(0.001)


async def collect(generation: Generation) -> tuple[dict[int, list[int]], dict[int, FinishReason]]:
    tokens: dict[int, list[int]] = {}
    reasons: dict[int, FinishReason] = {}
    async for event in generation.events():
        match event:
            case TokensEvent(choice, drawn):
                tokens.setdefault(choice, []).extend(token.token_id for token in drawn)
            case FinishedEvent(choice, reason):
                assert choice not in reasons
                reasons[choice] = reason
    return tokens, reasons


async def generate(engine: StepEngine, spec: RequestSpec) -> dict[int, list[int]]:
    async with engine.open_generation(spec) as generation:
        await generation.start()
        tokens, _ = await collect(generation)
        return tokens


async def transfer(
    source: StepEngine, prefill: Prefill, generation: Generation
) -> tuple[tuple[tuple[int, SampledToken], ...], PrefillFinished]:
    """Move every block that a prefill announces into a generation."""
    first: tuple[tuple[int, SampledToken], ...] = ()
    async for event in prefill.events():
        match event:
            case BlocksReady(start, indexes, hashes):
                for offset, (index, block_hash) in enumerate(zip(indexes, hashes, strict=True)):
                    generation.write_block(start + offset, block_hash, source.read_block(index))
            case FirstTokens(drawn):
                first = drawn
            case PrefillFinished():
                return first, event
    raise AssertionError("a prefill ended without PrefillFinished")


async def split(source: StepEngine, target: StepEngine, spec: RequestSpec) -> dict[int, list[int]]:
    """Prefill on one engine, decode on the other; tokens of each choice, the first one included."""
    async with target.open_generation(spec) as generation:
        tokens = spec.prompt_tokens + (spec.choices[0].output_tokens if len(spec.choices) == 1 else ())
        whole = RequestSpec(spec.request_id, tokens, spec.sampling, spec.choices, spec.root_hash, spec.priority)
        async with source.open_prefill(whole, len(spec.prompt_tokens), generation.cached_blocks) as prefill:
            first, finished = await transfer(source, prefill, generation)
            assert finished.num_blocks == -(-len(tokens) // target.layout.block_size)
        await generation.start(first)
        rest, _ = await collect(generation)
    return {choice: [token.token_id, *rest.get(choice, [])] for choice, token in first}


def expected_tokens(
    history: Sequence[int], count: int, vocab_size: int = 600, key: Callable[[int], object] = lambda digest: digest
) -> list[int]:
    """What the simulated model says after `history`, without any block."""
    tokens = list(history)
    for _ in range(count):
        digest = crc32(array("I", tokens).tobytes())
        drawn = blake2b(repr((key(digest), len(tokens))).encode(), digest_size=8).digest()
        tokens.append(int.from_bytes(drawn, "little") % vocab_size)
    return tokens[len(history) :]
