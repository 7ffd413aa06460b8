"""The prefix index: snapshots, deltas, gaps, predictions and bounds."""

import pytest
from kvarn_engine.core.ids import BlockHash, Incarnation
from kvarn_router.routing.prefix_index import IndexLimits, PrefixIndex, PrefixMatch, SequenceGap

ONE, TWO = Incarnation("one"), Incarnation("two")


def h(*numbers: int) -> list[BlockHash]:
    return [BlockHash(number.to_bytes(16, "little")) for number in numbers]


def index_with(*numbers: int, sequence: int = 0, limits: IndexLimits | None = None) -> PrefixIndex:
    index = PrefixIndex(limits or IndexLimits())
    index.reset(ONE, sequence, h(*numbers))
    return index


def test_match_counts_the_leading_run_only() -> None:
    index = index_with(1, 2, 4)
    assert index.match(ONE, h(1, 2, 3, 4), now=0) == PrefixMatch(blocks=2, confirmed=2)
    assert index.match(ONE, h(3, 4), now=0) == PrefixMatch(0, 0)
    assert index.match(TWO, h(1), now=0) == PrefixMatch(0, 0)


def test_delta_stores_and_removes() -> None:
    index = index_with(1, 2, sequence=7)
    index.apply(ONE, 8, stored=h(3), removed=h(1))
    assert index.match(ONE, h(1), now=0).blocks == 0
    assert index.match(ONE, h(2, 3), now=0).blocks == 2
    assert index.sequence(ONE) == 8


def test_block_removed_and_stored_in_one_delta_is_there() -> None:
    index = index_with(1)
    index.apply(ONE, 1, stored=h(1), removed=h(1))
    assert index.match(ONE, h(1), now=0).blocks == 1


@pytest.mark.parametrize("sequence", [7, 9, 0])
def test_gap_or_repeat_voids_the_worker(sequence: int) -> None:
    index = index_with(1, sequence=7)
    with pytest.raises(SequenceGap) as gap:
        index.apply(ONE, sequence, stored=h(2), removed=[])
    assert (gap.value.expected, gap.value.got) == (8, sequence)
    assert index.match(ONE, h(1), now=0).blocks == 0
    index.reset(ONE, sequence, h(1, 2))
    assert index.match(ONE, h(1, 2), now=0).blocks == 2


def test_delta_before_any_snapshot_is_a_gap() -> None:
    with pytest.raises(SequenceGap):
        PrefixIndex(IndexLimits()).apply(ONE, 1, stored=h(1), removed=[])


def test_prediction_bridges_until_it_expires() -> None:
    index = index_with(1, limits=IndexLimits(predicted_ttl_s=10))
    index.predict(ONE, h(1, 2, 3), now=100)
    assert index.match(ONE, h(1, 2, 3), now=109) == PrefixMatch(blocks=3, confirmed=1)
    assert index.match(ONE, h(1, 2, 3), now=110) == PrefixMatch(blocks=1, confirmed=1)


def test_prediction_becomes_confirmed_and_can_be_removed() -> None:
    index = index_with()
    index.predict(ONE, h(1, 2), now=0)
    index.apply(ONE, 1, stored=h(1), removed=h(2))
    assert index.match(ONE, h(1, 2), now=1) == PrefixMatch(1, 1)
    assert index.predicted_size(ONE) == 0


def test_prediction_survives_a_snapshot_that_is_older_than_it() -> None:
    index = index_with()
    index.predict(ONE, h(1), now=0)
    index.reset(ONE, 5, h())
    assert index.match(ONE, h(1), now=1).blocks == 1


def test_prediction_for_an_unknown_worker_is_ignored() -> None:
    index = PrefixIndex(IndexLimits())
    index.predict(ONE, h(1), now=0)
    assert index.match(ONE, h(1), now=0).blocks == 0


def test_bounds_drop_the_oldest() -> None:
    index = index_with(1, 2, 3, limits=IndexLimits(max_blocks_per_worker=2, max_predicted_per_worker=2))
    assert index.size(ONE) == 2
    assert index.match(ONE, h(2, 3), now=0).blocks == 2
    index.predict(ONE, h(7, 8, 9), now=0)
    assert index.predicted_size(ONE) == 2
    assert index.match(ONE, h(8, 9), now=0).blocks == 2


def test_forget_leaves_other_workers_alone() -> None:
    index = index_with(1)
    index.reset(TWO, 0, h(1))
    index.forget(ONE)
    assert index.match(ONE, h(1), now=0).blocks == 0
    assert index.match(TWO, h(1), now=0).blocks == 1
