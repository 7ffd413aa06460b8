"""Who acts: the state machine of one candidate for a Lease. Pure: a monotonic clock is passed in. Owned by `election`.

A holder leads until `renew_deadline_s` after its last successful renewal began. Others count `duration_s` from when
they themselves saw the lease change, so clocks need not agree; in the difference of the two nobody leads.
"""

import enum
from dataclasses import dataclass
from typing import Any

from kvarn_operator.reconcile.actions import Body
from kvarn_operator.resources.pool_template import Json


@dataclass(frozen=True, slots=True)
class LeaseTimes:
    duration_s: float = 10.0
    renew_deadline_s: float = 7.0
    retry_s: float = 2.0


@dataclass(frozen=True, slots=True)
class LeaseRecord:
    """The Lease as the server has it."""

    holder: str
    """Empty: released."""

    acquired: str
    """RFC 3339, kept while the holder stays."""

    transitions: int
    version: str
    """resourceVersion, the precondition of a write; it changes with every renewal."""

    labels: Json = None


class Step(enum.Enum):
    CREATE = "create"
    TAKE = "take"
    RENEW = "renew"
    WAIT = "wait"


class Candidate:
    def __init__(self, identity: str, times: LeaseTimes) -> None:
        self.identity = identity
        self.times = times
        self._record: LeaseRecord | None = None
        self._known = False
        self._changed_at = 0.0
        self._leads_until = float("-inf")

    @property
    def record(self) -> LeaseRecord | None:
        return self._record

    def observed(self, record: LeaseRecord | None, now: float) -> None:
        """What a read gave; None: there is no Lease."""
        if not self._known or record != self._record:
            self._changed_at = now
        self._known = True
        self._record = record
        if record is None or record.holder != self.identity:
            self._leads_until = float("-inf")

    def written(self, record: LeaseRecord, started: float) -> None:
        """An own write, begun at `started`, has succeeded."""
        self.observed(record, started)
        held = record.holder == self.identity
        self._leads_until = started + self.times.renew_deadline_s if held else float("-inf")

    def unsure(self) -> None:
        """A write met somebody else's: read before the next one."""
        self._known = False

    def leads(self, now: float) -> bool:
        return now < self._leads_until

    @property
    def leads_until(self) -> float:
        return self._leads_until

    @property
    def must_read(self) -> bool:
        """A holder that renews needs no read: its write has the version as precondition."""
        return not self._known or not self._holds

    @property
    def _holds(self) -> bool:
        """By the record, whatever the clock says."""
        return self._record is not None and self._record.holder == self.identity

    def next_step(self, now: float) -> Step:
        """What to write, after a read where one is needed."""
        assert self._known, "decides on a lease that was not read"
        if self._record is None:
            return Step.CREATE
        if self._record.holder == self.identity:
            return Step.RENEW
        free = not self._record.holder or now >= self._changed_at + self.times.duration_s
        return Step.TAKE if free else Step.WAIT

    def pause_s(self, now: float, draw: float) -> float:
        """Until the next try. A standby does not sleep past the end of the lease; a leader not past its deadline."""
        pause = self.times.retry_s * (1.0 + draw / 5)
        if self.leads(now):
            return min(pause, self._leads_until - now)
        held = self._known and self._record is not None and self._record.holder
        left_s = self._changed_at + self.times.duration_s - now
        if held and not self._holds and left_s > 0:
            return min(pause, left_s + 0.01)  # a sleep may end a moment early
        return pause


def record_of(lease: Json) -> LeaseRecord:
    metadata, spec = lease["metadata"], lease.get("spec") or {}
    return LeaseRecord(
        holder=spec.get("holderIdentity") or "",
        acquired=spec.get("acquireTime") or "",
        transitions=int(spec.get("leaseTransitions") or 0),
        version=metadata.get("resourceVersion") or "",
        labels=metadata.get("labels"),
    )


def lease_body(namespace: str, name: str, candidate: Candidate, now: str, step: Step, release: bool = False) -> Body:
    """The Lease to write. `now` is RFC 3339 with microseconds; it is for people, the machine counts by itself."""
    record = candidate.record
    metadata: dict[str, Any] = {"namespace": namespace, "name": name}
    if step is not Step.CREATE and record is not None:
        metadata["resourceVersion"] = record.version
        metadata |= {"labels": record.labels} if record.labels else {}
    taken = step is Step.TAKE
    spec = {
        "holderIdentity": "" if release else candidate.identity,
        "leaseDurationSeconds": 1 if release else max(1, round(candidate.times.duration_s)),
        "acquireTime": now if taken or record is None or not record.acquired else record.acquired,
        "renewTime": now,
        "leaseTransitions": 0 if record is None else record.transitions + (1 if taken else 0),
    }
    return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec}
