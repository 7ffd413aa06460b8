"""The Lease by which operators agree on who acts, as anybody can read it."""

import datetime
from dataclasses import dataclass

from tests.cluster.support.kubectl import Kubectl

LEASE = "kvarn-operator"


@dataclass(frozen=True, slots=True)
class LeaseState:
    holder: str
    transitions: int
    acquired: datetime.datetime
    renewed: datetime.datetime


def read_lease(kubectl: Kubectl) -> LeaseState | None:
    """None: nobody has held it yet, or it was given back."""
    lease = kubectl.get("lease", LEASE)
    spec = {} if lease is None else lease.get("spec") or {}
    if not spec.get("holderIdentity"):
        return None
    return LeaseState(
        spec["holderIdentity"],
        spec["leaseTransitions"],
        datetime.datetime.fromisoformat(spec["acquireTime"]),
        datetime.datetime.fromisoformat(spec["renewTime"]),
    )


def held_lease(kubectl: Kubectl) -> LeaseState:
    lease = read_lease(kubectl)
    assert lease is not None, "nobody leads"
    return lease
