import pytest
from kvarn_bench.arrivals import poisson_arrivals


def test_same_seed_same_schedule() -> None:
    assert poisson_arrivals(5.0, 50, 7) == poisson_arrivals(5.0, 50, 7)
    assert poisson_arrivals(5.0, 50, 7) != poisson_arrivals(5.0, 50, 8)


def test_times_never_go_back() -> None:
    times = poisson_arrivals(100.0, 500, 1)
    assert list(times) == sorted(times)
    assert times[0] > 0.0


def test_gaps_have_the_mean_and_spread_of_a_poisson_process() -> None:
    times = poisson_arrivals(20.0, 20_000, 3)
    gaps = [later - earlier for earlier, later in zip((0.0, *times), times, strict=False)]
    mean = sum(gaps) / len(gaps)
    variance = sum((gap - mean) ** 2 for gap in gaps) / len(gaps)
    assert mean == pytest.approx(0.05, rel=0.03)
    assert variance == pytest.approx(0.05**2, rel=0.1)


@pytest.mark.parametrize(("rate", "count"), [(0.0, 1), (-1.0, 1), (1.0, 0)])
def test_refuses_what_is_no_schedule(rate: float, count: int) -> None:
    with pytest.raises(ValueError):
        poisson_arrivals(rate, count, 0)
