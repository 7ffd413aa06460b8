"""Nothing is lost while everything changes: a constant stream of long streamed requests against pods of our own images
on a node that runs them, while pools are scaled, pods deleted, killed and evicted, images and layouts rolled, and
operators and routers taken away. Every stream must end as it would have ended undisturbed, to the character.

One release goes through all of it in order. Its engine is the simulated one: it is deterministic, refuses blocks that
do not belong to a sequence, and makes long streams cheap. At first workers have time to FINISH their streams (long
drain timeouts); after `test_rolling_an_image` they have none, and streams must MOVE. Routers and workers know each
other by certificates. At the end the model goes to zero, where a request is not lost either: it waits, and wakes it.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path

import httpx
import pytest
from kvarn_operator.resources.labels import GRPC_PORT
from kvarn_operator.scaling.spec import Role

from tests.cluster.support.cluster import Cluster
from tests.cluster.support.kubectl import LOOK_S
from tests.cluster.support.model import names
from tests.cluster.support.served_model import (
    PROGRESS_S,
    ServedModel,
    block_size_of,
    drains,
    has_ended,
    image_of,
    role_of,
    serves,
)
from tests.cluster.support.streams import asked_at_rest, is_broken_connection, long_streams, problems
from tests.cluster.support.watched import Watched
from tests.support.certificates import make_authority
from tests.support.process import wait_until

RELEASE = "kvarn"
MODEL = "long"
CERTIFICATES = "worker-certificates"
ROUTER = f"{MODEL}-router"
CLIENTS = 6
QUESTIONS = [(160, 200), (176, 225), (192, 250), (208, 275), (224, 300)]
"""Tokens of prompt and answer. Several lengths, so that the clients do not keep step."""

PATIENT_S, HASTY_S = 90, 0
"""Drain timeouts: far longer than any stream, and none."""

STEP_S, PREFILL_TOKEN_S = 0.03, 0.003
"""So a stream takes 6 to 10 s, and its hand-off more than half a second."""

CORDONED = "node.kubernetes.io/unschedulable"
OTHER_TAG = "other"

FROM_ZERO = {"mode": "SLO", "min": 0, "max": 2}

WAKING_S = 180
"""How long routers hold requests; as the chart sets it for models that begin at zero, but for loaded machines."""

KNOCK = """
import grpc, sys
check = grpc.insecure_channel(sys.argv[1]).unary_unary("/grpc.health.v1.Health/Check")
try:
    print(check(b"", timeout=60))
except grpc.RpcError as error:
    print(error.code().name)
"""
"""gRPC without a certificate, run in a router's pod: from there the network lets it through."""


@pytest.fixture(scope="module")
def served(
    real_cluster: Cluster, real_namespace: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServedModel]:
    """Two routers and two operators over a pair of workers."""
    served = ServedModel(real_cluster, real_namespace, MODEL)
    make_certificates(served, tmp_path_factory.mktemp("authority"))
    spec = {
        "engine": {"type": "simulated", "maxBatchTokens": 64, "blockSize": 16},
        "prefill": pool(PATIENT_S),
        "decode": pool(PATIENT_S),
    }
    router = {"replicas": 2, "args": {"hold-s": WAKING_S}}
    values = {
        **real_cluster.images.values(),
        "models": {"smollm2": None, MODEL: {"spec": spec, "router": router}},
        "tls": {"enabled": True, "existingSecret": CERTIFICATES},
    }
    helm = real_cluster.helm(real_namespace)
    try:
        helm.install(RELEASE, values)
    except AssertionError:
        print(served.kubectl.describe_all())
        raise
    yield served
    if real_cluster.bed is None:
        helm.uninstall(RELEASE)
        served.kubectl.wait_until_gone("pods")  # a namespace's end would wait for half of their longest grace period


@pytest.fixture(scope="module")
def url(served: ServedModel) -> Iterator[str]:
    with served.cluster.reach(served.namespace, ROUTER, 80) as address:
        yield address


@pytest.fixture(scope="module")
def watched(served: ServedModel, url: str, tell: Callable[[str], None]) -> Iterator[Watched]:
    questions = asked_at_rest(url, MODEL, QUESTIONS)
    with long_streams(url, questions, CLIENTS) as streams:
        yield Watched(served, streams, tell)


@pytest.mark.parametrize("role", [Role.DECODE, Role.PREFILL])
def test_scaling_a_pool_up_and_down(watched: Watched, role: Role) -> None:
    with watched.change(f"{role.value} scaled 1, 3, 1") as change:
        watched.served.scale(role, 3)
        watched.served.scale(role, 1)
    assert change.moved == 0


@pytest.mark.parametrize("role", [Role.DECODE, Role.PREFILL])
def test_deleting_a_pod(watched: Watched, role: Role) -> None:
    """It finishes what it has begun."""
    watched.served.scale(role, 2)
    with watched.change(f"{role.value} pod deleted") as change:
        watched.served.delete(watched.served.busiest(role))
        watched.served.wait_for_pods(role, 2)
    assert change.moved == 0


def test_draining_the_node(watched: Watched) -> None:
    """`kubectl drain` as it is: it cordons, evicts every worker, and is refused and tries again wherever a pool's
    budget says that a successor has to serve first.

    There is one node only, so no successor could ever come: a toleration lets the workers onto a cordoned node. That
    they come up on another machine is the scheduler's part and is not shown here.
    """
    served = watched.served
    if served.cluster.bed is None:
        pytest.skip("cordons a node, which is nobody's but the bed's")
    (node,) = {pod["spec"]["nodeName"] for pod in served.model.pods()}
    old = {pod["metadata"]["uid"] for pod in served.model.pods()}
    flags = (f"--pod-selector=kvarn.dev/model-service={MODEL},kvarn.dev/role", "--delete-emptydir-data")
    with watched.change("node drained of 2 + 2 workers") as change:
        try:
            done = served.kubectl.attempt("drain", node, *flags, f"--timeout={PROGRESS_S}s")
        finally:
            served.kubectl("uncordon", node)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "would violate the pod's disruption budget" in done.stdout + done.stderr
        for role in Role:
            served.wait_for_pods(role, 2)
    assert old.isdisjoint(pod["metadata"]["uid"] for pod in served.model.pods())
    assert change.moved == 0


def test_killing_the_operators_amid_a_scale_down(watched: Watched) -> None:
    served = watched.served
    operators = "app.kubernetes.io/component=operator"
    with watched.change("operators killed amid decode scaled 2, 1") as change:
        served.model.scale(Role.DECODE, 1)
        wait_until(lambda: any(map(drains, served.pods_of(Role.DECODE))), "a decode pod drains", PROGRESS_S, LOOK_S)
        served.kubectl("delete", "pod", "-l", operators, "--force", "--grace-period=0")
        assert any(map(drains, served.pods_of(Role.DECODE))), "it was over before the operators were gone"
        served.wait_for_pods(Role.DECODE, 1)
    assert change.moved == 0


def test_rolling_an_image(watched: Watched) -> None:
    """Taken back halfway, and then carried through. The time that a pod gives its streams is the one it began with, so
    the shorter one does not matter yet."""
    served, images = watched.served, watched.served.cluster.images
    if served.cluster.bed is None:
        pytest.skip("needs a second tag of the worker image, which the bed alone can make")
    other = f"{images.registry}/kvarn-worker:{OTHER_TAG}"
    served.cluster.bed.tag_images([(images.name("worker"), other)])
    with watched.change("image rolled back halfway") as change:
        served.change({role.value: {"template": {"image": other}} for role in Role})
        wait_until(partial(runs_both, served, {images.name("worker"), other}), "old and new serve", PROGRESS_S, LOOK_S)
        served.change({role.value: {"template": {"image": None}} for role in Role})
        wait_for_images(watched, images.name("worker"))
    assert change.moved == 0
    with watched.change("image rolled") as change:
        hasty = {"drain": {"timeoutSeconds": HASTY_S}, "template": {"image": other}}
        served.change({role.value: hasty for role in Role})
        wait_for_images(watched, other)
    assert change.moved == 0


def test_changing_the_layout(watched: Watched) -> None:
    """Blocks of 32 tokens cannot go to where blocks have 16. A whole pair of one of them serves at every look."""
    served = watched.served
    with watched.change("blockSize 16, 32, no time to drain"):
        served.change({"engine": {"blockSize": 32}})
        wait_until(partial(pairs_only_with, served, 32), "only pairs of the new layout", PROGRESS_S, pause_s=0.2)
        wait_until_settled(watched)


def test_scaling_down_without_time(watched: Watched) -> None:
    watched.served.scale(Role.DECODE, 2)
    with watched.change("decode scaled 2, 1, no time to drain"):
        watched.served.scale(Role.DECODE, 1)


@pytest.mark.parametrize("role", [Role.DECODE, Role.PREFILL])
def test_deleting_a_pod_by_force(watched: Watched, role: Role) -> None:
    """The pod object is gone at once; the kubelet ends the process."""
    served = watched.served
    served.scale(role, 2)
    with watched.change(f"{role.value} pod deleted by force") as change:
        served.delete(served.busiest(role), "--grace-period=0", "--force")
        served.wait_for_pods(role, 2)
    assert (change.moved > 0) == (role is Role.DECODE)


@pytest.mark.parametrize("role", [Role.DECODE, Role.PREFILL])
def test_killing_a_worker(watched: Watched, role: Role) -> None:
    """No warning at all: SIGKILL to the process, which the kubelet starts again in the same pod."""
    served = watched.served
    if served.cluster.bed is None:
        pytest.skip("needs the machine that the node runs on")
    with watched.change(f"{role.value} process killed") as change:
        served.kill_process(served.busiest(role))
        wait_until(partial(has_restarted, served, role), f"a {role.value} pod starts again", PROGRESS_S, LOOK_S)
        served.wait_for_pods(role, 2)
    assert (change.moved > 0) == (role is Role.DECODE)


def test_deleting_a_router(watched: Watched) -> None:
    """It leaves the Service, and its answers run to their end."""
    served = watched.served
    victim = max(served.routers(), key=served.answering)
    with watched.change("router deleted"):
        served.delete(victim)
        wait_until(lambda: victim not in served.routers(), "the router is on its way out", pause_s=LOOK_S)
        served.kubectl("rollout", "status", f"deployment/{ROUTER}", f"--timeout={PROGRESS_S}s")
        wait_until(partial(has_gone, served, victim), "the router has ended", PROGRESS_S, LOOK_S)


def test_every_stream_ended_whole(watched: Watched) -> None:
    streams = watched.streams
    streams.stop()
    wait_until(lambda: all(stream.is_over for stream in streams.all), "the last streams end", 120)
    assert problems(streams.all) == []
    assert sum(change.moved for change in watched.changes) > 0
    tokens = sum(stream.tokens for stream in streams.all)
    watched.tell(f"in all: {len(streams.all)} streams, {tokens} tokens, no failure")


def test_killing_a_router(served: ServedModel, url: str, watched: Watched) -> None:
    """It breaks the connections that it holds, whatever anyone does, and its clients see just that: no answer ends as
    if it were whole. What the other router holds goes on, and no worker works on for clients that are gone."""
    if served.cluster.bed is None:
        pytest.skip("needs the machine that the node runs on")
    with long_streams(url, watched.streams.questions, CLIENTS) as streams:
        first = streams.wait_under_way()
        served.kill_process(max(served.routers(), key=served.answering))
        wait_until(lambda: all(stream.is_over for stream in first), "the streams that it met end", 120)
        streams.stop()
        wait_until(lambda: all(stream.is_over for stream in streams.all), "the last streams end", 120)
    assert any(stream.problem for stream in first)
    assert [each for each in problems(streams.all) if not is_broken_connection(each)] == []
    served.kubectl("rollout", "status", f"deployment/{ROUTER}", f"--timeout={PROGRESS_S}s")
    workers = names(served.workers())
    wait_until(lambda: sum(map(served.in_flight, workers)) == 0, "no worker works any more", 60, LOOK_S)


def test_workers_talk_to_nobody_without_a_certificate(served: ServedModel) -> None:
    """That they talk at all, and to whom they should, is what the streams above were."""
    for worker in served.workers():
        address = f"{worker['status']['podIP']}:{GRPC_PORT}"
        answer = served.kubectl("exec", served.routers()[0], "--", "python", "-c", KNOCK, address)
        assert answer.strip() == "UNAVAILABLE"


def test_a_model_at_zero_is_woken_by_a_request(
    served: ServedModel, url: str, watched: Watched, tell: Callable[[str], None]
) -> None:
    """The next request waits at the router until both pools are there again."""
    question = watched.streams.questions[0]
    for role in Role:
        served.model.scale(role, 0)
    wait_until(lambda: not served.workers(), "no worker is left", PROGRESS_S, LOOK_S)
    assert all(map(served.is_ready, served.routers())), "their Service would send them nothing that could wake it"
    served.change({role.value: {"scaling": FROM_ZERO} for role in Role})
    began = time.monotonic()
    response = httpx.post(f"{url}/v1/completions", json=question.body, timeout=PROGRESS_S)
    tell(f"model at zero: its first request answered after {time.monotonic() - began:.0f} s")
    assert response.status_code == 200, response.text
    assert response.json()["choices"][0]["text"] == question.text


def make_certificates(served: ServedModel, folder: Path) -> None:
    """One for all, as the chart wants it."""
    files = make_authority(folder, "authority").issue(folder / "issued")
    paths = (files.tls_cert_file, files.tls_key_file, files.tls_ca_file)
    served.kubectl("create", "secret", "generic", CERTIFICATES, *(f"--from-file={path}" for path in paths))


def pool(drain_s: float) -> Mapping[str, object]:
    costs = {"simulated-step-s": STEP_S, "simulated-prefill-token-s": PREFILL_TOKEN_S}
    template = {
        "args": {flag: str(value) for flag, value in costs.items()},
        "tolerations": [{"key": CORDONED, "operator": "Exists", "effect": "NoSchedule"}],
    }
    return {"drain": {"timeoutSeconds": drain_s}, "template": template}


def runs_both(served: ServedModel, images: set[str]) -> bool:
    """Some pool has a serving pod of each image."""
    serving = {role: {image_of(pod) for pod in served.pods_of(role) if serves(pod)} for role in Role}
    return images in serving.values()


def wait_for_images(watched: Watched, image: str) -> None:
    def alike() -> bool:
        return {image_of(pod) for role in Role for pod in watched.served.pods_of(role)} == {image}

    wait_until(alike, f"all workers run {image}", PROGRESS_S, LOOK_S)
    wait_until_settled(watched)


def wait_until_settled(watched: Watched) -> None:
    for role in Role:
        wanted = int(watched.served.model.pool(role)["spec"]["replicas"])
        watched.served.wait_for_pods(role, wanted)


def pairs_only_with(served: ServedModel, block_size: int) -> bool:
    pods = served.workers()
    sizes = [{block_size_of(pod) for pod in pods if role_of(pod) is role and serves(pod)} for role in Role]
    assert set.intersection(*sizes), f"no pair serves: {sizes}"
    return {block_size_of(pod) for pod in pods} == {block_size}


def has_gone(served: ServedModel, name: str) -> bool:
    pod = served.kubectl.get("pod", name)
    return pod is None or has_ended(pod)


def has_restarted(served: ServedModel, role: Role) -> bool:
    pods = served.pods_of(role)
    return any(each["restartCount"] > 0 for pod in pods for each in pod["status"].get("containerStatuses", []))
