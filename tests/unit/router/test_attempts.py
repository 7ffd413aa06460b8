"""Attempts in vain count in a row, lost workers in all, and a worker that drains is no loss."""

from kvarn_router.attempts import AttemptLimits, Attempts
from kvarn_router.retry import Failure

LIMITS = AttemptLimits(max_attempts=2, max_turned_away=3, max_worker_losses=4)


def fail_while_running(attempts: Attempts, failure: Failure) -> None:
    attempts.begin()
    attempts.accepted()
    attempts.failed(failure)


def test_tokens_forgive_what_was_in_vain_but_no_lost_worker() -> None:
    attempts = Attempts(LIMITS)
    for failure in (Failure.LOST, Failure.FROZEN, Failure.FAILED):
        fail_while_running(attempts, failure)
        attempts.took_tokens()
    assert (attempts.in_a_row, attempts.exhausted, attempts.lost_too_many) == (0, False, False)
    fail_while_running(attempts, Failure.LOST)
    assert attempts.lost_too_many


def test_a_worker_that_was_gone_already_was_not_broken_by_the_request() -> None:
    attempts = Attempts(LIMITS)
    fail_while_running(attempts, Failure.LOST)
    attempts.begin()
    attempts.failed(Failure.LOST)
    assert (attempts.worker_losses, attempts.exhausted) == (1, True)


def test_workers_that_drain_or_are_full_are_no_loss() -> None:
    attempts = Attempts(LIMITS)
    for failure in (Failure.DRAINING, Failure.OVERLOADED, Failure.MISMATCHED, Failure.INVALID):
        for _ in range(4):
            fail_while_running(attempts, failure)
            attempts.took_tokens()
    assert attempts.worker_losses == 0


def test_each_kind_in_a_row_has_its_own_end() -> None:
    attempts = Attempts(LIMITS)
    attempts.failed(Failure.DRAINING)
    attempts.failed(Failure.DRAINING)
    attempts.failed(Failure.OVERLOADED)
    assert (attempts.in_a_row, attempts.exhausted) == (3, False)
    attempts.failed(Failure.OVERLOADED)
    assert attempts.exhausted
