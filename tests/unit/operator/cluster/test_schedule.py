"""The schedule in virtual time."""

import pytest
from kvarn_operator.cluster.schedule import Ending, KeyedSchedule, Outcome, Pacing

SETTLED = Outcome(Ending.SETTLED)
ACTED = Outcome(Ending.ACTED)
FAILED = Outcome(Ending.FAILED)
REFUSED = Outcome(Ending.REFUSED)


def schedule(draw: float = 0.0, **pacing: float) -> KeyedSchedule[str]:
    return KeyedSchedule(Pacing(**{"backoff_min_s": 1.0, "backoff_max_s": 60.0, **pacing}), lambda: draw)  # type: ignore[arg-type]


def test_a_key_added_twice_is_worked_on_once() -> None:
    queue = schedule()
    queue.add("a", 0.0)
    queue.add("a", 0.0)
    assert queue.start_next(0.0) == "a"
    assert queue.start_next(0.0) is None
    queue.finish("a", 1.0, SETTLED)
    assert queue.start_next(1.0) is None
    assert queue.next_at() is None


def test_a_key_is_never_in_work_twice_and_what_came_in_between_counts() -> None:
    queue = schedule()
    queue.add("a", 0.0)
    assert queue.start_next(0.0) == "a"
    queue.add("a", 0.5)
    assert queue.start_next(1.0) is None
    assert queue.next_at() is None
    queue.finish("a", 2.0, SETTLED)
    assert queue.start_next(2.0) == "a"


def test_the_one_that_waits_longest_comes_first() -> None:
    queue = schedule()
    queue.add("late", 2.0)
    queue.add("early", 1.0)
    queue.add("future", 9.0)
    assert [queue.start_next(5.0) for _ in range(3)] == ["early", "late", None]
    assert queue.next_at() == 9.0


def test_the_earlier_of_two_times_holds() -> None:
    queue = schedule()
    queue.add("a", 50.0)
    queue.add("a", 10.0)
    queue.add("a", 30.0)
    assert queue.next_at() == 10.0


def test_failures_wait_twice_as_long_each_time_up_to_a_limit() -> None:
    queue = schedule(backoff_max_s=5.0)
    now, waits = 0.0, []
    queue.add("a", now)
    for _ in range(5):
        assert queue.start_next(now) == "a"
        queue.finish("a", now, FAILED)
        at = queue.next_at()
        assert at is not None
        waits.append(at - now)
        now = at
    assert waits == [1.0, 2.0, 4.0, 5.0, 5.0]


def test_the_draw_shortens_a_wait_by_up_to_a_half() -> None:
    queue = schedule(draw=0.5)
    queue.add("a", 0.0)
    queue.start_next(0.0)
    queue.finish("a", 0.0, FAILED)
    assert queue.next_at() == 0.75


def test_events_do_not_cut_a_backoff_short() -> None:
    queue = schedule(backoff_min_s=8.0)
    queue.add("a", 0.0)
    queue.start_next(0.0)
    queue.finish("a", 0.0, FAILED)
    queue.add("a", 1.0)
    assert queue.start_next(7.9) is None
    assert queue.start_next(8.0) == "a"


def test_a_refusal_is_tried_again_less_and_less_often_and_what_is_new_is_looked_at_soon() -> None:
    queue = schedule(refused_pause_s=2.0)
    queue.add("a", 0.0)
    now, waits = 0.0, []
    for _ in range(4):
        assert queue.start_next(now) == "a"
        queue.finish("a", now, REFUSED)
        at = queue.next_at()
        assert at is not None
        waits.append(at - now)
        now = at
    assert waits == [1.0, 2.0, 4.0, 8.0]
    assert queue.start_next(now) == "a"
    queue.finish("a", now, REFUSED)
    queue.add("a", now + 0.5)
    assert queue.next_at() == now + 2.0
    assert queue.start_next(now + 2.0) == "a"


def test_a_success_ends_the_backoff() -> None:
    queue = schedule()
    for now, outcome in ((0.0, FAILED), (1.0, FAILED), (3.0, SETTLED), (4.0, FAILED)):
        queue.add("a", now)
        assert queue.start_next(now) == "a"
        queue.finish("a", now, outcome)
    assert queue.next_at() == 5.0


def test_what_the_server_asks_to_wait_is_waited() -> None:
    queue = schedule()
    queue.add("a", 0.0)
    queue.start_next(0.0)
    queue.finish("a", 0.0, Outcome(Ending.FAILED, 30.0))
    assert queue.next_at() == 30.0


def test_requeue_looks_again_later_and_an_event_earlier() -> None:
    queue = schedule()
    queue.add("a", 0.0)
    queue.start_next(0.0)
    queue.finish("a", 0.0, Outcome(Ending.SETTLED, 10.0))
    assert queue.next_at() == 10.0
    queue.add("a", 3.0)
    assert queue.start_next(3.0) == "a"


def test_a_key_that_acted_is_looked_at_again_at_once() -> None:
    queue = schedule()
    queue.add("a", 0.0)
    queue.start_next(0.0)
    queue.finish("a", 1.0, ACTED)
    assert queue.start_next(1.0) == "a"


def test_a_key_that_always_acts_is_slowed_down_until_it_rests() -> None:
    queue = schedule(restless_after=3, restless_max_s=5.0)
    queue.add("a", 0.0)
    now, starts = 0.0, []
    for _ in range(9):
        assert queue.start_next(now) == "a"
        starts.append(now)
        queue.finish("a", now, ACTED)
        now = queue.next_at() or now
    assert starts == [0.0, 0.0, 0.0, 0.0, 1.0, 3.0, 7.0, 12.0, 17.0]
    assert queue.is_restless("a")
    assert queue.start_next(now) == "a"
    queue.finish("a", now, SETTLED)
    assert not queue.is_restless("a")


def test_one_key_that_fails_does_not_hold_up_another() -> None:
    queue = schedule(backoff_min_s=100.0)
    queue.add("bad", 0.0)
    queue.start_next(0.0)
    queue.finish("bad", 0.0, FAILED)
    queue.add("good", 1.0)
    assert queue.start_next(1.0) == "good"


def test_depth_and_age_count_what_is_ready_or_in_work() -> None:
    queue = schedule()
    queue.add("waits", 1.0)
    queue.add("works", 0.0)
    queue.add("later", 99.0)
    queue.start_next(2.0)
    assert queue.depth(5.0) == 2
    assert queue.oldest_s(5.0) == pytest.approx(4.0)
    assert schedule().oldest_s(5.0) == 0.0


def test_drop_forgets_everything() -> None:
    queue = schedule()
    queue.add("a", 0.0)
    queue.start_next(0.0)
    queue.add("b", 0.0)
    queue.drop()
    assert queue.start_next(9.0) is None
    assert queue.depth(9.0) == 0
