"""The scheduler over blocks that hold real content, against tokens that a naive model draws without any block."""

from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st
from kvarn_engine.core.block_pool import BlockPool
from kvarn_engine.core.hashing import root_hash
from kvarn_engine.core.ids import RequestId
from kvarn_engine.core.kv_manager import KvManager
from kvarn_engine.core.lifecycle import SequenceStatus
from kvarn_engine.core.plan import StepPlan
from kvarn_engine.core.sampling import SampledToken, SamplingParams
from kvarn_engine.core.scheduler import Scheduler, SchedulerLimits
from kvarn_engine.core.sequence import Sequence

_BLOCK = 2
_BUDGET = 7
_ROOT = root_hash("render", "layout")


@dataclass(frozen=True)
class Wish:
    """One request. Prompts are made of few tokens, so that prefixes are often shared."""

    arrival_step: int
    prompt: tuple[int, ...]
    max_tokens: int
    choices: int
    priority: int
    abort_step: int | None


_WISHES = st.lists(
    st.builds(
        Wish,
        arrival_step=st.integers(0, 12),
        prompt=st.lists(st.integers(1, 2), min_size=1, max_size=9).map(tuple),
        max_tokens=st.integers(1, 7),
        choices=st.integers(1, 3),
        priority=st.integers(0, 2),
        abort_step=st.none() | st.integers(1, 20),
    ),
    min_size=1,
    max_size=8,
)


def naive(prompt: tuple[int, ...], count: int, choice: int) -> list[int]:
    tokens = list(prompt)
    for _ in range(count):
        tokens.append(draw(tokens, choice))
    return tokens[len(prompt) :]


def draw(history: list[int], choice: int) -> int:
    return (sum((index + 1) * token for index, token in enumerate(history)) + choice) % 3 + 1


class Store:
    """Blocks of token ids. A draw reads its whole history from them, as attention does."""

    def __init__(self, num_blocks: int) -> None:
        self.slots = [[0] * _BLOCK for _ in range(num_blocks)]

    def execute(self, plan: StepPlan) -> list[list[SampledToken]]:
        assert 0 < plan.num_tokens <= _BUDGET
        for copy in plan.copies:
            self.slots[copy.target] = list(self.slots[copy.source])
        written: set[tuple[int, int]] = set()
        for entry in plan.entries:
            for offset, token in enumerate(entry.tokens):
                block, slot = divmod(entry.start + offset, _BLOCK)
                place = (entry.block_table[block], slot)
                assert place not in written, "two sequences write one slot"
                written.add(place)
                self.slots[place[0]][slot] = token
        results = []
        for entry in plan.entries:
            content = [token for index in entry.block_table for token in self.slots[index]]
            end = entry.start + len(entry.tokens)
            for each in entry.draws:
                assert content[:end] == [*each.prompt_tokens, *each.output_tokens]
                assert each.position == end
            results.append([SampledToken(draw(content[:end], each.choice)) for each in entry.draws])
        return results


@given(wishes=_WISHES, num_blocks=st.integers(8, 20), max_sequences=st.integers(3, 7))
@settings(max_examples=150, deadline=None)
def test_every_request_gets_the_tokens_that_it_would_get_alone(
    wishes: list[Wish], num_blocks: int, max_sequences: int
) -> None:
    kv = KvManager(BlockPool(num_blocks), _BLOCK)
    scheduler = Scheduler(kv, SchedulerLimits(_BUDGET, max_sequences, 1000, frozenset({99}), aging_steps=4))
    store = Store(num_blocks)
    families: dict[int, list[Sequence]] = {}
    for now in range(400):
        for number, wish in enumerate(wishes):
            if wish.arrival_step == now:
                families[number] = [
                    Sequence(
                        RequestId(str(number)), wish.prompt, SamplingParams(max_tokens=wish.max_tokens), _ROOT,
                        siblings=tuple(range(1, wish.choices)), priority=wish.priority,
                    )
                ]  # fmt: skip
                scheduler.add(families[number][0])
            if wish.abort_step is not None and now == wish.arrival_step + wish.abort_step:
                for sequence in families[number]:
                    scheduler.remove(sequence)
        advance(scheduler, store, families)
        kv.check_integrity([sequence for family in families.values() for sequence in family])
        if now > 35 and not scheduler.running and not scheduler.waiting:
            break
    assert kv.pool.num_in_use == 0
    for number, wish in enumerate(wishes):
        check(wish, families[number])


def advance(scheduler: Scheduler, store: Store, families: dict[int, list[Sequence]]) -> None:
    scheduler.admit()
    plan = scheduler.schedule()
    if plan is None:
        return
    for outcome in scheduler.apply(store.execute(plan)):
        if outcome.twin_of is not None:
            families[int(outcome.sequence.request_id)].append(outcome.sequence)


def check(wish: Wish, family: list[Sequence]) -> None:
    for sequence in family:
        assert sequence.status is SequenceStatus.FINISHED
        assert sequence.output == naive(wish.prompt, len(sequence.output), sequence.choice)
        if wish.abort_step is None:
            assert len(sequence.output) == wish.max_tokens
    if wish.abort_step is None:
        assert sorted(sequence.choice for sequence in family) == list(range(wish.choices))
