"""From objects to what the reconcile sees."""

from typing import Any

import pytest
from kvarn_operator.cluster.gathering import ServiceObjects, gather
from kvarn_operator.reconcile.observed import OperatorDefaults, Readings
from kvarn_operator.resources.errors import InvalidResource
from kvarn_operator.resources.model_service import ModelService
from kvarn_operator.scaling.spec import PoolName

DEFAULTS = OperatorDefaults("example/worker:1")
NO_READINGS = Readings()


def service(**metadata: Any) -> dict[str, Any]:
    return {
        "metadata": {"namespace": "models", "name": "chat", "uid": "s", "generation": 1, **metadata},
        "spec": {},
    }


def pool(name: str = "chat-decode", **spec: Any) -> dict[str, Any]:
    return {
        "metadata": {"namespace": "models", "name": name, "uid": f"uid-{name}", "generation": 1},
        "spec": {"role": "decode", "modelService": "chat", "replicas": 1, **spec},
    }


def pod(name: str, component: str = "worker", owner: str = "WorkerPool", controller: bool = True) -> dict[str, Any]:
    return {
        "metadata": {
            "namespace": "models",
            "name": name,
            "uid": f"uid-{name}",
            "creationTimestamp": "2026-12-01T04:00:00Z",
            "labels": {
                "kvarn.dev/model-service": "chat",
                "kvarn.dev/pool": "chat-decode",
                "kvarn.dev/role": "decode",
                "kvarn.dev/revision": "r1",
                "app.kubernetes.io/component": component,
            },
            "ownerReferences": [{"kind": owner, "name": "chat-decode", "uid": "any", "controller": controller}],
        },
        "spec": {},
        "status": {"phase": "Running"},
    }


def objects(**parts: Any) -> ServiceObjects:
    return ServiceObjects("models", "chat", **parts)


def test_everything_of_a_model_is_seen() -> None:
    refused = {PoolName("chat-decode"): "over quota"}
    seen = gather(
        objects(
            services=(service(),),
            pools=(pool(),),
            pods=(pod("a"),),
            budgets=({"x": 1},),
            refused=refused,
            refused_object="no right",
        ),
        NO_READINGS,
        DEFAULTS,
    )
    assert isinstance(seen.service, ModelService)
    assert seen.resource == service()
    assert [each.name for each in seen.pools] == ["chat-decode"]
    assert [each.name for each in seen.pods] == ["a"]
    assert (seen.budgets, seen.refused, seen.defaults) == (({"x": 1},), refused, DEFAULTS)
    assert seen.refused_object == "no right"


def test_a_deleted_model_is_gone_at_once() -> None:
    seen = gather(objects(services=(service(deletionTimestamp="now"),)), NO_READINGS, DEFAULTS)
    assert seen.service is None
    assert seen.resource == {}


def test_an_invalid_model_keeps_its_json_for_the_status() -> None:
    wrong = {**service(), "spec": {"decode": {"replicas": -1}}}
    seen = gather(objects(services=(wrong,)), NO_READINGS, DEFAULTS)
    assert isinstance(seen.service, InvalidResource)
    assert seen.resource == wrong


def test_pools_without_their_model_carry_its_name() -> None:
    seen = gather(
        ServiceObjects("models", "shortened", pools=(pool(modelService="the-long-name"),)), NO_READINGS, DEFAULTS
    )
    assert (seen.service, seen.name) == (None, "the-long-name")


@pytest.mark.parametrize(
    "stranger",
    [pod("router", component="router"), pod("set", owner="ReplicaSet"), pod("loose", controller=False)],
    ids=lambda each: each["metadata"]["name"],
)
def test_pods_of_others_are_left_alone(stranger: dict[str, Any]) -> None:
    seen = gather(objects(services=(service(),), pods=(pod("own"), stranger)), NO_READINGS, DEFAULTS)
    assert [each.name for each in seen.pods] == ["own"]
    assert seen.taken == {stranger["metadata"]["name"]}


def test_what_cannot_be_read_is_left_out_and_does_not_hide_the_rest() -> None:
    broken = pod("broken")
    broken["metadata"]["labels"]["kvarn.dev/role"] = "neither"
    seen = gather(
        objects(pools=(pool("bad", role="neither"), pool()), pods=(broken, pod("own"))), NO_READINGS, DEFAULTS
    )
    assert [each.name for each in seen.pools] == ["chat-decode"]
    assert [each.name for each in seen.pods] == ["own"]
