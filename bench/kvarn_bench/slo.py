"""What happened to each request, and how many met the objective. Pure: times come in, figures go out."""

import itertools
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from kvarn_bench.percentiles import Distribution, distribution


@dataclass(frozen=True, slots=True)
class Slo:
    """A request is good when it ended well, its TTFT and its mean time between tokens are both within bounds."""

    ttft_s: float
    itl_s: float


@dataclass(frozen=True, slots=True)
class RequestOutcome:
    """Times are seconds since the benchmark's start; arrival is the scheduled one, so a late send counts against us."""

    arrival_s: float
    sent_s: float
    ended_s: float
    chunk_times_s: tuple[float, ...] = ()
    """When each chunk with text came in."""

    prompt_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    error: str = ""
    """Kind of failure; empty when the stream ended well."""

    @property
    def ttft_s(self) -> float | None:
        return self.chunk_times_s[0] - self.arrival_s if self.chunk_times_s else None

    @property
    def gaps_s(self) -> tuple[float, ...]:
        return tuple(later - earlier for earlier, later in itertools.pairwise(self.chunk_times_s))

    @property
    def mean_itl_s(self) -> float:
        """Over tokens, not chunks: a chunk may carry several tokens. 0 for a single token."""
        tokens = max(self.output_tokens, len(self.chunk_times_s))
        return (self.chunk_times_s[-1] - self.chunk_times_s[0]) / (tokens - 1) if tokens > 1 else 0.0

    def meets(self, slo: Slo) -> bool:
        if self.error or self.ttft_s is None:
            return False
        return self.ttft_s <= slo.ttft_s and self.mean_itl_s <= slo.itl_s


@dataclass(frozen=True, slots=True)
class ServeSummary:
    requests: int
    completed: int
    errors: dict[str, int]
    duration_s: float
    requests_per_s: float
    output_tokens_per_s: float
    cached_token_share: float
    good: int
    goodput_per_s: float
    send_lag_s: float
    """Latest send after its scheduled arrival: large means that the load generator itself is the limit."""

    ttft_s: Distribution | None
    itl_s: Distribution | None
    e2e_s: Distribution | None


def summarize(outcomes: Sequence[RequestOutcome], slo: Slo) -> ServeSummary:
    """Latencies are of completed requests; errors are counted by kind and never good."""
    completed = [outcome for outcome in outcomes if not outcome.error]
    duration = max(outcome.ended_s for outcome in outcomes) - min(outcome.arrival_s for outcome in outcomes)
    per_second = 1.0 / duration if duration > 0 else 0.0
    prompt_tokens = sum(outcome.prompt_tokens for outcome in completed)
    good = sum(outcome.meets(slo) for outcome in outcomes)
    return ServeSummary(
        requests=len(outcomes),
        completed=len(completed),
        errors=dict(Counter(outcome.error for outcome in outcomes if outcome.error)),
        duration_s=duration,
        requests_per_s=len(completed) * per_second,
        output_tokens_per_s=sum(outcome.output_tokens for outcome in completed) * per_second,
        cached_token_share=sum(outcome.cached_tokens for outcome in completed) / max(1, prompt_tokens),
        good=good,
        goodput_per_s=good * per_second,
        send_lag_s=max(outcome.sent_s - outcome.arrival_s for outcome in outcomes),
        ttft_s=distribution([outcome.ttft_s for outcome in completed if outcome.ttft_s is not None]),
        itl_s=distribution([gap for outcome in completed for gap in outcome.gaps_s]),
        e2e_s=distribution([outcome.ended_s - outcome.arrival_s for outcome in completed]),
    )
