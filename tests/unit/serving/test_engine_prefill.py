"""Events of a prefill: their order, what is cached, what the peer has already, and how long blocks stay pinned."""

import pytest
from kvarn_engine.core.hashing import block_hashes, partial_hash
from kvarn_engine.serving.engine import StepEngine
from kvarn_engine.serving.protocol import (
    BlocksReady,
    ChoiceSpec,
    FirstTokens,
    PrefillEvent,
    PrefillFinished,
    RequestSpec,
)

from tests.unit.serving.engine_builders import ROOT, expected_tokens, prompt, request, runner, running, until


async def events(engine: StepEngine, spec: RequestSpec, have_blocks: int = 0) -> list[PrefillEvent]:
    async with engine.open_prefill(spec, len(spec.prompt_tokens), have_blocks) as prefill:
        return [event async for event in prefill.events()]


def shape(happened: list[PrefillEvent]) -> list[object]:
    return [
        (event.first, len(event.indexes)) if isinstance(event, BlocksReady) else type(event) for event in happened
    ]


async def test_blocks_come_with_each_chunk_and_the_first_token_ahead_of_the_last_ones() -> None:
    async with running() as engine:
        happened = await events(engine, request(prompt(42)))
        assert shape(happened) == [(0, 4), (4, 4), FirstTokens, (8, 3), PrefillFinished]
        hashes = [block_hash for event in happened if isinstance(event, BlocksReady) for block_hash in event.hashes]
        full = block_hashes(ROOT, prompt(42), 4)
        assert hashes == [*full, partial_hash(full[-1], prompt(42)[40:])]
        assert happened[-1].num_blocks == 11
        assert happened[2].tokens[0][1].token_id == expected_tokens(prompt(42), 1)[0]


async def test_cached_blocks_come_before_anything_is_computed() -> None:
    async with running() as engine:
        await events(engine, request(prompt(42)))
        assert shape(await events(engine, request(prompt(42)))) == [(0, 10), FirstTokens, (10, 1), PrefillFinished]
        longer = request(prompt(60))
        assert shape(await events(engine, longer)) == [(0, 10), (10, 4), FirstTokens, (14, 1), PrefillFinished]


@pytest.mark.parametrize(
    ("have", "expected"),
    [
        (3, [(3, 1), (4, 4), FirstTokens, (8, 3), PrefillFinished]),
        (4, [(4, 4), FirstTokens, (8, 3), PrefillFinished]),
        (10, [FirstTokens, (10, 1), PrefillFinished]),
        (11, [FirstTokens, PrefillFinished]),
    ],
)
async def test_blocks_that_the_peer_has_are_computed_but_not_announced(have: int, expected: list[object]) -> None:
    async with running() as engine:
        assert shape(await events(engine, request(prompt(42)), have)) == expected


async def test_one_prefill_draws_for_every_choice() -> None:
    choices = [ChoiceSpec(2), ChoiceSpec(0), ChoiceSpec(7)]
    async with running() as engine:
        (first,) = [
            event
            for event in await events(engine, request(prompt(9), choices=choices, temperature=1.0, seed=3))
            if isinstance(event, FirstTokens)
        ]
    assert [(choice, token.token_id) for choice, token in first.tokens] == [
        (choice, expected_tokens(prompt(9), 1, key=lambda digest, choice=choice: (digest, 3, choice))[0])
        for choice in (2, 0, 7)
    ]


async def test_blocks_stay_pinned_until_the_prefill_closes() -> None:
    async with running(runner(num_blocks=12)) as engine:
        async with engine.open_prefill(request(prompt(42), 1), 42, 0) as prefill:
            ready = [event async for event in prefill.events() if isinstance(event, BlocksReady)]
            pinned = [(index, bytes(engine.read_block(index))) for event in ready for index in event.indexes]
            assert engine.load().blocks_in_use == 11
            engine.check_integrity()
            assert [bytes(engine.read_block(index)) for index, _ in pinned] == [content for _, content in pinned]
        await until(lambda: engine.load().blocks_in_use == 0, "blocks are still pinned")
        assert engine.load().blocks_cached == 10


async def test_two_prefills_of_one_prompt_export_the_same_blocks() -> None:
    spec = request(prompt(32))
    async with running() as engine, engine.open_prefill(spec, 32, 0) as one, engine.open_prefill(spec, 32, 0) as two:
        for prefill in (one, two):
            happened = [event async for event in prefill.events()]
            assert isinstance(happened[-1], PrefillFinished)
        engine.check_integrity()
