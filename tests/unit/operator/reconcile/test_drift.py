"""An object is applied again when something of ours differs, and never for what others or the API server add."""

import copy
from typing import Any

import pytest
from kvarn_operator.reconcile.drift import drifted, status_differs
from kvarn_operator.resources.labels import APPLY_MANAGER

WANTED = {
    "kind": "WorkerPool",
    "metadata": {"name": "m-decode", "labels": {"a": "1"}, "ownerReferences": [{"uid": "u", "kind": "ModelService"}]},
    "spec": {"role": "decode", "template": {"env": [{"name": "X", "value": "1"}], "nodeSelector": {"disk": "ssd"}}},
}


def live(**changes: Any) -> Any:
    found = copy.deepcopy(WANTED)
    found["metadata"]["managedFields"] = [
        {"manager": APPLY_MANAGER, "fieldsV1": {"f:metadata": {"f:labels": {".": {}, "f:a": {}}}, "f:spec": owned()}}
    ]
    found["spec"] |= {"replicas": 3}
    found["metadata"] |= {"uid": "x", "annotations": {"theirs": "1"}}
    found["metadata"]["labels"]["theirs"] = "2"
    found["spec"] |= changes
    return found


def owned() -> Any:
    return {"f:role": {}, "f:template": {"f:env": {}, "f:nodeSelector": {".": {}, "f:disk": {}}}}


def template(**changes: Any) -> Any:
    return live(template={**WANTED["spec"]["template"], **changes})


def test_what_does_not_exist_is_applied() -> None:
    assert drifted(WANTED, None)


def test_what_others_add_is_no_drift() -> None:
    found = live(defaulted=True)
    found["metadata"]["ownerReferences"].insert(0, {"uid": "another"})
    assert not drifted(WANTED, found)
    assert not drifted(WANTED, template(defaulted={"a": 1}))


@pytest.mark.parametrize(
    "found",
    [
        live(role="prefill"),
        template(env=[{"name": "X", "value": "2"}]),
        template(env=[]),
        template(env=[{"name": "X", "value": "1"}, {"name": "Y", "value": "1"}]),
        template(env=[{"name": "X", "value": "1", "more": 1}]),
        template(nodeSelector={}),
    ],
)  # fmt: skip
def test_a_value_of_ours_that_differs(found: Any) -> None:
    assert drifted(WANTED, found)


def test_a_label_of_ours_that_is_gone() -> None:
    found = live()
    del found["metadata"]["labels"]["a"]
    assert drifted(WANTED, found)
    found = live()
    found["metadata"]["ownerReferences"] = []
    assert drifted(WANTED, found)


def test_what_was_applied_before_and_is_wanted_no_more() -> None:
    found = template(nodeSelector={"disk": "ssd", "zone": "a"})
    assert not drifted(WANTED, found), "somebody else's"
    found["metadata"]["managedFields"][0]["fieldsV1"]["f:spec"]["f:template"]["f:nodeSelector"]["f:zone"] = {}
    assert drifted(WANTED, found)


def test_what_another_manager_owns_is_not_ours() -> None:
    found = live()
    found["metadata"]["managedFields"].append({"manager": "kubectl", "fieldsV1": {"f:spec": {"f:replicas": {}}}})
    assert not drifted(WANTED, found)


def test_empty_and_absent_are_the_same() -> None:
    wanted = {"spec": {"template": {"tolerations": [], "affinity": None, "labels": {}}}}
    assert not drifted(wanted, {"spec": {"template": {}}})
    assert drifted(wanted, {"spec": {"template": {"tolerations": [{"key": "gpu"}]}}})


def test_conditions_count_in_any_order() -> None:
    one, other = {"type": "Ready", "status": "True"}, {"type": "Accepted", "status": "True"}
    assert not status_differs({"conditions": [one, other], "a": 1}, {"a": 1, "conditions": [other, one]})
    assert status_differs({"conditions": [one, other]}, {"conditions": [other]})
    assert status_differs({"conditions": [one]}, {"conditions": [{**one, "status": "False"}]})
    assert status_differs({"conditions": [one], "a": 1}, {"conditions": [one]})


def test_tuples_are_lists() -> None:
    wanted = {"spec": {"args": ({"a": (1, 2)},)}}
    found = {"metadata": {"managedFields": [{"manager": APPLY_MANAGER, "fieldsV1": {"f:spec": {"f:args": {}}}}]}}
    assert not drifted(wanted, {**found, "spec": {"args": [{"a": [1, 2]}]}})
    assert drifted(wanted, {**found, "spec": {"args": [{"a": [1, 2, 3]}]}})
