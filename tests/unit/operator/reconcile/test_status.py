"""What is written fits the CRDs, and what is said is true and changes only when something does."""

from dataclasses import replace

import jsonschema
import pytest
from kvarn_operator.reconcile.pool_conditions import troubled
from kvarn_operator.reconcile.pool_status import DECISIONS_KEPT
from kvarn_operator.resources.worker_pool import PodProblem

from tests.support.crds import MODEL_SERVICE, WORKER_POOL, schema
from tests.support.fake_cluster import DECODE, PREFILL, FakeCluster
from tests.unit.operator.reconcile.reconcile_stories import serving, settle, slo, spec, step
from tests.unit.operator.resources.resource_builders import pod


def closed(root: dict) -> dict:  # type: ignore[type-arg]
    """As the API server sees it: what the schema does not know is dropped, so here it is an error."""
    found = {key: closed(value) if isinstance(value, dict) and key != "enum" else value for key, value in root.items()}
    if "properties" in root and isinstance(root.get("type"), str):
        found["additionalProperties"] = bool(root.get("x-kubernetes-preserve-unknown-fields"))
    return found


def test_every_field_that_is_written_is_in_the_crd() -> None:
    cluster = serving(decode=2, decode__scaling=slo())
    cluster.scale(DECODE, 3)
    step(cluster)
    assert "override" in cluster.pools[DECODE]["status"]
    for plural, resource in ((MODEL_SERVICE, cluster.service), (WORKER_POOL, cluster.pools[DECODE])):
        status = closed(dict(schema(plural)["properties"]["status"]))
        assert list(jsonschema.Draft4Validator(status).iter_errors(resource["status"])) == []


def test_the_crd_check_notices_an_unknown_field() -> None:
    status = closed(dict(schema(WORKER_POOL)["properties"]["status"]))
    assert list(jsonschema.Draft4Validator(status).iter_errors({"replicaz": 1})) != []


def test_what_printer_columns_and_autoscalers_read() -> None:
    cluster = serving(prefill=1, decode=2)
    assert cluster.service["status"]["pools"]["decode"] == {
        "name": DECODE, "summary": "2/2", "replicas": 2, "ready": 2, "draining": 0, "updated": 2,
    }  # fmt: skip
    assert cluster.service["status"]["model"] == "embedded"
    status = cluster.pools[DECODE]["status"]
    assert status["selector"] == "kvarn.dev/pool=smollm2-decode"
    counts = ("replicas", "readyReplicas", "drainingReplicas", "updatedReplicas")
    assert [status[name] for name in counts] == [2, 2, 0, 2]


def test_the_model_as_text() -> None:
    cluster = FakeCluster()
    cluster.put_service(spec(model={"source": {"hub": {"id": "org/name"}}, "revision": "v2"}))
    step(cluster)
    assert cluster.service["status"]["model"] == "hub org/name @v2"


def test_conditions_tell_when_they_changed_and_for_which_generation() -> None:
    cluster = serving()
    before = cluster.told("Ready")
    cluster.advance(100)
    cluster.put_service(spec(slo={"ttftMs": 1000}))
    settle(cluster)
    after = cluster.told("Ready")
    assert after == {**before, "observedGeneration": 2}
    assert cluster.service["status"]["observedGeneration"] == 2


def test_reconciling_is_there_only_while_something_happens() -> None:
    cluster = serving()
    kinds = {item["type"] for item in cluster.service["status"]["conditions"]}
    assert not kinds & {"Reconciling", "Stalled"}
    cluster.scale(DECODE, 2)
    step(cluster)
    assert cluster.condition("Reconciling") == ("True", "Scaling")
    assert cluster.condition("Ready") == ("False", "PodsNotReady")
    settle(cluster)
    assert "Reconciling" not in {item["type"] for item in cluster.service["status"]["conditions"]}


def test_a_pod_that_is_not_ready_is_named_with_its_node() -> None:
    cluster = serving(decode=2)
    lapsed = cluster.serving(DECODE)[0]
    cluster.lapse(lapsed)
    step(cluster)
    assert cluster.condition("Ready", DECODE) == ("False", "PodsNotReady")
    assert cluster.told("Ready", DECODE)["message"] == f"1 of 2 pods ready; not ready: {lapsed} on node-1"


def test_the_last_decisions_are_kept() -> None:
    cluster = serving()
    for replicas in range(2, 16):
        cluster.scale(DECODE, replicas)
        step(cluster)
    decisions = cluster.pools[DECODE]["status"]["decisions"]
    assert len(decisions) == DECISIONS_KEPT
    assert (decisions[-1]["from"], decisions[-1]["to"], decisions[-1]["reason"]) == (14, 15, "Manual")
    assert decisions[-1]["time"].endswith("Z")


def test_events_are_not_repeated_while_nothing_changes() -> None:
    cluster = FakeCluster(room=1)
    cluster.put_service(spec())
    for _ in range(40):
        step(cluster)
    told = [(event.kind, event.name, event.reason) for event in cluster.events]
    assert ("WorkerPool", PREFILL, "Unschedulable") in told
    assert len(told) == len(set(told))


@pytest.mark.parametrize("problem", [problem for problem in PodProblem if problem is not PodProblem.NONE])
def test_each_problem_of_a_pod_has_its_word(problem: PodProblem) -> None:
    found = troubled([replace(pod(), problem=problem, problem_message="why")])
    assert found is not None
    assert found[0].isalpha()
    assert found[1] == "smollm2-decode-7c1f9a-0: why"


def test_a_pod_that_serves_has_none() -> None:
    assert troubled([replace(pod(), ready=True, problem=PodProblem.CRASHING)]) is None
