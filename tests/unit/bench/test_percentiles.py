import pytest
from hypothesis import given
from hypothesis import strategies as st
from kvarn_bench.percentiles import distribution, median, percentile


def test_interpolates_between_ranks() -> None:
    assert percentile([4.0, 1.0, 3.0, 2.0], 0.5) == pytest.approx(2.5)
    assert percentile([10.0, 20.0, 30.0], 0.9) == pytest.approx(28.0)


def test_ends_are_minimum_and_maximum() -> None:
    assert percentile([3.0, 1.0, 2.0], 0.0) == 1.0
    assert percentile([3.0, 1.0, 2.0], 1.0) == 3.0


def test_one_value_is_every_percentile() -> None:
    assert percentile([7.0], 0.99) == 7.0


@pytest.mark.parametrize("share", [-0.1, 1.1])
def test_refuses_a_share_outside_of_its_range(share: float) -> None:
    with pytest.raises(ValueError, match="between 0 and 1"):
        percentile([1.0], share)


def test_refuses_no_values() -> None:
    with pytest.raises(ValueError, match="no values"):
        percentile([], 0.5)


def test_nothing_measured_has_no_distribution() -> None:
    assert distribution([]) is None


def test_distribution_of_a_run() -> None:
    measured = distribution([float(value) for value in range(1, 102)])
    assert measured is not None
    assert (measured.count, measured.mean, measured.p50, measured.p90, measured.p99, measured.maximum) == pytest.approx(
        (101, 51.0, 51.0, 91.0, 100.0, 101.0)
    )


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=50), st.floats(0, 1), st.floats(0, 1))
def test_grows_with_the_share_and_stays_in_range(values: list[float], one: float, other: float) -> None:
    low, high = sorted((one, other))
    tolerance = 1e-9 * max(values)
    assert percentile(values, low) <= percentile(values, high) + tolerance
    assert min(values) - tolerance <= median(values) <= max(values) + tolerance
