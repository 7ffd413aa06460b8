"""The retry table is whole, and keeps its promises."""

from itertools import product

import pytest
from kvarn_router.retry import VERDICTS, Failure, FinalError, Phase, verdict


def test_every_failure_in_every_phase_has_a_verdict() -> None:
    assert set(VERDICTS) == set(product(Failure, Phase))


def test_only_an_invalid_request_is_never_retried() -> None:
    assert {failure for (failure, _), ruling in VERDICTS.items() if not ruling.retry} == {Failure.INVALID}


@pytest.mark.parametrize("failure", [failure for failure in Failure if failure is not Failure.INVALID])
def test_after_tokens_a_stream_waits_for_a_worker(failure: Failure) -> None:
    assert verdict(failure, Phase.AFTER_TOKENS).wait
    assert verdict(failure, Phase.AFTER_TOKENS).final is FinalError.WORKER_LOST


def test_overload_before_tokens_answers_at_once() -> None:
    ruling = verdict(Failure.OVERLOADED, Phase.BEFORE_TOKENS)
    assert ruling.retry
    assert not ruling.wait
    assert ruling.final is FinalError.TOO_MANY_REQUESTS


def test_a_refused_resume_is_not_the_client_s_fault() -> None:
    assert verdict(Failure.INVALID, Phase.BEFORE_TOKENS).final is FinalError.INVALID_INPUT
    assert verdict(Failure.INVALID, Phase.AFTER_TOKENS).final is FinalError.INTERNAL
