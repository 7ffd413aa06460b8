"""Two operators, one leader: what a model gets when the leader is killed, frozen or ended."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

import pytest
from kvarn_operator.scaling.spec import Role

from tests.cluster.support.cluster import Cluster
from tests.cluster.support.election import LeaseState, held_lease, read_lease
from tests.cluster.support.kubectl import LOOK_S, Kubectl
from tests.cluster.support.model import Model, names
from tests.cluster.support.operator_metrics import counted
from tests.cluster.support.operator_process import OperatorProcess, running_operator
from tests.support.process import wait_until

LEASE_S = 10.0
"""The default of --lease-duration-s: nobody takes over from a silent leader sooner."""

FAILOVER_S = 60.0
"""Only bounds a failing test; the figure told is what counts, and is under 15 s."""


@dataclass(frozen=True, slots=True)
class Pair:
    operators: Sequence[OperatorProcess]

    def leaders(self) -> list[OperatorProcess]:
        return [each for each in self.operators if each.is_alive and _leads(each)]

    def leader(self) -> OperatorProcess:
        wait_until(lambda: len(self.leaders()) == 1, "one operator leads", FAILOVER_S, pause_s=0.2)
        return self.leaders()[0]

    def other(self, operator: OperatorProcess) -> OperatorProcess:
        return next(each for each in self.operators if each is not operator)


@pytest.fixture(scope="module")
def kubectl(fake_cluster: Cluster, fake_namespace: str) -> Kubectl:
    return fake_cluster.kubectl(fake_namespace)


@pytest.fixture(scope="module")
def pair(fake_cluster: Cluster, kubectl: Kubectl, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    scope = ("--namespaces", kubectl.namespace, "--lease-namespace", kubectl.namespace)
    folder = tmp_path_factory.mktemp("operators")
    with ExitStack() as stack:
        yield Pair(
            [stack.enter_context(running_operator(fake_cluster, folder / name, *scope)) for name in ("first", "second")]
        )


@pytest.fixture(scope="module")
def model(kubectl: Kubectl, pair: Pair) -> Model:
    model = Model(kubectl, "led")
    model.apply()
    model.wait_ready()
    return model


def test_one_leads_and_the_other_stands_by(kubectl: Kubectl, pair: Pair, model: Model) -> None:
    leader = pair.leader()
    standby = counted(pair.other(leader))
    assert held_lease(kubectl).holder
    assert standby.total("kvarn_operator_reconciles_total") == 0
    assert standby.total("kvarn_operator_actions_total") == 0
    assert [operator.probe("ready") for operator in pair.operators] == [200, 200]


def test_the_other_acts_when_the_leader_is_killed(
    kubectl: Kubectl, pair: Pair, model: Model, tell: Callable[[str], None]
) -> None:
    before, dead = names(model.pods()), pair.leader()
    heir = pair.other(dead)
    idle = counted(heir)
    dead.kill()
    last = held_lease(kubectl)
    model.scale(Role.DECODE, 3)
    model.wait_for_pods(Role.DECODE, 3)
    taken = held_lease(kubectl)
    tell(failover("killed", last, taken))
    assert taken.transitions == last.transitions + 1
    assert (taken.acquired - last.renewed).total_seconds() >= LEASE_S
    assert set(before) < set(names(model.pods()))
    assert len(model.pods()) == 4
    assert counted(heir).since(idle).total("kvarn_operator_actions_total", action="CreatePod") == 2
    dead.start()
    dead.wait_ready()


def test_a_leader_that_was_frozen_does_not_act_when_it_wakes(
    kubectl: Kubectl, pair: Pair, model: Model, tell: Callable[[str], None]
) -> None:
    frozen = pair.leader()
    frozen.freeze()
    last = held_lease(kubectl)
    model.scale(Role.PREFILL, 2)
    model.wait_for_pods(Role.PREFILL, 2)
    taken = held_lease(kubectl)
    tell(failover("frozen", last, taken))
    before = names(model.pods())
    frozen.thaw()
    wait_until(lambda: not _leads(frozen), "the old leader stands by", FAILOVER_S, pause_s=0.2)
    assert pair.leader() is not frozen
    assert held_lease(kubectl).holder == taken.holder
    assert names(model.pods()) == before


def test_a_leader_that_ends_hands_over(kubectl: Kubectl, pair: Pair, model: Model, tell: Callable[[str], None]) -> None:
    """It gives the Lease back, so nobody waits for its end."""
    leader, last = pair.leader(), held_lease(kubectl)
    assert leader.terminate() == 0
    wait_until(lambda: _is_taken(kubectl, last), "the other leads", FAILOVER_S, LOOK_S)
    taken = held_lease(kubectl)
    tell(failover("ended", last, taken))
    assert taken.transitions == last.transitions + 1
    model.scale(Role.DECODE, 1)
    model.wait_for_pods(Role.DECODE, 1)
    assert len(model.pods()) == 3


def _leads(operator: OperatorProcess) -> bool:
    return counted(operator).total("kvarn_operator_is_leader") == 1


def _is_taken(kubectl: Kubectl, last: LeaseState) -> bool:
    lease = read_lease(kubectl)
    return lease is not None and lease.holder != last.holder


def failover(fate: str, last: LeaseState, taken: LeaseState) -> str:
    gap_s = (taken.acquired - last.renewed).total_seconds()
    return f"leader {fate}: {gap_s:.1f} s from its last renewal to the next leader's first"
