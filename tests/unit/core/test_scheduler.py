"""Scheduler: budget, chunks, order, priority with aging, preemption, admission, ends."""

import pytest
from kvarn_engine.core.lifecycle import SequenceStatus
from kvarn_engine.core.plan import BlockCopy
from kvarn_engine.core.sampling import FinishReason, SampledToken, SamplingParams
from kvarn_engine.core.scheduler import SchedulerLimits

from tests.unit.core.scheduling_builders import drawn, run, scheduler, sequence, spans, step


def test_a_prompt_is_cut_into_chunks_and_draws_at_its_end() -> None:
    target = scheduler()
    target.add(sequence(40))
    plans = [step(target)[0] for _ in range(4)]
    assert [spans(plan) for plan in plans] == [[(0, 16)], [(16, 16)], [(32, 8)], [(40, 1)]]
    assert [len(plan.entries[0].draws) for plan in plans] == [0, 0, 1, 1]
    assert [draw.position for plan in plans for draw in plan.entries[0].draws] == [40, 41]


def test_decodes_come_first_and_prefills_share_the_rest_of_the_budget() -> None:
    target = scheduler()
    target.add(sequence(4, seed=1))
    step(target)
    target.add(sequence(20, seed=2))
    target.add(sequence(20, seed=3))
    assert spans(step(target)[0]) == [(4, 1), (0, 15)]
    assert spans(step(target)[0]) == [(5, 1), (15, 5), (0, 10)]


def test_a_cached_prompt_is_computed_from_its_last_block_on() -> None:
    target = scheduler()
    target.add(sequence(16, max_tokens=1))
    run(target)
    again = sequence(16)
    target.add(again)
    plan, _ = step(target)
    assert spans(plan) == [(12, 4)]
    assert again.num_cached == 12


def test_lower_priority_values_are_admitted_first_until_others_have_aged() -> None:
    """Urgent work keeps coming, one sequence at a time runs; twenty steps make up for one level."""
    target = scheduler(max_sequences=1, aging_steps=20)
    target.add(sequence(4, max_tokens=8, seed=0))
    step(target)
    target.add(sequence(4, seed=1, priority=1))
    target.add(sequence(4, seed=2))
    order: list[str] = []
    while "1" not in order:
        admitted = [str(each.request_id) for each in target.admit()]
        for _ in admitted:
            target.add(sequence(4, max_tokens=8, seed=len(order) + 10))
        order += admitted
        plan = target.schedule()
        assert plan is not None
        target.apply(drawn(plan))
    assert order[0] == "2"
    assert len(order) == 3


def test_a_full_pool_preempts_the_newest_which_is_computed_again() -> None:
    target = scheduler(num_blocks=6)
    target.growth.fraction = 0.0
    old, new = sequence(8, max_tokens=12, seed=1), sequence(8, max_tokens=12, seed=2)
    target.add(old)
    target.add(new)
    while new.status is not SequenceStatus.PREEMPTED:
        step(target)
        assert old.status is SequenceStatus.RUNNING
    assert new.block_table == []
    run(target)
    assert (old.preemptions, new.preemptions >= 1) == (0, True)
    for ended in (old, new):
        assert ended.output == [100_000 + position for position in range(8, 20)]
    assert target.kv.pool.num_in_use == 0


def test_admission_waits_for_predicted_growth() -> None:
    target = scheduler(num_blocks=16)
    for seed in range(4):
        target.add(sequence(8, max_tokens=16, seed=seed))
    target.growth.fraction = 1.0
    assert len(target.admit()) == 2  # 2 blocks now and 4 more predicted, each
    target.growth.fraction = 0.25
    assert len(target.admit()) == 2


def test_growth_is_learned_from_sequences_that_end() -> None:
    target = scheduler()
    before = target.growth.fraction
    short = sequence(4, max_tokens=100)
    target.add(short)
    step(target)
    short.params = SamplingParams(max_tokens=100, stop_token_ids=frozenset({100_005}))
    step(target)
    assert short.status is SequenceStatus.FINISHED
    assert target.growth.fraction == pytest.approx(before + 0.1 * (0.02 - before))


def test_choices_fork_at_the_first_token_and_copy_the_shared_block_on_write() -> None:
    target = scheduler()
    target.add(sequence(6, siblings=(1, 2)))
    plan, outcomes = step(target)
    assert [draw.choice for draw in plan.entries[0].draws] == [0, 1, 2]
    assert [outcome.sequence.choice for outcome in outcomes] == [0, 1, 2]
    assert target.kv.pool.num_in_use == 2
    shared = plan.entries[0].block_table[1]
    plan, _ = step(target)
    assert [copy.source for copy in plan.copies] == [shared, shared]
    assert len({entry.block_table[1] for entry in plan.entries}) == 3
    assert len({entry.block_table[0] for entry in plan.entries}) == 1
    assert all(isinstance(copy, BlockCopy) for copy in plan.copies)
    run(target)
    assert target.kv.pool.num_in_use == 0


def test_choices_count_against_max_sequences() -> None:
    target = scheduler(max_sequences=4)
    target.add(sequence(4, seed=1, siblings=(1, 2)))
    target.add(sequence(4, seed=2, siblings=(1,)))
    assert len(target.admit()) == 1


@pytest.mark.parametrize(
    ("params", "length", "reason", "count"),
    [
        (SamplingParams(max_tokens=3), 4, FinishReason.LENGTH, 3),
        (SamplingParams(max_tokens=50), 27, FinishReason.LENGTH, 3),
        (SamplingParams(max_tokens=9, stop_token_ids=frozenset({100_005})), 4, FinishReason.STOP, 2),
        (SamplingParams(max_tokens=9), 6, FinishReason.STOP, 2),
        (SamplingParams(max_tokens=9, ignore_eos=True), 6, FinishReason.LENGTH, 9),
    ],
)
def test_ends(params: SamplingParams, length: int, reason: FinishReason, count: int) -> None:
    target = scheduler(max_model_len=30, eos_token_ids=frozenset({100_007}))
    only = sequence(length)
    only.params = params
    target.add(only)
    reasons = []
    while only.status is not SequenceStatus.FINISHED:
        reasons += [outcome.reason for outcome in step(target)[1] if outcome.reason is not None]
    assert (reasons, len(only.output)) == ([reason], count)


def test_an_export_ends_at_its_draw_and_keeps_its_blocks() -> None:
    target = scheduler()
    export = sequence(6, exports=True, siblings=(1,))
    target.add(export)
    _, outcomes = step(target)
    assert [choice for choice, _ in outcomes[0].tokens] == [0, 1]
    assert export.status is SequenceStatus.FINISHED
    assert target.kv.pool.num_in_use == 2
    target.remove(export)
    assert target.kv.pool.num_in_use == 0


def test_an_import_joins_with_its_first_token() -> None:
    target = scheduler()
    importing = sequence(8, imports=True)
    target.add(importing)
    target.admit()
    assert importing.status is SequenceStatus.IMPORTING
    assert target.schedule() is None
    target.kv.take_import(importing, 1)
    assert len(target.kv.pool.hashes) == 1
    target.begin(importing, 2, [(0, SampledToken(5))])
    assert len(target.kv.pool.hashes) == 2
    plan, _ = step(target)
    assert spans(plan) == [(8, 1)]


def test_an_import_without_first_token_computes_its_last_block_again() -> None:
    target = scheduler()
    importing = sequence(8, imports=True)
    target.add(importing)
    target.admit()
    target.begin(importing, 2)
    assert spans(step(target)[0]) == [(4, 4)]


def test_an_abandoned_step_leaves_nothing_behind() -> None:
    target = scheduler()
    only = sequence(8)
    target.add(only)
    target.admit()
    assert target.schedule() is not None
    target.abandon()
    target.remove(only)
    assert target.kv.pool.num_in_use == 0
    target.kv.check_integrity([])


def test_limits_that_cannot_work_are_refused() -> None:
    with pytest.raises(ValueError, match="max_sequences"):
        SchedulerLimits(max_batch_tokens=4, max_sequences=5, max_model_len=10, eos_token_ids=frozenset())
