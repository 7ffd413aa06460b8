"""The API server, or the store behind it, dies and comes back under a running operator."""

from collections.abc import Iterator

import pytest
from kvarn_operator.scaling.spec import Role

from tests.cluster.support.cluster import Cluster
from tests.cluster.support.kubectl import Kubectl
from tests.cluster.support.model import Model
from tests.cluster.support.operator_process import OperatorProcess, running_operator
from tests.support.process import wait_until

RARE = ("--resync-s", "600", "--stall-s", "1800")
"""Longer than any test waits: what is acted on was heard by a watch, not found by a list."""


@pytest.fixture(scope="module")
def operator(
    fake_cluster: Cluster, fake_namespace: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[OperatorProcess]:
    scope = ("--namespaces", fake_namespace, "--lease-namespace", fake_namespace)
    with running_operator(fake_cluster, tmp_path_factory.mktemp("operator") / "log", *scope, *RARE) as operator:
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
    wait_until(lambda: kubectl.attempt("get", "--raw", "/readyz").returncode == 0, "the API is back", 120, 0.2)
    model.scale(Role.DECODE, 3)
    model.wait_for_pods(Role.DECODE, 3)
    (name, *_) = [pod["metadata"]["name"] for pod in model.pods(Role.DECODE)]
    kubectl("delete", "pod", name)
    wait_until(lambda: len(model.pods(Role.DECODE)) == 3, "the lost pod is replaced", 120, 0.5)
    fresh = Model(kubectl, f"follows-{part}")
    fresh.apply()
    fresh.wait_ready()
    assert operator.is_alive
    assert operator.probe("live") == 200
