"""The prefix index against a naive model, over random histories of several workers."""

from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st
from kvarn_engine.core.ids import BlockHash, Incarnation
from kvarn_router.routing.prefix_index import IndexLimits, PrefixIndex, SequenceGap

TTL_S = 3.0
WORKERS = (Incarnation("a"), Incarnation("b"))
hashes = st.lists(st.integers(0, 9).map(lambda n: BlockHash(bytes([n]) * 16)), max_size=6)
steps = st.lists(
    st.tuples(
        st.sampled_from(WORKERS), st.sampled_from(["reset", "delta", "gap", "predict", "forget"]), hashes, hashes
    ),
    max_size=40,
)


@dataclass
class NaiveWorker:
    sequence: int = 0
    stored: set[BlockHash] = field(default_factory=set)
    predicted: dict[BlockHash, float] = field(default_factory=dict)

    def match(self, wanted: list[BlockHash], now: float) -> int:
        count = 0
        while count < len(wanted) and (wanted[count] in self.stored or self.predicted.get(wanted[count], now) > now):
            count += 1
        return count


class Pair:
    """The index and the model, driven alike."""

    def __init__(self) -> None:
        self.index = PrefixIndex(IndexLimits(predicted_ttl_s=TTL_S))
        self.model: dict[Incarnation, NaiveWorker] = {}

    def step(
        self, worker: Incarnation, action: str, first: list[BlockHash], second: list[BlockHash], now: float
    ) -> None:
        naive = self.model.get(worker)
        if action == "reset":
            naive = self.model.setdefault(worker, NaiveWorker())
            naive.stored = set(first)
            naive.predicted = {key: at for key, at in naive.predicted.items() if key not in naive.stored}
            self.index.reset(worker, naive.sequence, first)
        elif action == "forget" or naive is None:
            self.model.pop(worker, None)
            self.index.forget(worker)
        elif action == "gap":
            del self.model[worker]
            try:
                self.index.apply(worker, naive.sequence + 2, first, second)
            except SequenceGap:
                return
            raise AssertionError("a gap was taken")
        elif action == "delta":
            naive.sequence += 1
            naive.stored = (naive.stored - set(second)) | set(first)
            for key in (*first, *second):
                naive.predicted.pop(key, None)
            self.index.apply(worker, naive.sequence, first, second)
        else:
            naive.predicted.update({key: now + TTL_S for key in first if key not in naive.stored})
            self.index.predict(worker, first, now)


@settings(max_examples=200, deadline=None)
@given(steps, hashes)
def test_index_agrees_with_the_naive_model(history: list, wanted: list[BlockHash]) -> None:
    pair = Pair()
    for time, (worker, action, first, second) in enumerate(history):
        pair.step(worker, action, first, second, float(time))
        for each in WORKERS:
            naive = pair.model.get(each, NaiveWorker())
            assert pair.index.match(each, wanted, float(time)).blocks == naive.match(wanted, float(time))
            assert pair.index.size(each) == len(naive.stored)
