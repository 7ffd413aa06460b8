"""NetworkPolicies: every pod is covered, and what may reach what is what the design says."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pytest

from tests.chart.rendering import NAMESPACE, Body, Helm, of_kind, rendered, workloads


@dataclass(frozen=True)
class Pod:
    labels: Mapping[str, str]
    ports: Mapping[str, int]
    """Those that it serves, by name."""


def worker(model: str, role: str) -> Pod:
    """As the operator labels it."""
    labels = {
        "kvarn.dev/model-service": model,
        "kvarn.dev/role": role,
        "app.kubernetes.io/component": "worker",
        "app.kubernetes.io/part-of": "kvarn",
    }
    return Pod(labels, {"grpc": 7000, "metrics": 7001})


def chart_pods(bodies: tuple[Body, ...]) -> Iterator[tuple[str, Pod]]:
    for _, pod in workloads(bodies):
        labels = pod["metadata"]["labels"]
        ports = {port["name"]: port["containerPort"] for port in pod["spec"]["containers"][0].get("ports", ())}
        model = labels.get("kvarn.dev/model-service")
        component = labels["app.kubernetes.io/component"]
        yield f"{model}/{component}" if model else component, Pod(labels, ports)


@pytest.fixture
def everything(helm: Helm) -> tuple[Body, ...]:
    return rendered(helm, "everything")


@pytest.fixture
def pods(everything: tuple[Body, ...]) -> dict[str, Pod]:
    models = of_kind(everything, "ModelService")
    workers = {f"{model}/{role}": worker(model, role) for model in models for role in ("prefill", "decode")}
    return {**dict(chart_pods(everything)), **workers}


def matches(selector: Mapping[str, object], labels: Mapping[str, str]) -> bool:
    wanted = selector.get("matchLabels", {})
    assert isinstance(wanted, Mapping)
    expressions = selector.get("matchExpressions", [])
    assert isinstance(expressions, list)
    assert all(each["operator"] == "Exists" for each in expressions)
    has = all(each["key"] in labels for each in expressions)
    return has and all(labels.get(key) == value for key, value in wanted.items())


def policies_of(bodies: tuple[Body, ...], pod: Pod) -> list[Body]:
    policies = of_kind(bodies, "NetworkPolicy").values()
    return [policy for policy in policies if matches(policy["spec"]["podSelector"], pod.labels)]


def allows(rules: list[Body], direction: str, peer: Pod, port: int) -> bool:
    """Whether a pod of the same namespace is let through on a port."""
    for rule in rules:
        numbers = [each["port"] for each in rule.get("ports", ())]
        peers = rule.get(direction)
        open_to_peer = peers is None or any(
            matches(each["podSelector"], peer.labels)
            for each in peers
            if "podSelector" in each and each.get("namespaceSelector", {}) == {}
        )
        if open_to_peer and (not numbers or port in numbers):
            return True
    return False


def reaches(bodies: tuple[Body, ...], source: Pod, target: Pod, port: int) -> bool:
    out = [rule for policy in policies_of(bodies, source) for rule in policy["spec"]["egress"]]
    into = [rule for policy in policies_of(bodies, target) for rule in policy["spec"]["ingress"]]
    return allows(out, "to", target, port) and allows(into, "from", source, port)


def test_every_pod_is_covered_in_both_directions(helm: Helm, values: str) -> None:
    bodies = rendered(helm, values)
    models = of_kind(bodies, "ModelService")
    pods = [*chart_pods(bodies), *((name, worker(name, role)) for name in models for role in ("prefill", "decode"))]
    for name, pod in pods:
        policies = policies_of(bodies, pod)
        assert {kind for policy in policies for kind in policy["spec"]["policyTypes"]} == {"Ingress", "Egress"}, name
        assert {policy["metadata"]["namespace"] for policy in policies} == {NAMESPACE}


PORTS = (7000, 7001, 8080, 8081, 8082)
"""gRPC and metrics of workers, HTTP of routers, probes and metrics of the operator."""


def test_pods_reach_each_other_as_they_must_and_no_further(
    everything: tuple[Body, ...], pods: Mapping[str, Pod]
) -> None:
    """KV goes between the pools of one model alone; metrics are for operator and test, beside `monitoring`."""
    models = of_kind(everything, "ModelService")
    routed = [name for name in models if f"{name}/router" in pods]
    wanted = {(f"{name}/decode", f"{name}/prefill", 7000) for name in models}
    wanted |= {("operator", f"{name}/{role}", 7001) for name in models for role in ("prefill", "decode")}
    for name in routed:
        wanted |= {(source, f"{name}/router", 8080) for source in ("operator", f"{name}/test")}
        wanted |= {(f"{name}/router", f"{name}/{role}", 7000) for role in ("prefill", "decode")}
        wanted |= {(f"{name}/test", f"{name}/{role}", 7001) for role in ("prefill", "decode")}
    assert len(wanted) == 4 * 3 + 3 * 6
    assert all(port in pods[target].ports.values() for _, target, port in wanted)
    assert wanted == {
        (source, target, port)
        for source in pods
        for target in pods
        for port in PORTS
        if reaches(everything, pods[source], pods[target], port)
    }


def outside(bodies: tuple[Body, ...], pod: Pod) -> set[tuple[str, int]]:
    """Address ranges and ports that a pod may reach."""
    rules = [rule for policy in policies_of(bodies, pod) for rule in policy["spec"]["egress"]]
    return {
        (peer["ipBlock"]["cidr"], port["port"])
        for rule in rules
        for peer in rule.get("to", ())
        if "ipBlock" in peer
        for port in rule["ports"]
    }


def test_what_each_pod_reaches_outside(everything: tuple[Body, ...], pods: Mapping[str, Pod]) -> None:
    """The API server by those that ask it, downloads where a model is downloaded, names by all."""
    server, downloads = ("10.1.0.0/24", 6443), ("192.0.2.0/24", 443)
    found = {name: outside(everything, pod) for name, pod in pods.items()}
    asks = {"operator", "crds", *(name for name in pods if name.endswith("/router"))}
    assert {name for name, ranges in found.items() if server in ranges} == asks
    assert {name for name, ranges in found.items() if downloads in ranges} == {
        f"packed/{part}" for part in ("router", "prefill", "decode")
    }
    assert set().union(*found.values()) == {server, downloads}
    dns = {(5353, "UDP"), (5353, "TCP"), (53, "UDP"), (53, "TCP")}
    for name, pod in pods.items():
        rules = [rule for policy in policies_of(everything, pod) for rule in policy["spec"]["egress"]]
        open_ports = [rule["ports"] for rule in rules if "to" not in rule]
        assert [{(each["port"], each["protocol"]) for each in ports} for ports in open_ports] == [dns], name


def test_prometheus_reads_every_process(everything: tuple[Body, ...], pods: Mapping[str, Pod]) -> None:
    """The peers of `networkPolicy.monitoring`, at the port of each kind and at no other."""
    prometheus = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}
    found = {
        (name, port["port"])
        for name, pod in pods.items()
        for policy in policies_of(everything, pod)
        for rule in policy["spec"]["ingress"]
        if prometheus in rule.get("from", ())
        for port in rule["ports"]
    }
    wanted = {(name, 8080) for name in pods if name.endswith("/router")} | {("operator", 8082)}
    wanted |= {(name, 7001) for name in pods if name.endswith(("/prefill", "/decode"))}
    assert found == wanted


def test_ports_are_numbers_and_known(everything: tuple[Body, ...]) -> None:
    """Some network plug-ins do not know the names of pods' ports, and drop what they do not know."""
    rules = [
        rule
        for policy in of_kind(everything, "NetworkPolicy").values()
        for rule in (*policy["spec"]["ingress"], *policy["spec"]["egress"])
    ]
    assert {port["port"] for rule in rules for port in rule["ports"]} == {7000, 7001, 8080, 8082, 6443, 443, 53, 5353}


def test_routers_hear_operator_and_test_beside_the_clients(
    everything: tuple[Body, ...], pods: Mapping[str, Pod]
) -> None:
    found = {source for source, pod in pods.items() if reaches(everything, pod, pods["packed/router"], 8080)}
    assert found == {"operator", "packed/test"}
    (rule,) = of_kind(everything, "NetworkPolicy")["packed-router"]["spec"]["ingress"]
    named = [peer for peer in rule["from"] if "podSelector" not in peer]
    assert [peer["namespaceSelector"]["matchLabels"]["kubernetes.io/metadata.name"] for peer in named] == [
        "ingress",
        "monitoring",
    ]


def test_routers_are_open_by_default(helm: Helm) -> None:
    (rule,) = of_kind(rendered(helm, "default"), "NetworkPolicy")["smollm2-router"]["spec"]["ingress"]
    assert rule == {"ports": [{"port": 8080, "protocol": "TCP"}]}


def test_policies_can_be_switched_off(helm: Helm) -> None:
    assert of_kind(helm.template("--set", "networkPolicy.enabled=false"), "NetworkPolicy") == {}
