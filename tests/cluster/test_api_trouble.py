"""The API server, or the store behind it, dies and comes back under a running operator; or it refuses, forgets, and
falls silent.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from kvarn_operator.scaling.spec import Role

from tests.cluster.support.cluster import Cluster
from tests.cluster.support.faulty_api import FaultyApi, behind_faulty_api
from tests.cluster.support.kubectl import LOOK_S, Kubectl
from tests.cluster.support.model import Model
from tests.cluster.support.operator_metrics import counted
from tests.cluster.support.operator_process import OperatorProcess, running_operator
from tests.support.process import wait_until

RARE = ("--resync-s", "600", "--stall-s", "1800")
"""Longer than any test waits: what is acted on was heard by a watch, not found by a list."""

OFTEN = ("--resync-s", "2", "--stall-s", "8")


@pytest.fixture(scope="module")
def operator(
    fake_cluster: Cluster, fake_namespace: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[OperatorProcess]:
    log = tmp_path_factory.mktemp("operator") / "log"
    with running_operator(fake_cluster, log, *_scope(fake_namespace), *RARE) as operator:
        yield operator


@pytest.fixture
def kubectl(fake_cluster: Cluster, fake_namespace: str, operator: OperatorProcess) -> Kubectl:
    """In the namespace that the operator keeps."""
    return fake_cluster.kubectl(fake_namespace)


@pytest.mark.parametrize("part", ["apiserver", "etcd"])
def test_changes_are_acted_on_after_a_part_was_killed(
    fake_cluster: Cluster, kubectl: Kubectl, operator: OperatorProcess, part: str
) -> None:
    assert fake_cluster.bed is not None
    model = Model(kubectl, f"outlives-{part}")
    model.apply()
    model.wait_ready()
    fake_cluster.bed.restart(part)
    wait_until(lambda: kubectl.attempt("get", "--raw", "/readyz").returncode == 0, "the API is back", 120, LOOK_S)
    model.scale(Role.DECODE, 3)
    model.wait_for_pods(Role.DECODE, 3)
    (name, *_) = [pod["metadata"]["name"] for pod in model.pods(Role.DECODE)]
    kubectl("delete", "pod", name)
    wait_until(lambda: len(model.pods(Role.DECODE)) == 3, "the lost pod is replaced", 120, LOOK_S)
    fresh = Model(kubectl, f"follows-{part}")
    fresh.apply()
    fresh.wait_ready()
    assert operator.is_alive
    assert operator.probe("live") == 200


@pytest.fixture
def trouble(fake_cluster: Cluster, tmp_path: Path) -> Iterator[tuple[FaultyApi, Cluster]]:
    with behind_faulty_api(fake_cluster, tmp_path) as found:
        yield found


def test_calls_that_are_refused_are_made_again(
    fake_cluster: Cluster, trouble: tuple[FaultyApi, Cluster], tmp_path: Path
) -> None:
    """429 with Retry-After, for all that the operator first wants to do about a model."""
    api, seen = trouble
    with fake_cluster.namespace("refused") as namespace:
        kubectl = fake_cluster.kubectl(namespace)
        with running_operator(seen, tmp_path / "log", *_scope(namespace), *RARE):
            api.refuse(10)
            model = Model(kubectl, "patient")
            model.apply(decode={"replicas": 2})
            model.wait_ready()
            assert api.refusals_left == 0
            assert len(model.pods()) == 3


def test_watches_that_expire_begin_anew(
    fake_cluster: Cluster, trouble: tuple[FaultyApi, Cluster], tmp_path: Path
) -> None:
    """410, again and again. A deletion that went unheard with the last event is found by the next list."""
    api, seen = trouble
    with fake_cluster.namespace("expired") as namespace:
        kubectl = fake_cluster.kubectl(namespace)
        with running_operator(seen, tmp_path / "log", *_scope(namespace), *OFTEN):
            model = Model(kubectl, "followed")
            model.apply()
            model.wait_ready()
            for replicas in (3, 1, 2):
                before = api.expired
                api.expire_watches()
                model.scale(Role.DECODE, replicas)
                model.wait_for_pods(Role.DECODE, replicas)
                assert api.expired > before


def test_silent_watches_are_made_up_for_and_replaced(
    fake_cluster: Cluster, trouble: tuple[FaultyApi, Cluster], tmp_path: Path
) -> None:
    """What they keep to themselves is found by lists, which is also how they are found out."""
    api, seen = trouble
    with fake_cluster.namespace("silent") as namespace:
        kubectl = fake_cluster.kubectl(namespace)
        with running_operator(seen, tmp_path / "log", *_scope(namespace), *OFTEN) as operator:
            api.is_deaf = True
            model = Model(kubectl, "unheard")
            model.apply()
            model.wait_ready()
            model.scale(Role.DECODE, 2)
            model.wait_for_pods(Role.DECODE, 2)
            began = "kvarn_operator_watch_restarts_total"
            wait_until(lambda: counted(operator).total(began) > 0, "the watches are begun anew", 60, pause_s=0.2)
            api.is_deaf = False
            model.scale(Role.DECODE, 1)
            model.wait_for_pods(Role.DECODE, 1)
            assert operator.probe("live") == 200


def _scope(namespace: str) -> tuple[str, ...]:
    return ("--namespaces", namespace, "--lease-namespace", namespace)
