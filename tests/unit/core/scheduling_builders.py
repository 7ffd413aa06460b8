"""Builders for tests of KvManager and Scheduler: sequences, and a model that draws the length of the history."""

from kvarn_engine.core.block_pool import BlockPool
from kvarn_engine.core.hashing import root_hash
from kvarn_engine.core.ids import RequestId
from kvarn_engine.core.kv_manager import KvManager
from kvarn_engine.core.plan import StepPlan
from kvarn_engine.core.sampling import SampledToken, SamplingParams
from kvarn_engine.core.scheduler import Outcome, Scheduler, SchedulerLimits
from kvarn_engine.core.sequence import Sequence

BLOCK = 4
ROOT = root_hash("render", "layout")


def sequence(length: int, max_tokens: int = 8, seed: int = 0, **fields: object) -> Sequence:
    """Prompts of different seeds share no prefix."""
    tokens = [1000 * seed + position for position in range(length)]
    return Sequence(RequestId(str(seed)), tokens, SamplingParams(max_tokens=max_tokens), ROOT, **fields)


def scheduler(num_blocks: int = 64, **limits: object) -> Scheduler:
    values = {
        "max_batch_tokens": 16, "max_sequences": 8, "max_model_len": 1000, "eos_token_ids": frozenset({999_999}),
        **limits,
    }  # fmt: skip
    return Scheduler(KvManager(BlockPool(num_blocks), BLOCK), SchedulerLimits(**values))


def drawn(plan: StepPlan) -> list[list[SampledToken]]:
    return [[SampledToken(100_000 + draw.position) for draw in entry.draws] for entry in plan.entries]


def step(target: Scheduler) -> tuple[StepPlan, list[Outcome]]:
    target.admit()
    plan = target.schedule()
    assert plan is not None
    return plan, target.apply(drawn(plan))


def spans(plan: StepPlan) -> list[tuple[int, int]]:
    return [(entry.start, len(entry.tokens)) for entry in plan.entries]


def run(target: Scheduler, bound: int = 500) -> int:
    """Step until nothing is left; number of steps."""
    for count in range(bound):
        target.admit()
        plan = target.schedule()
        if plan is not None:
            target.apply(drawn(plan))
        elif not target.running and not target.waiting:
            return count
    raise AssertionError("the scheduler does not come to an end")
