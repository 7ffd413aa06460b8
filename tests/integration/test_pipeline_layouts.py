"""Workers of several KV layouts at once, as in a rolling change: who is paired with whom, and who is long enough."""

from contextlib import AsyncExitStack
from dataclasses import replace

import grpc
import pytest
from kvarn_engine.core.hashing import block_hashes, root_hash
from kvarn_engine.core.kv_layout import KvLayout
from kvarn_engine.core.sampling import FinishReason
from kvarn_proto.v1 import common_pb2
from kvarn_router.context import DoneEvent, FinishedEvent
from kvarn_router.errors import PromptTooLong
from kvarn_router.holding import HoldLimits
from kvarn_router.pipeline import ReadyRules
from kvarn_router.workers import LiveWorker, Role

from tests.support.routing_stack import RoutingStack, eventually, make_request, registered, routing_stack, tokens_of
from tests.support.scripted_source import ScriptedSource, endpoint
from tests.support.scripted_worker import LAYOUT, RENDER, Script, ScriptedWorker, abort_with, scripted_output, served

OTHER = replace(LAYOUT, block_size=8)


def decode(name: str, layout: KvLayout = LAYOUT, **fields: object) -> ScriptedWorker:
    return ScriptedWorker(name, incarnation=f"life-of-{name}", layout=layout, **fields)


def prefill(name: str, layout: KvLayout = LAYOUT, **fields: object) -> ScriptedWorker:
    return decode(name, layout, role=common_pb2.ROLE_PREFILL, **fields)


async def started(exit_stack: AsyncExitStack, *workers: ScriptedWorker, **options: object) -> RoutingStack:
    for each in workers:
        await exit_stack.enter_async_context(served(each))
    stack = await exit_stack.enter_async_context(routing_stack(*workers, **options))
    await registered(stack, *workers)
    return stack


def live(stack: RoutingStack, worker: ScriptedWorker) -> LiveWorker:
    return next(each for each in stack.table.all() if each.identity.worker_id == worker.worker_id)


def peers_of(worker: ScriptedWorker) -> list[list[str]]:
    return [[peer.worker_id for peer in request.prefill_peers] for request in worker.requests]


async def test_each_layout_keeps_to_its_own_prefill_workers_and_hashes() -> None:
    async with AsyncExitStack() as exit_stack:
        old, new = decode("d-old"), decode("d-new", OTHER)
        stack = await started(exit_stack, old, new, prefill("p-old"), prefill("p-new", OTHER))
        for chosen, busy in ((old, new), (new, old)):
            salt = chosen.worker_id
            with live(stack, busy).claim(0):
                await stack.collect(replace(make_request(), cache_salt=salt))
            root = root_hash(RENDER, chosen.layout.fingerprint, salt)
            assert [request.root_hash for request in chosen.requests] == [root]
        assert (peers_of(old), peers_of(new)) == ([["p-old"]], [["p-new"]])
        assert stack.table.refusals == ()


async def test_a_new_layout_gets_work_once_its_pair_is_complete() -> None:
    async with AsyncExitStack() as exit_stack:
        old, new, late = decode("d-old"), decode("d-new", OTHER), prefill("p-new", OTHER)
        first = (old, new, prefill("p-old"))
        for each in (*first, late):
            await exit_stack.enter_async_context(served(each))
        source = ScriptedSource(*map(endpoint, first))
        stack = await exit_stack.enter_async_context(routing_stack(source=source))
        await registered(stack, *first)
        with live(stack, old).claim(1000):
            await stack.collect(make_request(name="before"))
            assert (len(old.requests), len(new.requests)) == (1, 0)
            source.set(*map(endpoint, (*first, late)))
            await registered(stack, late)
            await stack.collect(replace(make_request(name="after"), cache_salt="nowhere cached"))
        assert (len(old.requests), peers_of(new)) == (1, [["p-new"]])


async def test_a_stream_that_moves_to_another_layout_is_exact() -> None:
    async with AsyncExitStack() as exit_stack:
        script = Script(interrupt_at=3, interruption=abort_with(grpc.StatusCode.UNAVAILABLE))
        old, new = decode("d-old", script=script), decode("d-new", OTHER)
        stack = await started(exit_stack, old, new, prefill("p-old"), prefill("p-new", OTHER))
        with live(stack, new).claim(0):
            events = await stack.collect(make_request(max_tokens=8))
        assert tokens_of(events) == scripted_output(9, 8)
        assert list(new.requests[0].choices[0].output_tokens) == scripted_output(9, 3)
        assert peers_of(new) == [["p-new"]]
        assert new.requests[0].root_hash == root_hash(RENDER, OTHER.fingerprint, "")


@pytest.mark.parametrize(("interrupt_at", "expected"), [(3, "same"), (0, "new")], ids=["with output", "before it"])
async def test_an_answer_keeps_to_the_weights_that_began_it(interrupt_at: int, expected: str) -> None:
    async with AsyncExitStack() as exit_stack:
        script = Script(interrupt_at=interrupt_at, interruption=abort_with(grpc.StatusCode.UNAVAILABLE))
        broken, same = decode("broken", script=script), decode("same")
        new = decode("new", replace(LAYOUT, model_revision="another"))
        stack = await started(exit_stack, broken, same, new)
        with live(stack, same).claim(0), live(stack, same).claim(0), live(stack, new).claim(0):
            events = await stack.collect(make_request(max_tokens=8))
        assert tokens_of(events) == scripted_output(9, 8)
        assert isinstance(events[-1], DoneEvent)
        assert events[-1].decode_worker == expected


async def test_an_answer_whose_weights_are_gone_goes_on_with_others() -> None:
    async with AsyncExitStack() as exit_stack:
        script = Script(interrupt_at=3, interruption=abort_with(grpc.StatusCode.UNAVAILABLE))
        broken, new = decode("broken", script=script), decode("new", replace(LAYOUT, model_revision="another"))
        stack = await started(exit_stack, broken, new)
        with live(stack, new).claim(0):
            events = await stack.collect(make_request(max_tokens=8))
        assert tokens_of(events) == scripted_output(9, 8)


async def test_a_cached_prefix_counts_in_tokens_whatever_the_block_size() -> None:
    async with AsyncExitStack() as exit_stack:
        small, large = decode("small"), decode("large", OTHER)
        request = make_request(prompt=20)
        for each, blocks in ((small, 3), (large, 2)):
            root = root_hash(RENDER, each.layout.fingerprint, "")
            each.hashes = list(block_hashes(root, request.prompt_tokens, each.layout.block_size))[:blocks]
        stack = await started(exit_stack, small, large)
        await stack.collect(request)
        assert (len(small.requests), len(large.requests)) == (0, 1)
        assert stack.decisions.newest_first()[0].predicted_tokens == 16


async def test_a_long_prompt_goes_where_it_fits() -> None:
    async with AsyncExitStack() as exit_stack:
        short, long = decode("short", max_model_len=64), decode("long", max_model_len=128)
        stack = await started(exit_stack, short, long, prefill("p", max_model_len=64))
        assert stack.pipeline.card().max_model_len == 128
        with live(stack, long).claim(1000):
            await stack.collect(make_request(prompt=58, max_tokens=6))
            assert (len(short.requests), len(long.requests)) == (1, 0)
            await stack.collect(make_request(prompt=58, max_tokens=7))
        assert (peers_of(short), peers_of(long)) == ([["p"]], [[]])
        with pytest.raises(PromptTooLong, match="length is 128 tokens, but the prompt has 120 and 9 tokens of output"):
            await stack.collect(make_request(prompt=120, max_tokens=9))


async def test_without_an_output_limit_of_its_own_a_request_ends_where_its_worker_must() -> None:
    async with AsyncExitStack() as exit_stack:
        short = decode("short", max_model_len=16)
        stack = await started(exit_stack, short)
        request = replace(make_request(prompt=9, max_tokens=500), may_be_cut=True)
        events = await stack.collect(request)
        assert tokens_of(events) == scripted_output(9, 7)
        assert FinishedEvent(0, FinishReason.LENGTH) in events
        with pytest.raises(PromptTooLong, match="length is 16 tokens, but the prompt has 16"):
            await stack.collect(replace(request, prompt_tokens=tuple(range(16))))


async def test_an_uncut_stream_that_moves_to_a_shorter_worker_ends_there() -> None:
    async with AsyncExitStack() as exit_stack:
        script = Script(interrupt_at=3, interruption=abort_with(grpc.StatusCode.UNAVAILABLE))
        long, short = decode("long", script=script), decode("short", max_model_len=16)
        stack = await started(exit_stack, long, short)
        with live(stack, short).claim(0):
            events = await stack.collect(replace(make_request(prompt=9, max_tokens=500), may_be_cut=True))
        assert tokens_of(events) == scripted_output(9, 7)
        assert FinishedEvent(0, FinishReason.LENGTH) in events


async def test_token_ids_go_where_the_vocabulary_holds_them() -> None:
    async with AsyncExitStack() as exit_stack:
        narrow, wide = decode("narrow", vocab_size=5), decode("wide")
        stack = await started(exit_stack, narrow, wide)
        with live(stack, wide).claim(1000):
            await stack.collect(make_request(prompt=9))
        assert (len(narrow.requests), len(wide.requests)) == (0, 1)


@pytest.mark.parametrize("hold_s", [0.0, 30.0])
async def test_readiness_takes_a_pair_of_one_layout_first_and_less_later(hold_s: float) -> None:
    """A decode worker alone in any case; and nobody at all where requests are held."""
    async with AsyncExitStack() as exit_stack:
        old, other, match = decode("d"), prefill("p-other", OTHER), prefill("p")
        for each in (old, other, match):
            await exit_stack.enter_async_context(served(each))
        source = ScriptedSource(endpoint(old), endpoint(other))
        rules, hold = ReadyRules(), HoldLimits(hold_s)
        stack = await exit_stack.enter_async_context(routing_stack(source=source, ready=rules, hold=hold))
        await registered(stack, old, other)
        assert not stack.pipeline.is_ready()
        source.set(endpoint(old), endpoint(match))
        await registered(stack, match)
        assert stack.pipeline.is_ready()
        source.set(endpoint(old))
        await eventually(lambda: stack.table.candidates(Role.PREFILL) == (), "the prefill worker goes")
        assert stack.pipeline.is_ready()
        source.set()
        await eventually(lambda: stack.table.candidates(Role.DECODE) == (), "the decode worker goes")
        assert stack.pipeline.is_ready() == (hold_s > 0)


async def test_readiness_without_workers_lasts_until_the_end() -> None:
    async with routing_stack(ready=ReadyRules(without_workers=True)) as stack:
        assert stack.pipeline.is_ready()
        stack.pipeline.end()
        assert not stack.pipeline.is_ready()
