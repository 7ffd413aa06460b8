"""Greedy answers of the whole stack equal `transformers.generate`, over HTTP, through both pools.

One stack in float32 with the embedded model, and one in bfloat16 for the rule of `tests.support.reference`.
Every test salts its prefixes, so that cold is cold whatever ran before.
"""

import asyncio
from collections.abc import Iterator, Sequence

import httpx
import pytest
import torch
from kvarn_engine.model_folder import EMBEDDED_MODEL, resolve_model

from tests.support.client import TIMEOUT, Answer, Body, ask, chat_body, completion_body
from tests.support.prompts import CONVERSATIONS, TEXTS
from tests.support.reference import Reference
from tests.support.stack import COMPUTED_TOKENS, Stack, StackSpec, running_stack
from tests.support.vocabulary import Vocabulary

pytestmark = pytest.mark.model

MODEL = "test-model"
MAX_TOKENS = 16
BLOCK_SIZE = 16
CUT = "\ufffd"
"""Ends an answer whose length limit fell inside a character."""

BFLOAT16_EPSILON = 0.5
"""Logits of this model lie around 16 to 32, where neighbouring bfloat16 values are 0.125 apart; 30 layers of rounding
move a logit by a few of those."""


@pytest.fixture(scope="module")
def float32_reference() -> Reference:
    return Reference(resolve_model(EMBEDDED_MODEL), torch.float32)


@pytest.fixture(scope="module")
def float32_stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    spec = StackSpec(
        EMBEDDED_MODEL,
        worker_flags=("--dtype", "float32", "--num-blocks", "256", "--max-batch-tokens", "128"),
        decode_flags=("--local-prefill-max-tokens", "0"),
    )
    with running_stack(spec, tmp_path_factory.mktemp("float32")) as stack:
        yield stack


@pytest.fixture(scope="module")
def bfloat16_stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    spec = StackSpec(
        EMBEDDED_MODEL,
        worker_flags=("--dtype", "bfloat16", "--num-blocks", "256", "--max-batch-tokens", "128"),
        decode_flags=("--local-prefill-max-tokens", "0"),
    )
    with running_stack(spec, tmp_path_factory.mktemp("bfloat16")) as stack:
        yield stack


def bodies(reference: Reference, salt: str) -> list[tuple[list[int], Body]]:
    """Every prompt as token ids, beside the request that must answer it."""
    chats = [
        (
            reference.encode_chat([dict(message) for message in conversation]),
            chat_body(MODEL, conversation, MAX_TOKENS, cache_salt=f"{salt}-{index}"),
        )
        for index, conversation in enumerate(CONVERSATIONS)
    ]
    raw = [
        (tokens, completion_body(MODEL, tokens, MAX_TOKENS, cache_salt=f"{salt}-{index}"))
        for index, tokens in enumerate(map(reference.encode, TEXTS))
    ]
    return chats + raw


async def ask_all(stack: Stack, requests: Sequence[Body], streamed: int | None = None) -> list[Answer]:
    """Every second request is streamed, those with the parity `streamed`; None streams nothing."""
    limits = httpx.Limits(max_connections=8)
    async with httpx.AsyncClient(base_url=stack.url, timeout=TIMEOUT, limits=limits) as client:
        answers = (ask(client, body, stream=index % 2 == streamed) for index, body in enumerate(requests))
        return list(await asyncio.gather(*answers))


def check_equal(reference: Reference, prompt: Sequence[int], answer: Answer) -> None:
    expected = reference.greedy(prompt, MAX_TOKENS)
    ended = expected[-1] in reference.eos_token_ids
    assert answer.text.rstrip(CUT) == reference.decode(expected).rstrip(CUT)
    assert answer.finish_reason == ("stop" if ended else "length")
    assert answer.prompt_tokens == len(prompt)
    assert answer.completion_tokens == len(expected)


async def test_float32_answers_equal_the_reference_cold_and_warm(
    float32_stack: Stack, float32_reference: Reference
) -> None:
    """Each prompt twice: the ones streamed when cold come whole when warm, and the other way round."""
    pairs = bodies(float32_reference, salt="cold")
    assert len(pairs) >= 20
    cold = await ask_all(float32_stack, [body for _, body in pairs], streamed=0)
    warm = await ask_all(float32_stack, [body for _, body in pairs], streamed=1)
    for (prompt, _), first, second in zip(pairs, cold, warm, strict=True):
        check_equal(float32_reference, prompt, first)
        check_equal(float32_reference, prompt, second)
        assert first.cached_tokens == 0
        whole_blocks = (len(prompt) - 1) // BLOCK_SIZE * BLOCK_SIZE
        assert second.cached_tokens >= whole_blocks
        assert second.cached_tokens < len(prompt)


async def test_every_float32_answer_came_through_the_prefill_pool(
    float32_stack: Stack, float32_reference: Reference
) -> None:
    """Guards the tests above against a stack that silently prefills on the decode worker."""
    prefill, decode = float32_stack.prefill[0], float32_stack.decode[0]
    before = prefill.metric(COMPUTED_TOKENS), decode.metric(COMPUTED_TOKENS)
    prompt = float32_reference.encode(TEXTS[-1])
    await ask_all(float32_stack, [completion_body(MODEL, prompt, 3, cache_salt="through-the-pool")])
    after = prefill.metric(COMPUTED_TOKENS), decode.metric(COMPUTED_TOKENS)
    assert after[0] - before[0] == len(prompt)
    assert after[1] - before[1] <= 3


async def test_bfloat16_answers_differ_only_where_the_reference_cannot_tell(bfloat16_stack: Stack) -> None:
    reference = Reference(resolve_model(EMBEDDED_MODEL), torch.bfloat16)
    vocabulary = Vocabulary(reference.tokenizer)
    requests = [
        chat_body(MODEL, conversation, MAX_TOKENS, logprobs=True, cache_salt=f"bf16-{index}")
        for index, conversation in enumerate(CONVERSATIONS)
    ]
    answers = await ask_all(bfloat16_stack, requests)
    same = 0
    for conversation, answer in zip(CONVERSATIONS, answers, strict=True):
        prompt = reference.encode_chat([dict(message) for message in conversation])
        tokens = vocabulary.ids(answer.token_bytes)
        expected = reference.greedy(prompt, MAX_TOKENS)
        if tokens == expected:
            same += 1
            continue
        left = reference.first_difference(prompt, expected, tokens)
        assert left.margin < BFLOAT16_EPSILON, left
        assert left.regret < BFLOAT16_EPSILON, left
        assert reference.worst_regret(prompt, tokens) < BFLOAT16_EPSILON
    assert same >= len(CONVERSATIONS) // 2
