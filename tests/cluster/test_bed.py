"""The bed itself: what other cluster tests take for granted."""

import json

import httpx

from tests.cluster.support.cluster import Cluster
from tests.cluster.support.kubectl import LOOK_S
from tests.support.process import wait_until


def sleeper(name: str, image: str, **metadata: object) -> dict[str, object]:
    container = {
        "name": "main",
        "image": image,
        "imagePullPolicy": "Never",
        "command": ["python", "-m", "http.server", "8000", "--directory", "/opt/kvarn/models"],
        "ports": [{"containerPort": 8000}],
        "resources": {"limits": {"nvidia.com/gpu": "8"}} if metadata.pop("gpus", None) else {},
        "readinessProbe": {"httpGet": {"path": "/", "port": 8000}, "periodSeconds": 1},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
    }
    spec = {
        "containers": [container],
        "terminationGracePeriodSeconds": 5,
        "securityContext": {"runAsNonRoot": True, "runAsUser": 1_234_567, "seccompProfile": {"type": "RuntimeDefault"}},
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": name}, **metadata},
        "spec": spec,
    }


def test_fake_nodes_hold_no_more_gpus_than_they_have(fake_cluster: Cluster, fake_namespace: str) -> None:
    kubectl = fake_cluster.kubectl(fake_namespace)
    nodes = kubectl.list("nodes")
    assert {node["status"]["allocatable"]["nvidia.com/gpu"] for node in nodes} == {"8"}
    pods = [sleeper(f"pod-{index}", "localhost/nothing:1", gpus=True) for index in range(len(nodes) + 1)]
    kubectl.apply(*pods)
    wait_until(
        lambda: [_is_ready(pod) for pod in kubectl.list("pods")].count(True) == len(nodes), "full nodes", pause_s=LOOK_S
    )
    (waiting,) = [pod for pod in kubectl.list("pods") if not _is_ready(pod)]
    assert waiting["status"]["phase"] == "Pending"


def test_a_fake_pod_ends_as_slowly_as_it_was_told(fake_cluster: Cluster, fake_namespace: str) -> None:
    kubectl = fake_cluster.kubectl(fake_namespace)
    kubectl.apply(sleeper("slow", "localhost/nothing:1", annotations={"kvarn-bed/delete-delay-s": "60"}))
    kubectl("wait", "--for=condition=Ready", "pod/slow", "--timeout=30s")
    kubectl("delete", "pod", "slow", "--wait=false", "--grace-period=120")
    pod = kubectl.get("pod", "slow")
    assert pod is not None
    assert pod["metadata"]["deletionTimestamp"]
    assert _is_ready(pod)
    kubectl("delete", "pod", "slow", "--grace-period=0", "--force")
    kubectl.wait_until_gone("pods", "app=slow")


def test_the_api_server_comes_back(fake_cluster: Cluster) -> None:
    assert fake_cluster.bed is not None
    kubectl = fake_cluster.kubectl()
    before = fake_cluster.bed.pid("apiserver")
    fake_cluster.bed.restart("apiserver")
    wait_until(
        lambda: kubectl.attempt("get", "--raw", "/readyz").returncode == 0, "the API server is ready", 120, LOOK_S
    )
    assert fake_cluster.bed.pid("apiserver") != before
    assert kubectl.list("nodes")


def test_a_service_of_the_real_node_is_reached(real_cluster: Cluster, real_namespace: str) -> None:
    """By name from inside and by address from here, as a random user on a read-only root."""
    kubectl = real_cluster.kubectl(real_namespace)
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "library"},
        "spec": {"selector": {"app": "files"}, "ports": [{"port": 80, "targetPort": 8000, "protocol": "TCP"}]},
    }
    kubectl.apply(sleeper("files", real_cluster.images.name("router")), service)
    kubectl("wait", "--for=condition=Ready", "pod/files", "--timeout=120s")
    with real_cluster.reach(real_namespace, "library", 80) as url:
        found = httpx.get(f"{url}/smollm2-135m/tokenizer.json", timeout=30)
    assert "model" in json.loads(found.text)
    script = "import os, urllib.request as r; print(os.getuid(), r.urlopen('http://library', timeout=20).status)"
    command = ("exec", "files", "--", "python", "-c", script)
    # The node's rules follow the endpoints, and those follow the pod's readiness.
    wait_until(lambda: kubectl.attempt(*command).returncode == 0, "the Service is reached by its name", pause_s=LOOK_S)
    assert kubectl(*command).split() == ["1234567", "200"]


def _is_ready(pod: object) -> bool:
    assert isinstance(pod, dict)
    conditions = pod["status"].get("conditions", [])
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)
