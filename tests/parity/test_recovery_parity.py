"""Greedy answers stay the reference's when a process dies under them, and when the pool is too small for them.

Float32, embedded model: two prefill and two decode workers, so that there is somebody to go on.
"""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
import torch
from kvarn_engine.model_folder import EMBEDDED_MODEL, resolve_model

from tests.support.client import TIMEOUT, Answer, ask, completion_body, streaming
from tests.support.polling import until
from tests.support.reference import Reference
from tests.support.stack import PREEMPTIONS, Stack, StackSpec, Worker, running_stack

pytestmark = pytest.mark.model

MODEL = "test-model"
CHUNK = 64
LONG_TEXT = "The mill has two stones and they turn all day. " * 70
STREAMED_TEXT = "Once upon a time there was a miller who"


@pytest.fixture(scope="module")
def reference() -> Reference:
    return Reference(resolve_model(EMBEDDED_MODEL), torch.float32)


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    spec = StackSpec(
        EMBEDDED_MODEL,
        prefill=2,
        decode=2,
        worker_flags=("--dtype", "float32", "--num-blocks", "160", "--max-batch-tokens", str(CHUNK)),
        decode_flags=("--local-prefill-max-tokens", "0"),
    )
    with running_stack(spec, tmp_path_factory.mktemp("recovery")) as running:
        yield running


async def test_a_prefill_peer_killed_in_mid_transfer_changes_no_token(stack: Stack, reference: Reference) -> None:
    prompt = reference.encode(LONG_TEXT)
    async with httpx.AsyncClient(base_url=stack.url, timeout=TIMEOUT) as client:
        task = asyncio.create_task(ask(client, completion_body(MODEL, prompt, 16)), name="long-answer")
        victim = await _half_way_prefill(stack, len(prompt))
        assert not task.done()
        victim.process.kill()
        answer = await task
    assert answer.text == reference.decode(reference.greedy(prompt, 16))
    stack.restart(victim)


async def test_a_decode_worker_killed_in_mid_stream_leaves_one_unbroken_stream(
    stack: Stack, reference: Reference
) -> None:
    prompt = reference.encode(STREAMED_TEXT)
    expected = reference.greedy(prompt, 48)
    victim: Worker | None = None
    answer = Answer()
    async with (
        httpx.AsyncClient(base_url=stack.url, timeout=TIMEOUT) as client,
        streaming(client, completion_body(MODEL, prompt, 48)) as growing,
    ):
        async for answer in growing:
            if victim is None and len(reference.encode(answer.text)) >= 6:
                victim = next(worker for worker in stack.decode if worker.load().running)
                victim.process.kill()
    assert victim is not None
    assert answer.text == reference.decode(expected)
    assert answer.completion_tokens == len(expected)
    stack.restart(victim)


async def test_preemptions_on_a_tiny_pool_change_no_token(tmp_path: Path, reference: Reference) -> None:
    """Six answers grow to six blocks each, in a decode pool of twenty that was promised half of that growth."""
    spec = StackSpec(
        EMBEDDED_MODEL,
        worker_flags=("--dtype", "float32", "--max-batch-tokens", str(CHUNK)),
        prefill_flags=("--num-blocks", "160"),
        decode_flags=("--num-blocks", "20", "--local-prefill-max-tokens", "0"),
    )
    prompts = [
        reference.encode(text) for text in (STREAMED_TEXT, "The river runs, and so the wheel", "In the year 1815")
    ]
    bodies = [completion_body(MODEL, prompt, 64, cache_salt=salt) for salt in ("a", "b") for prompt in prompts]
    with running_stack(spec, tmp_path) as small:
        async with httpx.AsyncClient(base_url=small.url, timeout=TIMEOUT) as client:
            answers = await asyncio.gather(*(ask(client, body) for body in bodies))
        assert small.decode[0].metric(PREEMPTIONS) > 0
    expected = [reference.decode(reference.greedy(prompt, 64)) for prompt in prompts]
    assert [answer.text for answer in answers] == expected * 2


async def _half_way_prefill(stack: Stack, prompt_tokens: int) -> Worker:
    """The prefill worker that has computed some chunks of the prompt but not nearly all."""

    def found() -> Worker | None:
        for worker in stack.prefill:
            left = worker.load().queued_prefill_tokens
            if 4 * CHUNK < left < prompt_tokens - 2 * CHUNK:
                return worker
        return None

    return await until(found, "a prefill is half way")
