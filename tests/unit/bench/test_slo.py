import pytest
from kvarn_bench.slo import RequestOutcome, Slo, summarize

SLO = Slo(ttft_s=0.5, itl_s=0.1)


def outcome(
    arrival: float = 1.0, chunks: tuple[float, ...] = (1.2, 1.3, 1.4), tokens: int = 3, error: str = ""
) -> RequestOutcome:
    return RequestOutcome(
        arrival_s=arrival, sent_s=arrival + 0.01, ended_s=max((arrival, *chunks)), chunk_times_s=chunks,
        prompt_tokens=10, cached_tokens=4, output_tokens=tokens, error=error,
    )  # fmt: skip


def test_ttft_counts_from_the_arrival_not_from_the_send() -> None:
    assert outcome().ttft_s == pytest.approx(0.2)


def test_itl_counts_tokens_when_a_chunk_carries_several() -> None:
    assert outcome(chunks=(1.2, 1.6), tokens=5).mean_itl_s == pytest.approx(0.1)


def test_a_single_token_has_no_itl() -> None:
    assert outcome(chunks=(1.2,), tokens=1).mean_itl_s == 0.0
    assert outcome(chunks=(1.2,), tokens=1).gaps_s == ()


@pytest.mark.parametrize(
    ("request_outcome", "good"),
    [
        (outcome(), True),
        (outcome(chunks=(1.6, 1.7, 1.8)), False),
        (outcome(chunks=(1.2, 1.5, 1.8)), False),
        (outcome(error="HTTP 503"), False),
        (outcome(chunks=()), False),
    ],
    ids=["within", "late first token", "slow tokens", "failed", "no token"],
)
def test_good_means_both_bounds_and_no_error(request_outcome: RequestOutcome, good: bool) -> None:
    assert request_outcome.meets(SLO) is good


def test_summary_of_a_run() -> None:
    outcomes = [
        outcome(arrival=1.0, chunks=(1.2, 1.3, 1.4)),
        outcome(arrival=2.0, chunks=(2.9, 3.0, 3.0)),
        outcome(arrival=2.5, chunks=(), tokens=0, error="HTTP 503"),
        outcome(arrival=2.6, chunks=(2.7,), tokens=1, error="HTTP 503"),
        outcome(arrival=2.7, chunks=(), tokens=0, error="timeout"),
    ]
    summary = summarize(outcomes, SLO)
    assert (summary.requests, summary.completed, summary.good) == (5, 2, 1)
    assert summary.errors == {"HTTP 503": 2, "timeout": 1}
    assert summary.duration_s == pytest.approx(2.0)
    assert summary.goodput_per_s == pytest.approx(0.5)
    assert summary.requests_per_s == pytest.approx(1.0)
    assert summary.output_tokens_per_s == pytest.approx(3.0)
    assert summary.cached_token_share == pytest.approx(0.4)
    assert summary.send_lag_s == pytest.approx(0.01)
    assert summary.ttft_s is not None
    assert summary.ttft_s.maximum == pytest.approx(0.9)
    assert summary.e2e_s is not None
    assert summary.e2e_s.count == 2


def test_summary_when_everything_failed() -> None:
    summary = summarize([outcome(chunks=(), error="connection")], SLO)
    assert (summary.completed, summary.good, summary.goodput_per_s) == (0, 0, 0.0)
    assert summary.ttft_s is None
