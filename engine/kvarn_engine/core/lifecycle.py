"""The life of a sequence as a table. The scheduler moves sequences through it; nothing else changes a status."""

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType


class SequenceStatus(Enum):
    WAITING = "waiting"
    """Holds no block; queued for admission."""

    IMPORTING = "importing"
    """Admitted with room for its prompt, whose blocks a peer may be sending; not computed yet."""

    RUNNING = "running"
    """In the batch: it takes part in steps."""

    PREEMPTED = "preempted"
    """Lost its blocks to older sequences; queued to be computed again from its tokens."""

    FINISHED = "finished"


_S = SequenceStatus

TRANSITIONS: Mapping[SequenceStatus, frozenset[SequenceStatus]] = MappingProxyType({
    _S.WAITING: frozenset({_S.IMPORTING, _S.RUNNING, _S.FINISHED}),
    _S.IMPORTING: frozenset({_S.RUNNING, _S.FINISHED}),
    _S.RUNNING: frozenset({_S.PREEMPTED, _S.FINISHED}),
    _S.PREEMPTED: frozenset({_S.RUNNING, _S.FINISHED}),
    _S.FINISHED: frozenset(),
})


class IllegalTransition(AssertionError):
    """A defect of the scheduler, never of a request."""

    def __init__(self, old: SequenceStatus, new: SequenceStatus) -> None:
        super().__init__(f"a sequence cannot go from {old.value} to {new.value}")
        self.old = old
        self.new = new


def check_transition(old: SequenceStatus, new: SequenceStatus) -> None:
    if new not in TRANSITIONS[old]:
        raise IllegalTransition(old, new)
