"""The escape hatch: what it may change, and what it may not."""

import copy
from typing import Any

import pytest
from kvarn_operator.objects.overlay import overlaid
from kvarn_operator.resources.pool_template import PodTemplate

from tests.unit.operator.objects.object_builders import environment, mounts, pod, spec, worker


def overlay(template: Any) -> Any:
    return pod(spec(PodTemplate(pod_template=template)))


def test_maps_merge_by_key_and_null_takes_away() -> None:
    security = {"fsGroup": 7, "seccompProfile": None}
    found = overlay({"spec": {"securityContext": security, "dnsPolicy": "Default", "priority": None}})["spec"]
    assert found["securityContext"] == {"runAsNonRoot": True, "fsGroup": 7}
    assert found["dnsPolicy"] == "Default"
    assert "priority" not in found


def test_named_things_merge_by_name_and_new_ones_follow() -> None:
    sidecar = {"name": "proxy", "image": "proxy:1"}
    override = {"name": "worker", "env": [{"name": "HOME", "value": "/h"}, {"name": "X", "value": "1"}], "tty": True}
    body = overlay(
        {"spec": {"containers": [sidecar, override], "volumes": [{"name": "tmp", "emptyDir": {"medium": "Memory"}}]}}
    )
    assert [each["name"] for each in body["spec"]["containers"]] == ["worker", "proxy"]
    assert worker(body)["tty"] is True
    assert environment(body)["X"] == "1"
    assert environment(body)["HOME"] == "/h"
    assert environment(body)["KVARN_CACHE"] == "/cache"
    assert body["spec"]["volumes"][0] == {"name": "tmp", "emptyDir": {"sizeLimit": "1Gi", "medium": "Memory"}}


def test_mounts_merge_by_path() -> None:
    given = [{"name": "tmp", "mountPath": "/scratch"}, {"name": "cache", "mountPath": "/cache", "subPath": "m"}]
    found = mounts(overlay({"spec": {"containers": [{"name": "worker", "volumeMounts": given}]}}))
    assert list(found) == ["/tmp", "/cache", "/scratch"]
    assert found["/cache"] == {"name": "cache", "mountPath": "/cache", "subPath": "m"}


def test_other_lists_are_replaced() -> None:
    constraint = {"maxSkew": 1, "topologyKey": "rack", "whenUnsatisfiable": "DoNotSchedule"}
    assert overlay({"spec": {"topologySpreadConstraints": [constraint]}})["spec"]["topologySpreadConstraints"] == [
        constraint
    ]


@pytest.mark.parametrize(
    "template",
    [
        {"metadata": {"name": "x", "namespace": "y", "ownerReferences": [], "finalizers": ["z"], "generateName": "g"}},
        {"metadata": {"labels": {"kvarn.dev/pool": "x", "app.kubernetes.io/component": "y"}}},
        {"metadata": {"annotations": {"kvarn.dev/draining": "now", "controller.kubernetes.io/pod-deletion-cost": "1"}}},
        {"spec": {"enableServiceLinks": True, "restartPolicy": "Never", "terminationGracePeriodSeconds": 0}},
        {"spec": {"containers": [{"name": "worker", "command": ["sh"], "args": ["x"], "image": "y"}]}},
        {"spec": {"containers": [{"name": "worker", "ports": [{"name": "grpc", "containerPort": 1}]}]}},
        {"spec": {"containers": [{"name": "worker", "ports": None, "command": None}]}},
        {"spec": {"containers": [{"name": "worker", "env": [{"name": "POD_NAME", "value": "x"}]}]}},
        {"spec": {"containers": None}},
        {"spec": None, "metadata": None},
        {},
    ],
)
def test_what_the_operator_relies_on_stays(template: Any) -> None:
    found, plain = overlay(template), pod(spec())
    names = (found["metadata"].pop("name"), plain["metadata"].pop("name"))
    revisions = (
        found["metadata"]["labels"].pop("kvarn.dev/revision"),
        plain["metadata"]["labels"].pop("kvarn.dev/revision"),
    )
    assert found == plain
    assert [name.split("-")[-2] for name in names] == list(revisions)


def test_a_port_may_be_added() -> None:
    more = {"name": "debug", "containerPort": 9}
    found = worker(overlay({"spec": {"containers": [{"name": "worker", "ports": [more]}]}}))["ports"]
    assert found == [*worker(pod())["ports"], more]


def test_metadata_may_be_added() -> None:
    metadata = overlay({"metadata": {"labels": {"team": "a"}, "annotations": {"note": "b"}}})["metadata"]
    assert (metadata["labels"]["team"], metadata["annotations"]["note"]) == ("a", "b")


def test_the_built_pod_is_not_changed() -> None:
    built = pod()
    before = copy.deepcopy(built)
    template = {"spec": {"containers": [{"name": "worker", "tty": True, "env": [{"name": "HOME", "value": "/h"}]}]}}
    assert overlaid(built, template) != before
    assert built == before
