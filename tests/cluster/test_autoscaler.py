"""An HPA of the cluster and the operator at the same pools, for KVARN_HPA_MINUTES (default 1; long runs ask for 10).

Without a metrics API an HPA still holds a pool within its minimum and maximum, which is how these tests make it write.
"""

import itertools
import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kvarn_operator.resources.labels import API_VERSION
from kvarn_operator.scaling.spec import Role

from tests.cluster.support.cluster import Cluster
from tests.cluster.support.kubectl import Kubectl, Resource
from tests.cluster.support.model import Model
from tests.cluster.support.operator_metrics import counted
from tests.cluster.support.operator_process import OperatorProcess, running_operator
from tests.cluster.support.replicas_log import replicas_log

MINUTES = float(os.environ.get("KVARN_HPA_MINUTES") or 1)
BOUNDS = ((3, 6, 3), (1, 2, 2), (5, 6, 5), (1, 1, 1))
"""Minimum and maximum of the HPA, and the replicas that it then has to ask for, coming from the one before."""

pytestmark = pytest.mark.timeout(900 + 60 * MINUTES)


@pytest.fixture(scope="module")
def operator(
    fake_cluster: Cluster, fake_namespace: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[OperatorProcess]:
    scope = ("--namespaces", fake_namespace, "--lease-namespace", fake_namespace)
    with running_operator(fake_cluster, tmp_path_factory.mktemp("operator") / "log", *scope) as operator:
        yield operator


@pytest.fixture
def kubectl(fake_cluster: Cluster, fake_namespace: str, operator: OperatorProcess) -> Kubectl:
    """In the namespace that the operator keeps."""
    return fake_cluster.kubectl(fake_namespace)


def test_an_hpa_alone_moves_an_external_pool(
    kubectl: Kubectl, operator: OperatorProcess, tmp_path: Path, tell: Callable[[str], None]
) -> None:
    model = Model(kubectl, "followed")
    model.apply(decode={"scaling": {"mode": "External"}})
    model.wait_ready()
    before, asked = counted(operator), [1]
    with replicas_log(kubectl, "followed-decode", tmp_path / "log") as log:
        kubectl.apply(autoscaler("followed-decode", 1, 1))
        end = time.monotonic() + 60 * MINUTES
        for minimum, maximum, replicas in itertools.cycle(BOUNDS):
            if len(asked) > len(BOUNDS) and time.monotonic() > end:
                break
            bound(kubectl, "followed-decode", minimum, maximum)
            model.wait_for_pods(Role.DECODE, replicas)
            asked.append(replicas)
        assert log.replicas() == asked
        assert {(each.written, each.own_writers) for each in log.sightings()} == {("1", log.sightings()[0].own_writers)}
    made = sum(max(0, after - was) for was, after in itertools.pairwise(asked))
    seen = counted(operator).since(before)
    tell(f"HPA and operator on one pool for {MINUTES:g} minutes: {len(asked) - 1} changes, each stayed")
    assert seen.total("kvarn_operator_actions_total", action="SetReplicas") == 0
    assert seen.total("kvarn_operator_actions_total", action="CreatePod") == made
    assert model.condition("ReplicasConflict")["status"] == "False"


def test_an_hpa_on_a_planned_pool_is_obeyed_and_told(kubectl: Kubectl, tmp_path: Path) -> None:
    """It overrides the planner for a while; one that keeps writing is a conflict that says what to do.

    Old API servers do not name who writes through `/scale`, so there it takes one write more to tell it from a person.
    """
    model = Model(kubectl, "planned")
    model.apply(decode={"scaling": {"mode": "SLO", "min": 1, "max": 8}})
    model.wait_ready()
    with replicas_log(kubectl, "planned-decode", tmp_path / "log") as log:
        kubectl.apply(autoscaler("planned-decode", 3, 8))
        model.wait_for_status(Role.DECODE, "override.replicas", 3)
        model.wait_for_pods(Role.DECODE, 3)
        assert _condition(model.pool(Role.DECODE), "ScalingActive")["reason"] == "Override"
        assert model.condition("ReplicasConflict")["status"] == "False"
        for minimum in (4, 5):
            bound(kubectl, "planned-decode", minimum, 8)
            model.wait_for_status(Role.DECODE, "override.replicas", minimum)
        model.wait_for("ReplicasConflict", "True")
        model.wait_for_pods(Role.DECODE, 5)
        assert log.replicas() == [1, 3, 4, 5]
    assert "scaling.mode to External" in model.condition("ReplicasConflict")["message"]
    assert [each for each in kubectl.list("events") if each["involvedObject"]["name"] == "planned-decode"]


def autoscaler(pool: str, minimum: int, maximum: int) -> Resource:
    target = {"apiVersion": API_VERSION, "kind": "WorkerPool", "name": pool}
    return {
        "apiVersion": "autoscaling/v1",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": pool},
        "spec": {"scaleTargetRef": target, **_bounds(minimum, maximum), "targetCPUUtilizationPercentage": 50},
    }


def bound(kubectl: Kubectl, name: str, minimum: int, maximum: int) -> None:
    kubectl("patch", "hpa", name, "--type=merge", "-p", json.dumps({"spec": _bounds(minimum, maximum)}))


def _bounds(minimum: int, maximum: int) -> dict[str, int]:
    return {"minReplicas": minimum, "maxReplicas": maximum}


def _condition(resource: Resource, kind: str) -> Resource:
    return next(each for each in resource["status"]["conditions"] if each["type"] == kind)
