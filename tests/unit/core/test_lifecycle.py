"""The life of a sequence: every pair of states is allowed or refused as the table says."""

import itertools

import pytest
from kvarn_engine.core.lifecycle import IllegalTransition, SequenceStatus, check_transition

_LEGAL = {
    ("waiting", "importing"), ("waiting", "running"), ("waiting", "finished"),
    ("importing", "running"), ("importing", "finished"),
    ("running", "preempted"), ("running", "finished"),
    ("preempted", "running"), ("preempted", "finished"),
}  # fmt: skip


@pytest.mark.parametrize(("old", "new"), list(itertools.product(SequenceStatus, SequenceStatus)))
def test_transitions(old: SequenceStatus, new: SequenceStatus) -> None:
    if (old.value, new.value) in _LEGAL:
        check_transition(old, new)
    else:
        with pytest.raises(IllegalTransition, match=f"from {old.value} to {new.value}"):
            check_transition(old, new)
