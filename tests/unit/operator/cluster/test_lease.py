"""The candidate's state machine in virtual time, alone and two against each other."""

from dataclasses import replace

import pytest
from kvarn_operator.cluster.lease import Candidate, LeaseRecord, LeaseTimes, Step, lease_body, record_of

TIMES = LeaseTimes(duration_s=10.0, renew_deadline_s=7.0, retry_s=2.0)


def record(holder: str, version: str = "1", transitions: int = 0) -> LeaseRecord:
    return LeaseRecord(holder, "2026-12-01T00:00:00.000000Z", transitions, version)


def candidate(identity: str = "me") -> Candidate:
    return Candidate(identity, TIMES)


def test_nobody_leads_before_a_write_succeeded() -> None:
    me = candidate()
    assert me.must_read
    me.observed(None, 0.0)
    assert me.next_step(0.0) is Step.CREATE
    assert not me.leads(0.0)
    me.written(record("me"), 0.0)
    assert me.leads(0.0)


def test_leading_ends_by_the_clock_when_no_renewal_succeeds() -> None:
    me = candidate()
    me.observed(None, 0.0)
    me.written(record("me"), 0.0)
    assert me.leads(6.9)
    assert not me.leads(7.0)
    assert me.next_step(7.0) is Step.RENEW


def test_a_renewal_counts_from_its_beginning() -> None:
    me = candidate()
    me.observed(None, 0.0)
    me.written(record("me"), 0.0)
    me.written(record("me", "2"), 3.0)
    assert me.leads(9.9)
    assert not me.leads(10.0)


def test_a_standby_takes_over_when_the_lease_did_not_change_for_its_duration() -> None:
    me = candidate()
    me.observed(record("other", "1"), 0.0)
    assert me.next_step(9.9) is Step.WAIT
    me.observed(record("other", "2"), 9.9)
    assert me.next_step(19.8) is Step.WAIT
    me.observed(record("other", "2"), 19.8)
    assert me.next_step(19.9) is Step.TAKE


def test_a_released_lease_is_taken_at_once() -> None:
    me = candidate()
    me.observed(record("", "5"), 0.0)
    assert me.next_step(0.0) is Step.TAKE


def test_the_deposed_one_no_longer_leads() -> None:
    me = candidate()
    me.observed(None, 0.0)
    me.written(record("me"), 0.0)
    me.unsure()
    assert me.must_read
    me.observed(record("other", "9"), 1.0)
    assert not me.leads(1.0)
    assert me.next_step(1.0) is Step.WAIT


def test_a_lease_that_was_deleted_is_not_held() -> None:
    me = candidate()
    me.observed(None, 0.0)
    me.written(record("me"), 0.0)
    me.observed(None, 1.0)
    assert not me.leads(1.0)
    assert me.next_step(1.0) is Step.CREATE


def test_a_release_ends_the_leading() -> None:
    me = candidate()
    me.observed(None, 0.0)
    me.written(record("me"), 0.0)
    me.written(record("", "2"), 1.0)
    assert not me.leads(1.0)


def test_one_decides_only_on_a_lease_that_was_read() -> None:
    with pytest.raises(AssertionError):
        candidate().next_step(0.0)


@pytest.mark.parametrize("draw", [0.0, 0.99])
def test_pauses_end_when_something_is_due(draw: float) -> None:
    leader, standby = candidate(), candidate("other")
    leader.observed(None, 0.0)
    leader.written(record("me"), 0.0)
    assert leader.pause_s(0.0, draw) == pytest.approx(2.0 * (1 + draw / 5))
    assert leader.pause_s(6.5, draw) == pytest.approx(0.5)
    standby.observed(record("me"), 0.0)
    assert standby.pause_s(1.0, draw) == pytest.approx(2.0 * (1 + draw / 5))
    assert standby.pause_s(9.0, draw) == pytest.approx(1.01)
    assert standby.pause_s(12.0, draw) == pytest.approx(2.0 * (1 + draw / 5))
    assert leader.pause_s(50.0, draw) == pytest.approx(2.0 * (1 + draw / 5))


def test_two_never_lead_at_once_and_the_second_follows_within_15_s() -> None:
    """Both step through one shared Lease; the first dies at a moment of its own."""
    for death in (20.0, 21.3, 21.99, 22.0, 23.7):
        lease: LeaseRecord | None = None
        one, two = Candidate("one", TIMES), Candidate("two", TIMES)
        next_try = {"one": 0.0, "two": 0.7}
        took_over = None
        for tick in range(6000):
            now = tick / 100
            for me in (one, two):
                alive = me is two or now < death
                if not alive or now < next_try[me.identity]:
                    continue
                if me.must_read:
                    me.observed(lease, now)
                step = me.next_step(now)
                if step is not Step.WAIT:
                    version = str(int(lease.version) + 1) if lease is not None else "1"
                    lease = replace(record(me.identity), version=version)
                    me.written(lease, now)
                next_try[me.identity] = now + me.pause_s(now, 0.5)
            # The dead one's own view of itself runs out by the clock alone, as that of a frozen process does.
            assert not (one.leads(now) and two.leads(now))
            if took_over is None and two.leads(now):
                took_over = now
        assert took_over is not None
        assert 0 < took_over - death < 15.0


def test_the_body_counts_transitions_and_keeps_when_it_was_acquired() -> None:
    me = candidate()
    now = "2026-12-01T05:00:00.000000Z"
    me.observed(None, 0.0)
    created = lease_body("ns", "lease", me, now, Step.CREATE)
    assert created["metadata"] == {"namespace": "ns", "name": "lease"}
    assert created["spec"] == {
        "holderIdentity": "me",
        "leaseDurationSeconds": 10,
        "acquireTime": now,
        "renewTime": now,
        "leaseTransitions": 0,
    }
    me.observed(record("other", "7", transitions=3), 0.0)
    taken = lease_body("ns", "lease", me, now, Step.TAKE)
    assert taken["metadata"]["resourceVersion"] == "7"
    assert (taken["spec"]["leaseTransitions"], taken["spec"]["acquireTime"]) == (4, now)
    me.written(record("me", "8", transitions=4), 0.0)
    renewed = lease_body("ns", "lease", me, now, Step.RENEW)
    assert (renewed["spec"]["leaseTransitions"], renewed["spec"]["acquireTime"]) == (4, record("x").acquired)
    released = lease_body("ns", "lease", me, now, Step.RENEW, release=True)
    assert (released["spec"]["holderIdentity"], released["spec"]["leaseDurationSeconds"]) == ("", 1)


def test_a_lease_without_a_spec_is_free() -> None:
    read = record_of({"metadata": {"resourceVersion": "3", "labels": {"app": "kvarn"}}})
    assert (read.holder, read.version, read.transitions) == ("", "3", 0)
    me = candidate()
    me.observed(read, 0.0)
    assert me.next_step(0.0) is Step.TAKE
    assert lease_body("ns", "lease", me, "now", Step.TAKE)["metadata"]["labels"] == {"app": "kvarn"}


@pytest.mark.parametrize("draw", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("phase_s", [0.0, 0.7, 1.9, 2.39])
def test_by_default_a_dead_leader_is_followed_within_15_s(draw: float, phase_s: float) -> None:
    """Counted from its last renewal, which a standby sees only when it next looks."""
    standby, now = Candidate("standby", LeaseTimes()), -20.0 + phase_s
    while now < 0.0:
        standby.observed(record("leader", f"renewed {now // 2.0}"), now)
        assert standby.next_step(now) is Step.WAIT
        now += standby.pause_s(now, draw)
    standby.observed(record("leader", "last"), now)
    while standby.next_step(now) is Step.WAIT:
        now += standby.pause_s(now, draw)
        standby.observed(record("leader", "last"), now)
    assert LeaseTimes().duration_s <= now < 15.0
