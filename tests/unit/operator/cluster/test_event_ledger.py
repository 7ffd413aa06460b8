"""Which Events are written, in virtual time."""

from kvarn_operator.cluster.event_ledger import EventKey, EventLedger, EventLimits, Known, Verdict
from kvarn_operator.cluster.event_recorder import Reporter, event_body, series_patch

LIMITS = EventLimits(window_s=600.0, series_interval_s=60.0, burst=3, refill_s=30.0)
WRITE, COUNT_UP, QUIET = Verdict.WRITE, Verdict.COUNT_UP, Verdict.KEEP_QUIET


def key(message: str = "from 1 to 2", uid: str = "u1") -> EventKey:
    return EventKey(uid, "ScaledUp", message, False)


def test_a_repeat_is_counted_up_once_a_minute() -> None:
    ledger = EventLedger(LIMITS)
    assert ledger.judge(key(), 0.0) is WRITE
    ledger.written(key(), "chat.1", 0.0)
    assert [ledger.judge(key(), now) for now in (1.0, 30.0, 59.0)] == [QUIET] * 3
    assert ledger.judge(key(), 60.0) is COUNT_UP
    ledger.written(key(), "chat.1", 60.0)
    assert ledger.judge(key(), 61.0) is QUIET
    assert ledger.known(key()) == Known("chat.1", 6, 61.0, 60.0)


def test_another_message_or_object_is_another_event() -> None:
    ledger = EventLedger(LIMITS)
    assert ledger.judge(key("a"), 0.0) is WRITE
    assert ledger.judge(key("b"), 0.0) is WRITE
    assert ledger.judge(key("a", uid="u2"), 0.0) is WRITE


def test_after_a_long_silence_it_is_new() -> None:
    ledger = EventLedger(LIMITS)
    ledger.judge(key(), 0.0)
    ledger.written(key(), "chat.1", 0.0)
    assert ledger.judge(key(), 601.0) is WRITE


def test_an_object_that_says_too_much_is_cut_short_and_others_are_not() -> None:
    ledger = EventLedger(LIMITS)
    verdicts = [ledger.judge(key(f"m{number}"), 0.0) for number in range(5)]
    assert verdicts == [WRITE, WRITE, WRITE, QUIET, QUIET]
    assert ledger.judge(key("m", uid="u2"), 0.0) is WRITE
    assert ledger.judge(key("later"), 30.0) is WRITE
    assert ledger.judge(key("even later"), 31.0) is QUIET


def test_what_could_not_be_written_is_tried_anew() -> None:
    ledger = EventLedger(LIMITS)
    ledger.judge(key(), 0.0)
    ledger.lost(key())
    assert ledger.judge(key(), 1.0) is WRITE


def test_the_event_fits_the_api() -> None:
    about = {
        "apiVersion": "kvarn.dev/v1alpha1",
        "kind": "WorkerPool",
        "metadata": {"namespace": "models", "name": "p" * 253, "uid": "u1", "resourceVersion": "9"},
    }
    event = event_body(about, EventKey("u1", "PodRefused", "ü" * 2000, True), Reporter("host_1"), 1796097600.25)
    assert len(event["metadata"]["name"]) <= 253
    assert len(event["note"].encode()) <= 1024
    assert event["note"].endswith("ü...")
    assert event["eventTime"] == "2026-12-01T04:00:00.250000Z"
    assert (event["type"], event["reason"], event["action"]) == ("Warning", "PodRefused", "PodRefused")
    assert event["reportingController"] == "kvarn.dev/kvarn-operator"
    assert event["regarding"]["uid"] == "u1"
    assert (event["metadata"]["namespace"], event["regarding"]["namespace"]) == ("models", "models")


def test_a_series_has_at_least_two() -> None:
    assert series_patch(Known("n", 1, 0.0, 0.0), 0.0)["series"]["count"] == 2
    assert series_patch(Known("n", 7, 0.0, 0.0), 0.0)["series"]["count"] == 7
