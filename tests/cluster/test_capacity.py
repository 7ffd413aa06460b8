"""More pods than GPUs, seen by an operator that has the rights of the chart's Role and no others."""

from collections.abc import Iterator, Sequence

import pytest
from kvarn_operator.scaling.spec import Role

from tests.cluster.support.account import as_account, rendered_operator
from tests.cluster.support.cluster import Cluster
from tests.cluster.support.kubectl import Kubectl, Resource
from tests.cluster.support.model import Model, gpu_template, names
from tests.cluster.support.operator_process import OperatorProcess, running_operator

CLUSTER_WIDE = ("ClusterRole", "ClusterRoleBinding")
A_WHOLE_NODE = gpu_template(8)


@pytest.fixture(scope="module")
def rendered(fake_cluster: Cluster, fake_namespace: str) -> list[Resource]:
    return rendered_operator(fake_cluster, fake_namespace)


@pytest.fixture(scope="module")
def account(
    fake_cluster: Cluster, fake_namespace: str, rendered: list[Resource], tmp_path_factory: pytest.TempPathFactory
) -> Cluster:
    """The chart's service account, bound to the chart's Roles."""
    fake_cluster.kubectl(fake_namespace).apply(*(each for each in rendered if each["kind"] != "Deployment"))
    name = _one(rendered, "ServiceAccount")["metadata"]["name"]
    return as_account(fake_cluster, fake_namespace, name, tmp_path_factory.mktemp("account"))


@pytest.fixture(scope="module")
def operator(
    account: Cluster, rendered: list[Resource], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[OperatorProcess]:
    """With the chart's own flags, but for the ports."""
    (container,) = _one(rendered, "Deployment")["spec"]["template"]["spec"]["containers"]
    flags = [flag for flag in container["args"] if not flag.startswith(("--health-port", "--metrics-port"))]
    with running_operator(account, tmp_path_factory.mktemp("operator") / "log", *flags) as operator:
        yield operator


@pytest.fixture
def kubectl(fake_cluster: Cluster, fake_namespace: str, operator: OperatorProcess) -> Kubectl:
    """The administrator's, in the namespace that the operator keeps."""
    return fake_cluster.kubectl(fake_namespace)


def test_the_operator_needs_no_cluster_role(account: Cluster, rendered: list[Resource], kubectl: Kubectl) -> None:
    assert not [each["kind"] for each in rendered if each["kind"] in CLUSTER_WIDE]
    model = Model(kubectl, "kept")
    model.apply(decode={"replicas": 2})
    model.wait_ready()
    model.scale(Role.DECODE, 1)
    model.wait_for_pods(Role.DECODE, 1)
    assert _events(kubectl, "kept-decode")
    own = account.kubectl(kubectl.namespace)
    may = [_may(own, *words) for words in (("delete", "pods"), ("get", "secrets"), ("list", "nodes"))]
    assert may == [True, False, False]
    assert not _may(own.at("default"), "list", "pods")


def test_pods_without_a_gpu_are_told_and_go_first(kubectl: Kubectl) -> None:
    nodes = len(kubectl.list("nodes"))
    model = Model(kubectl, "hungry")
    model.apply(prefill={"template": A_WHOLE_NODE}, decode={"template": A_WHOLE_NODE, "replicas": nodes - 1})
    model.wait_ready()
    serving = names(model.pods())
    model.scale(Role.DECODE, nodes + 1)
    model.wait_for("CapacityAvailable", "False")
    assert model.condition("CapacityAvailable")["reason"] == "Unschedulable"
    assert "Insufficient nvidia.com/gpu" in model.condition("CapacityAvailable")["message"]
    model.wait_for("Ready", "False")
    assert model.condition("Ready")["reason"] == "Unschedulable"
    assert model.condition("Paired")["status"] == "True"
    model.wait_for_status(Role.DECODE, "replicas", nodes + 1)
    model.scale(Role.DECODE, nodes - 1)
    model.wait_for_pods(Role.DECODE, nodes - 1)
    model.wait_for("CapacityAvailable", "True")
    model.wait_ready()
    assert names(model.pods()) == serving


def test_a_pool_that_never_gets_a_gpu_does_not_block_its_own_way_down(kubectl: Kubectl) -> None:
    model = Model(kubectl, "greedy")
    model.apply(decode={"template": gpu_template(9)})
    model.wait_for("CapacityAvailable", "False")
    model.scale(Role.DECODE, 0)
    model.wait_for_pods(Role.DECODE, 0)
    model.wait_ready()
    assert model.condition("Ready")["reason"] == "ScaledToZero"


def _one(resources: Sequence[Resource], kind: str) -> Resource:
    (found,) = [each for each in resources if each["kind"] == kind]
    return found


def _may(kubectl: Kubectl, verb: str, resource: str) -> bool:
    return kubectl.attempt("auth", "can-i", verb, resource).stdout.strip() == "yes"


def _events(kubectl: Kubectl, name: str) -> Sequence[Resource]:
    return [each for each in kubectl.list("events") if each["involvedObject"]["name"] == name]
