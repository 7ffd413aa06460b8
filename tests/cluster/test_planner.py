"""A planned pool on a cluster: load comes, more than there are GPUs for, goes altogether, and comes again."""

from collections.abc import Iterator, Sequence

import pytest
from kvarn_operator.scaling.spec import Role

from tests.cluster.support.cluster import Cluster
from tests.cluster.support.kubectl import Kubectl, Resource
from tests.cluster.support.model import Model, gpu_template
from tests.cluster.support.operator_process import OperatorProcess, running_operator
from tests.cluster.support.readings import Readings, served_readings

OFTEN = ("--sample-s", "0.5", "--status-sample-s", "0.5")
AT_ONCE = {"stabilizationWindowSeconds": 0, "pods": 100, "periodSeconds": 1}


@pytest.fixture(scope="module")
def operator(
    fake_cluster: Cluster, fake_namespace: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[OperatorProcess]:
    scope = ("--namespaces", fake_namespace, "--lease-namespace", fake_namespace)
    with running_operator(fake_cluster, tmp_path_factory.mktemp("operator") / "log", *scope, *OFTEN) as operator:
        yield operator


@pytest.fixture
def kubectl(fake_cluster: Cluster, fake_namespace: str, operator: OperatorProcess) -> Kubectl:
    """In the namespace that the operator keeps."""
    return fake_cluster.kubectl(fake_namespace)


@pytest.fixture
def readings() -> Iterator[Readings]:
    with served_readings() as readings:
        yield readings


def test_load_that_comes_beyond_what_fits_goes_and_comes_back(kubectl: Kubectl, readings: Readings) -> None:
    """Every decode pod takes a whole node. Each says that 90 of its 100 blocks are in use where 80 are wanted: so many
    pods as there are nodes ask for one more, which cannot be placed, and adds neither supply nor demand.
    """
    nodes = len(kubectl.list("nodes"))
    behaviour = {"scaleUp": AT_ONCE, "scaleDown": AT_ONCE}
    scaling = {"mode": "SLO", "min": 0, "max": nodes + 3, "zeroAfterSeconds": 1, "behaviour": behaviour}
    model = Model(kubectl, "planned")
    template = {"annotations": readings.annotations()}
    kubectl.apply(readings.router_pod(model.name))
    model.apply(
        prefill={"template": template},
        decode={"template": {**gpu_template(8), **template}, "scaling": scaling},
    )
    model.wait_ready()

    readings.busy(requests=9, blocks_in_use=90)
    model.wait_for_status(Role.DECODE, "replicas", nodes + 1)
    model.wait_for("CapacityAvailable", "False")
    model.wait_for_status(Role.DECODE, "readyReplicas", nodes)
    assert model.pool(Role.DECODE)["spec"]["replicas"] == nodes + 1
    latest = model.pool(Role.DECODE)["status"]["decisions"][-1]
    assert (latest["from"], latest["to"]) == (nodes, nodes + 1)
    assert f"kv_usage_sum={0.9 * nodes:g}, " in latest["message"]
    assert f"kv_target=0.8, kv_replicas={nodes + 1}, " in latest["message"]
    up = told(kubectl, "planned-decode", "ScaledUp")
    assert any(latest["message"] in event["message"] for event in up)

    readings.idle()
    model.wait_for_pods(Role.DECODE, 0)
    assert model.condition("Ready")["reason"] == "ScaledToZero"
    assert told(kubectl, "planned-decode", "ScaledDown")

    readings.held(1)
    model.wait_for_pods(Role.DECODE, 1)
    model.wait_for("CapacityAvailable", "True")
    model.wait_ready()


def told(kubectl: Kubectl, name: str, reason: str) -> Sequence[Resource]:
    events = kubectl.list("events")
    return [each for each in events if (each["involvedObject"]["name"], each["reason"]) == (name, reason)]
