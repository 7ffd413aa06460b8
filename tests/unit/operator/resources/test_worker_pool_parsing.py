"""A WorkerPool's JSON, and who wrote its `replicas`: with managedFields as API servers of both ages keep them."""

from typing import Any

import pytest
from kvarn_operator.resources.errors import InvalidResource
from kvarn_operator.resources.labels import (
    APPLY_MANAGER,
    SCALING_MANAGER,
    SEED_MANAGER,
    SEEDED_REPLICAS_ANNOTATION,
    WRITTEN_REPLICAS_ANNOTATION,
)
from kvarn_operator.resources.worker_pool_parsing import UNTRACKED_WRITER
from kvarn_operator.scaling.observation import ReplicasWrite
from kvarn_operator.scaling.spec import Role

from tests.unit.operator.resources.resource_builders import CREATED, CREATED_AT, pool, pool_json

LATER, LATER_AT = "2026-12-01T05:00:00Z", CREATED_AT + 3600
REPLICAS = {"f:spec": {"f:replicas": {}}}


def entry(manager: str, time: str = CREATED, fields: Any = REPLICAS, **more: str) -> dict[str, Any]:
    return {"manager": manager, "operation": "Update", "time": time, "fieldsV1": fields, **more}


def write(replicas: int, *entries: dict[str, Any], written: str | None = None) -> ReplicasWrite | None:
    annotations = {} if written is None else {WRITTEN_REPLICAS_ANNOTATION: written}
    return pool({"replicas": replicas}, {"managedFields": list(entries), "annotations": annotations}).replicas_write


def test_a_bare_pool_is_all_defaults() -> None:
    found = pool()
    assert (found.namespace, found.name, found.uid, found.generation) == ("models", "smollm2-decode", "u-2", 5)
    assert (found.role, found.model_service, found.replicas) == (Role.DECODE, "smollm2", 1)
    assert (found.replicas_write, found.seeded_replicas, found.status) == (None, None, None)
    assert found.resource == pool_json()
    assert not found.deleting


def test_what_does_not_count_cannot_be_wrong() -> None:
    """Or else whoever edits a pool could stop the operator from keeping its pods."""
    assert pool({"replicas": 7, "scaling": {"min": 5, "max": 2}, "template": {"args": {"port": "1"}}}).replicas == 7


def test_more_than_max_is_no_error_here() -> None:
    """`max` may have been lowered below what there is: the planner brings it down, and must be able to."""
    assert pool({"replicas": 8, "scaling": {"mode": "SLO", "max": 2}}).replicas == 8


def test_a_pool_that_goes_says_so() -> None:
    assert pool(metadata={"deletionTimestamp": CREATED}).deleting


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ({"role": None}, "spec.role: is required"),
        ({"role": "both"}, "spec.role: 'both' is none of prefill, decode"),
        ({"modelService": ""}, "spec.modelService: is required"),
        ({"replicas": "3"}, "spec.replicas: '3' is not an integer"),
        ({"replicas": 1001}, "spec.replicas: is 1001, outside of 0 to 1000"),
    ],
)
def test_bad_pools(spec: Any, says: str) -> None:
    with pytest.raises(InvalidResource) as caught:
        pool(spec)
    assert str(caught.value) == says


@pytest.mark.parametrize(("text", "seeded"), [("3", 3), ("0", 0), ("-1", None), ("many", None), ("", None)])
def test_seeded_replicas(text: str, seeded: int | None) -> None:
    assert pool(metadata={"annotations": {SEEDED_REPLICAS_ANNOTATION: text}}).seeded_replicas == seeded


def test_kubectl_scale_is_foreign() -> None:
    assert write(3, entry("kubectl", subresource="scale"), written="1") == ReplicasWrite("kubectl", CREATED_AT, True)


def test_an_autoscaler_is_foreign() -> None:
    entries = entry(SEED_MANAGER), entry("kube-controller-manager", LATER, subresource="scale")
    assert write(3, *entries, written="2") == ReplicasWrite("kube-controller-manager", LATER_AT, True)


@pytest.mark.parametrize("manager", [SEED_MANAGER, SCALING_MANAGER])
def test_the_operators_own_writes_are_not(manager: str) -> None:
    assert write(3, entry(manager), written="3") == ReplicasWrite(manager, CREATED_AT, False)


def test_the_last_of_several_counts_in_any_order() -> None:
    """They wrote the same number, so the API server keeps both."""
    ours, theirs = entry(SCALING_MANAGER, LATER), entry("kubectl", CREATED)
    for entries in ((ours, theirs), (theirs, ours)):
        assert write(3, *entries, written="3") == ReplicasWrite(SCALING_MANAGER, LATER_AT, False)


def test_who_wrote_other_fields_has_not_written_replicas() -> None:
    labels = {"f:metadata": {"f:labels": {"f:replicas": {}}}, "f:spec": {"f:scaling": {"f:max": {}}}}
    assert write(1, entry(APPLY_MANAGER, fields=labels), entry("kubectl", LATER, {"f:status": {}})) is None


def test_nobody_wrote_the_default() -> None:
    assert write(1) is None


def test_a_write_through_scale_that_an_old_server_does_not_track() -> None:
    """Its number differs from what the operator wrote, though the operator still stands as its owner."""
    first = write(6, entry(SEED_MANAGER), written="2")
    assert first is not None
    assert (first.writer, first.foreign) == (UNTRACKED_WRITER, True)
    assert write(6, entry(SEED_MANAGER), written="2") == first
    assert write(7, entry(SEED_MANAGER), written="2") != first
    assert write(6) == first, "nobody stands as the owner, but it is not the default"


def test_a_pool_of_an_operator_that_kept_no_record_is_believed() -> None:
    assert write(6, entry(SCALING_MANAGER)) == ReplicasWrite(SCALING_MANAGER, CREATED_AT, False)


def test_a_time_that_is_none_is_long_ago() -> None:
    assert write(3, entry("kubectl", "yesterday")) == ReplicasWrite("kubectl", 0.0, True)
