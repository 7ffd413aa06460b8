"""Pools in the hands of a person and pools in great number, at a real API server with real kubectl."""

import json
import time
from collections.abc import Callable, Iterator

import pytest
from kvarn_operator.resources.labels import POOL_LABEL, SEED_MANAGER
from kvarn_operator.scaling.spec import Role

from tests.cluster.support.cluster import Cluster
from tests.cluster.support.kubectl import Kubectl
from tests.cluster.support.model import Model, model_service, names
from tests.cluster.support.operator_metrics import Counted, counted
from tests.cluster.support.operator_process import OperatorProcess, running_operator
from tests.cluster.support.replicas_log import sighting
from tests.support.process import wait_until

MODELS = 100
RESYNC_S = 10
ROUNDS = 3
CALLS_PER_MINUTE = 100
"""At rest, at this RESYNC_S: 24 lists and 27 renewals of the Lease. One call for each model would be 100 more."""

CALLS = "kvarn_operator_api_calls_total"
ACTIONS = "kvarn_operator_actions_total"
READS = ("get", "list")


@pytest.fixture(scope="module")
def operator(
    fake_cluster: Cluster, fake_namespace: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[OperatorProcess]:
    scope = ("--namespaces", fake_namespace, "--lease-namespace", fake_namespace)
    log = tmp_path_factory.mktemp("operator") / "log"
    with running_operator(fake_cluster, log, *scope, "--resync-s", str(RESYNC_S)) as operator:
        yield operator


@pytest.fixture
def kubectl(fake_cluster: Cluster, fake_namespace: str, operator: OperatorProcess) -> Kubectl:
    """In the namespace that the operator keeps."""
    return fake_cluster.kubectl(fake_namespace)


def test_a_person_scales_a_pool_and_nobody_writes_it_back(kubectl: Kubectl, operator: OperatorProcess) -> None:
    model = Model(kubectl, "by-hand")
    model.apply()
    model.wait_ready()
    seeded, before = model.pool(Role.DECODE), counted(operator)
    for replicas in (3, 2):
        model.scale(Role.DECODE, replicas)
        model.wait_for_pods(Role.DECODE, replicas)
    pool = model.pool(Role.DECODE)
    assert pool["spec"]["replicas"] == 2
    assert len(model.pods(Role.DECODE)) == 2
    assert counted(operator).since(before).total(ACTIONS, action="SetReplicas") == 0
    assert sighting(pool).written == "1"
    assert sighting(pool).own_writers in ((), sighting(seeded).own_writers)
    assert [manager for manager, _ in sighting(seeded).own_writers] == [SEED_MANAGER]


def test_the_scale_subresource_names_the_pods(kubectl: Kubectl) -> None:
    model = Model(kubectl, "selected")
    model.apply(decode={"replicas": 2})
    model.wait_ready()
    path = f"/apis/kvarn.dev/v1alpha1/namespaces/{kubectl.namespace}/workerpools/selected-decode/scale"
    scale = json.loads(kubectl("get", "--raw", path))
    assert (scale["spec"]["replicas"], scale["status"]["replicas"]) == (2, 2)
    assert scale["status"]["selector"] == f"{POOL_LABEL}=selected-decode"
    assert names(kubectl.list("pods", scale["status"]["selector"])) == names(model.pods(Role.DECODE))


def test_columns_answer_whether_it_is_fine(kubectl: Kubectl) -> None:
    model = Model(kubectl, "shown")
    model.apply(prefill={"replicas": 2})
    model.wait_ready()
    model.wait_for_pods(Role.PREFILL, 2)
    header, row = (line.split() for line in kubectl("get", "ms", "shown").splitlines())
    assert header == ["NAME", "READY", "PREFILL", "DECODE", "SLO", "REASON", "AGE"]
    assert row[:6] == ["shown", "True", "2/2", "1/1", "Unknown", "Serving"]
    header, row = (line.split() for line in kubectl("get", "wp", "shown-prefill").splitlines())
    assert header == ["NAME", "ROLE", "DESIRED", "READY", "DRAINING", "MODE", "REASON", "AGE"]
    assert row[:7] == ["shown-prefill", "prefill", "2", "2", "0", "Manual", "AllPodsReady"]


def test_names_of_any_length_work(kubectl: Kubectl) -> None:
    """Two that differ in their last character only, too long for labels, pods and Services."""
    stem = ".".join(["a-name-as-long-as-a-name-can-be"] * 8)
    found = [stem[:252].rstrip("-.") + end for end in "xy"] + ["m" * 63]
    assert {len(name) for name in found} == {253, 63}
    models = [Model(kubectl, name) for name in found]
    kubectl.apply(*(model_service(name) for name in found))
    for model in models:
        model.wait_ready()
    pods = [name for model in models for name in names(model.pods())]
    assert len(pods) == len(set(pods)) == 2 * len(models)
    models[0].scale(Role.DECODE, 2)
    models[0].wait_for_pods(Role.DECODE, 2)
    assert [len(model.pods()) for model in models] == [3, 2, 2]


def test_a_spec_that_contradicts_itself_is_refused_until_it_is_corrected(kubectl: Kubectl) -> None:
    """CEL rules would refuse it at once; old API servers let it in."""
    model = Model(kubectl, "torn")
    model.apply(model={"source": {"embedded": {}, "hub": {"id": "org/model"}}})
    model.wait_for("Accepted", "False")
    assert "spec.model.source" in model.condition("Accepted")["message"]
    assert kubectl.list("wp", "kvarn.dev/model-service=torn") == []
    model.apply()
    model.wait_for("Accepted", "True")
    model.wait_ready()


def test_two_hundred_pools_come_to_rest(
    kubectl: Kubectl, operator: OperatorProcess, tell: Callable[[str], None]
) -> None:
    started = time.monotonic()
    kubectl.apply(*(model_service(f"model-{number:03}") for number in range(MODELS)))
    kubectl("wait", "ms", "--all", "--for=condition=Ready", "--timeout=400s", timeout_s=500)
    tell(f"{MODELS} models with {2 * MODELS} pools: Ready after {time.monotonic() - started:.0f} s")
    assert len(kubectl.list("wp")) >= 2 * MODELS
    wait_until(lambda: _writes(_seen(operator, 1)[0]) == 0, "a round of lists after which nothing is written", 120)
    seen, seconds = _seen(operator, ROUNDS)
    calls = {" ".join(call): int(number) for call, number in seen.by(CALLS, "verb", "resource").items()}
    tell(f"{2 * MODELS} pools at rest: {seen.total(CALLS) * 60 / seconds:.0f} API calls a minute ({calls})")
    assert _writes(seen) == 0
    assert seen.total(CALLS) * 60 / seconds < CALLS_PER_MINUTE
    models = len(kubectl.list("ms"))
    assert models <= seen.total("kvarn_operator_reconciles_total") <= 2 * (ROUNDS + 1) * models


def _seen(operator: OperatorProcess, rounds: int) -> tuple[Counted, float]:
    """What the operator counts until it has listed all models so many times more, and how long that took."""
    before, started = counted(operator), time.monotonic()

    def is_over() -> bool:
        return counted(operator).since(before).total(CALLS, verb="list", resource="modelservices") >= rounds

    wait_until(is_over, f"{rounds} rounds of lists", 60 + 4 * rounds * RESYNC_S, pause_s=0.5)
    return counted(operator).since(before), time.monotonic() - started


def _writes(seen: Counted) -> float:
    """But for the renewals of the Lease."""
    return sum(
        calls for (verb, resource), calls in seen.by(CALLS, "verb", "resource").items()
        if verb not in READS and resource != "leases"
    )  # fmt: skip
