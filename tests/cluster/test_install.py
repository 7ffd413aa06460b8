"""A release from its first minute to its last on a node that runs pods of our own images: install, use, test, upgrade,
roll back, uninstall. The tests share one release and go through its life in order.
"""

import sys
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
import torch
from kvarn_engine.model_folder import EMBEDDED_MODEL, resolve_model

from tests.cluster.support.chart_copy import LATER_FIELD, copy_of_chart, fields_of
from tests.cluster.support.cluster import Cluster, Images
from tests.cluster.support.kubectl import LOOK_S, Kubectl, Resource
from tests.cluster.support.traffic import steady_traffic
from tests.support.client import chat_body, completion_body
from tests.support.process import wait_until
from tests.support.prompts import CONVERSATIONS, TEXTS
from tests.support.reference import Reference

pytestmark = pytest.mark.model

RELEASE = "kvarn"
MODEL = "smollm2"
ROUTER = f"{MODEL}-router"
TOKENS = 24
KEYS, KEY = "who-may-ask", "a-key-that-nobody-prints"
HEADERS = {"Authorization": f"Bearer {KEY}"}
WORKERS = "app.kubernetes.io/component=worker"


@dataclass(frozen=True)
class Installed:
    cluster: Cluster
    namespace: str
    notes: str
    before: frozenset[str]
    """Every object of the namespace before the installation."""

    @property
    def kubectl(self) -> Kubectl:
        return self.cluster.kubectl(self.namespace)


@pytest.fixture(scope="module")
def installed(real_cluster: Cluster, real_namespace: str, tell: Callable[[str], None]) -> Installed:
    kubectl = real_cluster.kubectl(real_namespace)
    kubectl("wait", "--for=jsonpath={.metadata.name}=default", "serviceaccount/default", "--timeout=30s")
    kubectl("create", "secret", "generic", KEYS, f"--from-literal=api-keys={KEY}")
    before = objects(kubectl)
    began = time.monotonic()
    try:
        notes = real_cluster.helm(real_namespace).install(RELEASE, values(real_cluster.images))
    except AssertionError:
        print(kubectl.describe_all())
        raise
    tell(f"helm install --wait: serving after {time.monotonic() - began:.0f} s")
    return Installed(real_cluster, real_namespace, notes, before)


@pytest.fixture(scope="module")
def url(installed: Installed) -> Iterator[str]:
    with installed.cluster.reach(installed.namespace, ROUTER, 80) as address:
        yield address


@pytest.fixture(scope="module")
def reference() -> Reference:
    """In float32, as workers run on CPUs."""
    return Reference(resolve_model(EMBEDDED_MODEL), torch.float32)


def test_the_notes_name_what_is_there(installed: Installed) -> None:
    assert f"service/{ROUTER} 8000:80" in installed.notes
    assert installed.kubectl.get("service", ROUTER) is not None
    service = installed.kubectl.get("ms", MODEL)
    assert service is not None
    assert condition(service, "Ready") == "True"
    table = installed.kubectl("get", "ms", MODEL)
    assert "1/1" in table
    assert "Serving" in table


@pytest.mark.parametrize("text", [TEXTS[1], TEXTS[4]], ids=["short", "long"])
def test_completions_equal_the_reference(url: str, reference: Reference, text: str) -> None:
    response = httpx.post(
        f"{url}/v1/completions", json=completion_body(MODEL, text, TOKENS), headers=HEADERS, timeout=120
    )
    assert response.status_code == 200, response.text
    expected = reference.greedy(reference.encode(text), TOKENS)
    assert response.json()["choices"][0]["text"] == reference.decode(expected)


def test_a_chat_goes_through_the_hand_off(installed: Installed, url: str, reference: Reference) -> None:
    """Its prompt is longer than what decode workers prefill themselves."""
    messages = [dict(message) for message in CONVERSATIONS[-1]]
    response = httpx.post(
        f"{url}/v1/chat/completions", json=chat_body(MODEL, messages, TOKENS), headers=HEADERS, timeout=120
    )
    assert response.status_code == 200, response.text
    expected = reference.greedy(reference.encode_chat(messages), TOKENS)
    assert response.json()["choices"][0]["message"]["content"] == reference.decode(expected)
    (decode,) = installed.kubectl.list("pods", "kvarn.dev/role=decode")
    (prefill,) = installed.kubectl.list("pods", "kvarn.dev/role=prefill")
    ended = [line for line in installed.kubectl.logs(name(decode)).splitlines() if "request ended" in line]
    assert f'"prefill_worker": "{name(prefill)}"' in ended[-1]


def test_keys_and_prompts_stay_secret(installed: Installed, url: str) -> None:
    """Neither is in any log, and keys are in no object but the Secret that they were given in."""
    body = completion_body(MODEL, TEXTS[1], 1)
    for headers in ({}, {"Authorization": f"Bearer {KEY}-but-wrong"}):
        assert httpx.post(f"{url}/v1/completions", json=body, headers=headers).status_code == 401
    logs = [installed.kubectl.logs(name(pod), "--all-containers") for pod in installed.kubectl.list("pods")]
    assert all("kvarn" in log for log in logs)
    assert not any(secret in log for log in logs for secret in (KEY, TEXTS[1][:20], CONVERSATIONS[-1][0]["content"]))
    kinds = installed.kubectl("api-resources", "--namespaced", "--verbs=list", "-o", "name").split()
    shown = installed.kubectl("get", ",".join(kind for kind in kinds if kind != "secrets"), "-o", "yaml")
    assert KEYS in shown
    assert KEY not in shown


def test_pods_run_as_restricted_as_they_claim(installed: Installed) -> None:
    """What the node made of it: no root, and nowhere to write but where they must."""
    script = "import os; print(os.getuid(), os.access('/opt/kvarn', os.W_OK), os.access('/tmp', os.W_OK))"
    for pod in installed.kubectl.list("pods"):
        facts = installed.kubectl("exec", name(pod), "--", "python", "-c", script).split()
        assert facts[0] != "0"
        assert facts[1:] == ["False", "True"]


def test_helm_test_passes(installed: Installed) -> None:
    assert "Succeeded" in installed.cluster.helm(installed.namespace).test(RELEASE)


def test_the_plugin_shows_what_runs(installed: Installed) -> None:
    status = plugin(installed, "status", MODEL)
    assert f"{MODEL}  ready" in status
    rows = {cells[0]: cells for line in status.splitlines() if len(cells := line.split()) > 3}
    for pod in installed.kubectl.list("pods", WORKERS):
        assert rows[name(pod)][2] == "ready"
        assert rows[name(pod)][4:7] == ["0", "0", "0"]  # at rest; a dash: it could not be asked
    (router,) = installed.kubectl.list("pods", "app.kubernetes.io/component=router")
    assert rows[name(router)][1:] == ["ready", "0", "0"]
    assert "TTFT <= " in status


def test_the_plugin_explains_and_shows_logs(installed: Installed) -> None:
    explained = plugin(installed, "explain", MODEL)
    assert f"{MODEL}-decode: " in explained
    (decode,) = installed.kubectl.list("pods", "kvarn.dev/role=decode")
    assert any("blocks=" in line and name(decode) in line for line in explained.splitlines())
    lines = plugin(installed, "logs", MODEL, "--role", "decode", "--tail", "3").splitlines()
    assert len(lines) == 3
    assert all(line.startswith(f"{name(decode)} {{") for line in lines)


def test_the_plugin_drains_a_worker_that_is_replaced_first(installed: Installed) -> None:
    (decode,) = installed.kubectl.list("pods", "kvarn.dev/role=decode")
    assert f"{name(decode)} is gone" in plugin(installed, "drain", name(decode), "--timeout-s", "200")
    (successor,) = installed.kubectl.list("pods", "kvarn.dev/role=decode")
    assert condition(successor, "Ready") == "True"
    refused = installed.cluster.client.attempt(*plugin_command(installed, "status", "no-such-model"))
    assert refused.returncode == 2
    assert f"no ModelService no-such-model in namespace {installed.namespace}; there: {MODEL}" in refused.stderr


def test_upgrade_and_rollback(
    installed: Installed, url: str, reference: Reference, tmp_path: Path, tell: Callable[[str], None]
) -> None:
    """Every pod is replaced, twice, and clients see nothing of it."""
    cluster = installed.cluster
    if cluster.bed is None:
        pytest.skip("needs a second tag of the images, which the bed alone can make")
    following = Images(cluster.images.registry, "next", cluster.images.pull_policy)
    cluster.bed.tag_images(
        [(cluster.images.name(role), following.name(role)) for role in ("router", "worker", "operator")]
    )
    helm = cluster.helm(installed.namespace)
    expected = reference.decode(reference.greedy(reference.encode(TEXTS[1]), 8))
    with steady_traffic(url, completion_body(MODEL, TEXTS[1], 8), HEADERS) as traffic:
        began = time.monotonic()
        helm.upgrade(RELEASE, values(following), chart=copy_of_chart(tmp_path, "0.99.0"))
        wait_for_images(installed, following)
        assert LATER_FIELD in model_service_fields(installed)
        upgraded = time.monotonic()
        helm.rollback(RELEASE, 1)
        wait_for_images(installed, cluster.images)
        tell(
            f"helm upgrade: all pods new after {upgraded - began:.0f} s; rollback: {time.monotonic() - upgraded:.0f} s"
        )
    assert LATER_FIELD in model_service_fields(installed), "objects that have it would lose it"
    assert traffic.failures == []
    assert set(traffic.answers) == {expected}


def test_uninstall_leaves_the_crds_alone(installed: Installed) -> None:
    installed.cluster.helm(installed.namespace).uninstall(RELEASE)
    wait_until(lambda: not objects(installed.kubectl) - installed.before, "nothing of the release is left", 240, LOOK_S)
    cluster_wide = installed.kubectl("get", "crd,clusterrole,clusterrolebinding", "-o", "name").splitlines()
    left = [each.partition("/")[2] for each in cluster_wide if "kvarn" in each]
    assert sorted(left) == ["modelservices.kvarn.dev", "workerpools.kvarn.dev"]


def values(images: Images) -> dict[str, object]:
    """The defaults of the chart, with keys as anybody will have them."""
    return {**images.values(), "router": {"apiKeys": {"existingSecret": KEYS}}}


def model_service_fields(installed: Installed) -> Collection[str]:
    crd = installed.kubectl.get("crd", "modelservices.kvarn.dev")
    return list(fields_of(crd))


def plugin(installed: Installed, *args: str) -> str:
    return installed.cluster.client.run(*plugin_command(installed, *args))


def plugin_command(installed: Installed, *args: str) -> list[str]:
    return [sys.executable, "-m", "kvarn_cli", "k8s", *args, "--namespace", installed.namespace]


def wait_for_images(installed: Installed, images: Images) -> None:
    """Until every pod that is not on its way out runs them, and the model is settled again."""

    def settled() -> bool:
        pods = [pod for pod in installed.kubectl.list("pods") if not pod["metadata"].get("deletionTimestamp")]
        current = {pod["spec"]["containers"][0]["image"] for pod in pods}
        service = installed.kubectl.get("ms", MODEL)
        assert service is not None
        states = [condition(service, kind) for kind in ("Ready", "Progressing", "Draining")]
        return current <= {images.name(role) for role in ("router", "worker", "operator")} and states == [
            "True",
            "False",
            "False",
        ]

    try:
        wait_until(settled, f"all pods run {images.tag}", 400, LOOK_S)
    except AssertionError:
        print(installed.kubectl.describe_all())
        raise


def objects(kubectl: Kubectl) -> frozenset[str]:
    """Everything of the namespace that stays when nobody acts; events end by themselves."""
    kinds = kubectl("api-resources", "--namespaced", "--verbs=list", "-o", "name").split()
    wanted = [kind for kind in kinds if not kind.startswith("events")]
    return frozenset(kubectl("get", ",".join(wanted), "-o", "name", "--ignore-not-found").split())


def condition(resource: Resource, kind: str) -> str:
    conditions = resource.get("status", {}).get("conditions", [])
    return next((str(each["status"]) for each in conditions if each["type"] == kind), "")


def name(resource: Resource) -> str:
    return str(resource["metadata"]["name"])
