"""What the API server says of a pod, and what the router makes of it."""

import pytest
from kvarn_operator.resources import labels
from kvarn_router.discovery.pod_set import DRAINING_ANNOTATION, POOL_LABEL, PodSet, endpoint_of
from kvarn_router.settings import DiscoverySettings

from tests.support.fake_pods import make_pod


def annotated(annotations: object) -> dict[str, object]:
    pod = make_pod("a", 7000)
    pod["metadata"]["annotations"] = annotations  # type: ignore[index]
    return pod


def test_strings_are_those_of_the_operator() -> None:
    assert DRAINING_ANNOTATION == labels.DRAINING_ANNOTATION
    assert POOL_LABEL == labels.POOL_LABEL
    assert DiscoverySettings().workers_port_name == labels.GRPC_PORT_NAME


@pytest.mark.parametrize(
    ("found", "worker_id"), [({labels.POOL_LABEL: "p"}, "pod-a"), ({"app": "w"}, None), (None, None)]
)
def test_a_pod_of_the_operator_says_who_must_answer_there(found: object, worker_id: str | None) -> None:
    pod = make_pod("a", 7000)
    pod["metadata"]["labels"] = found  # type: ignore[index]
    endpoint = endpoint_of(pod, "grpc")
    assert endpoint is not None
    assert endpoint.worker_id == worker_id


@pytest.mark.parametrize(
    ("annotations", "draining"),
    [
        (None, False),
        ({}, False),
        ({"other": "x"}, False),
        ({labels.DRAINING_ANNOTATION: "2030-01-01T00:00:00Z"}, True),
        ({labels.DRAINING_ANNOTATION: ""}, True),
    ],
)
def test_a_marked_pod_gets_no_new_work(annotations: object, draining: bool) -> None:
    endpoint = endpoint_of(annotated(annotations), "grpc")
    assert endpoint is not None
    assert endpoint.draining is draining


def test_the_mark_is_seen_with_the_event_and_gone_with_the_next() -> None:
    pods = PodSet("grpc")
    pods.reset([make_pod("a", 7000)], "1")
    seen = []
    for version, annotations in (("2", {labels.DRAINING_ANNOTATION: "now"}), ("3", {})):
        pod = annotated(annotations)
        pod["metadata"]["resourceVersion"] = version  # type: ignore[index]
        pods.apply("MODIFIED", pod)
        seen += [endpoint.draining for endpoint in pods.endpoints]
    assert seen == [True, False]
