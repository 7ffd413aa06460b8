"""Nothing of Kvarn's stands in the way of a deletion, least of all an operator that is gone."""

from collections.abc import Iterator

import pytest
from kvarn_operator.resources.labels import MODEL_SERVICE_LABEL
from kvarn_operator.scaling.spec import Role

from tests.cluster.support.cluster import Cluster
from tests.cluster.support.kubectl import LOOK_S, Kubectl, Resource
from tests.cluster.support.model import Model, model_service, names
from tests.cluster.support.operator_process import OperatorProcess, running_operator
from tests.support.process import wait_until

GARBAGE_S = 240
"""The garbage collector takes over a minute for the first objects of a kind that it has just heard of."""

KINDS = ("wp", "pods", "pdb")


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


def test_a_deleted_pool_comes_back_with_its_model_s_replicas(kubectl: Kubectl) -> None:
    model = Model(kubectl, "healed")
    model.apply(decode={"replicas": 2})
    model.wait_ready()
    old = model.pool(Role.DECODE)["metadata"]["uid"]
    kubectl("delete", "wp", "healed-decode")
    wait_until(lambda: _uid(kubectl, "healed-decode") not in ("", old), "the pool is back", 120, LOOK_S)
    model.wait_for_pods(Role.DECODE, 2, GARBAGE_S)
    model.wait_ready()


def test_a_deleted_model_takes_all_that_it_had(kubectl: Kubectl) -> None:
    model = Model(kubectl, "left")
    model.apply(decode={"replicas": 2})
    model.wait_ready()
    kubectl("delete", "ms", "left")
    for kind in KINDS:
        kubectl.wait_until_gone(kind, f"{MODEL_SERVICE_LABEL}=left", GARBAGE_S)


def test_a_pool_without_a_model_is_told_so(kubectl: Kubectl) -> None:
    kubectl.apply(
        {
            "apiVersion": "kvarn.dev/v1alpha1",
            "kind": "WorkerPool",
            "metadata": {"name": "stray"},
            "spec": {"role": "decode", "modelService": "nobody"},
        }
    )
    kubectl("wait", "wp/stray", "--for=condition=Accepted=False", "--timeout=120s")
    pool = kubectl.get("wp", "stray")
    assert pool is not None
    assert [each["reason"] for each in pool["status"]["conditions"] if each["type"] == "Accepted"] == ["NoModelService"]
    assert kubectl.list("pods", "kvarn.dev/pool=stray") == []


def test_models_go_when_the_operator_is_gone(kubectl: Kubectl, operator: OperatorProcess) -> None:
    """Killed, not ended; the last test of this module."""
    found = ("first", "second")
    kubectl.apply(*(model_service(name, decode={"replicas": 2}) for name in found))
    for name in found:
        Model(kubectl, name).wait_ready()
    objects = [each for kind in ("ms", *KINDS) for each in kubectl.list(kind)]
    assert {name for each in objects for name in _finalizers(each)} == set()
    operator.kill()
    kubectl("delete", "ms", "--all", "--timeout=60s")
    for kind in KINDS:
        for name in found:
            kubectl.wait_until_gone(kind, f"{MODEL_SERVICE_LABEL}={name}", GARBAGE_S)
    assert names(kubectl.list("wp")) == ["stray"]


def _uid(kubectl: Kubectl, pool: str) -> str:
    found = kubectl.get("wp", pool)
    return "" if found is None else str(found["metadata"]["uid"])


def _finalizers(resource: Resource) -> list[str]:
    return list(resource["metadata"].get("finalizers") or ())
