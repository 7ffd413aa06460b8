"""One seed gives one answer: in one process, over two pools, after a preemption, and after a move to another worker.

Tiny random model in float32, so that three stacks start in seconds.
"""

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from tests.support.client import TIMEOUT, Answer, Body, ask, chat_body, streaming
from tests.support.stack import COMPUTED_TOKENS, PREEMPTIONS, Stack, StackSpec, Worker, running_stack
from tests.support.tiny import write_tiny_model

MODEL = "test-model"
MAX_TOKENS = 96
SEEDS = (1, 2, 3, 4, 5, 6)
FLOAT32 = ("--dtype", "float32", "--max-batch-tokens", "64")
OVER_POOLS = ("--local-prefill-max-tokens", "0")
NUM_BLOCKS = ("--num-blocks", "512")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="module")
def one_process(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    spec = StackSpec(
        str(folder),
        prefill=0,
        worker_flags=(*FLOAT32, *NUM_BLOCKS),
        decode_flags=("--local-prefill-max-tokens", "1000000"),
        router_flags=("--ready-without-prefill",),
    )
    with running_stack(spec, tmp_path_factory.mktemp("one")) as stack:
        yield stack


@pytest.fixture(scope="module")
def expected(one_process: Stack) -> list[list[bytes]]:
    """Token by token, asked one after the other."""

    async def quiet() -> list[Answer]:
        async with httpx.AsyncClient(base_url=one_process.url, timeout=TIMEOUT) as client:
            return [await ask(client, body(seed)) for seed in SEEDS]

    with ThreadPoolExecutor(1) as beside_the_test_loop:
        answers = [answer.token_bytes for answer in beside_the_test_loop.submit(asyncio.run, quiet()).result()]
    assert len({tuple(answer) for answer in answers}) == len(SEEDS), "the seeds do not matter: nothing is proven"
    return answers


@pytest.fixture(scope="module")
def two_pools(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    spec = StackSpec(str(folder), decode=2, worker_flags=(*FLOAT32, *NUM_BLOCKS), decode_flags=OVER_POOLS)
    with running_stack(spec, tmp_path_factory.mktemp("two")) as stack:
        yield stack


def body(seed: int) -> Body:
    messages = [{"role": "user", "content": f"Miller {seed}: " + "how does the stone turn? " * 4}]
    return chat_body(
        MODEL,
        messages,
        MAX_TOKENS,
        seed=seed,
        temperature=0.9,
        top_p=0.95,
        top_k=50,
        frequency_penalty=0.3,
        logprobs=True,
        ignore_eos=True,
    )


async def ask_together(stack: Stack) -> list[list[bytes]]:
    async with httpx.AsyncClient(base_url=stack.url, timeout=TIMEOUT) as client:
        answers = await asyncio.gather(*(ask(client, body(seed)) for seed in SEEDS))
    return [answer.token_bytes for answer in answers]


async def test_over_two_pools(two_pools: Stack, expected: list[list[bytes]]) -> None:
    before = two_pools.prefill[0].metric(COMPUTED_TOKENS)
    assert await ask_together(two_pools) == expected
    assert two_pools.prefill[0].metric(COMPUTED_TOKENS) > before
    assert await ask_together(two_pools) == expected, "with a warm prefix"


async def test_after_a_move_to_another_decode_worker(two_pools: Stack, expected: list[list[bytes]]) -> None:
    victim: Worker | None = None
    answer = Answer()
    async with (
        httpx.AsyncClient(base_url=two_pools.url, timeout=TIMEOUT) as client,
        streaming(client, body(SEEDS[0])) as growing,
    ):
        async for answer in growing:
            if victim is None and len(answer.token_bytes) >= 4:
                victim = next(worker for worker in two_pools.decode if worker.load().running)
                victim.process.kill()
    assert answer.token_bytes == expected[0]
    assert victim is not None
    two_pools.restart(victim)


async def test_after_preemptions(folder: Path, tmp_path: Path, expected: list[list[bytes]]) -> None:
    """The decode pool has room for less than half of what the requests grow to."""
    spec = StackSpec(
        str(folder),
        prefill_flags=NUM_BLOCKS,
        worker_flags=FLOAT32,
        decode_flags=("--num-blocks", "30", *OVER_POOLS),
    )
    with running_stack(spec, tmp_path) as stack:
        assert await ask_together(stack) == expected
        assert stack.decode[0].metric(PREEMPTIONS) > 0
