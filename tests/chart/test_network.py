"""NetworkPolicies: every pod is covered, and what may reach what is what the design says."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pytest

from tests.chart.rendering import NAMESPACE, Body, Helm, of_kind, rendered, workloads


@dataclass(frozen=True)
class Pod:
    labels: Mapping[str, str]
    ports: Mapping[str, int]
    """By name."""


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


def allows(rules: list[Body], direction: str, peer: Pod, port: int, names: Mapping[str, int]) -> bool:
    """Whether a pod of the same namespace is let through on a port, which `names` may be called by name."""
    for rule in rules:
        numbers = [names.get(each["port"], each["port"]) for each in rule.get("ports", ())]
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
    sends = allows(out, "to", target, port, target.ports)
    return sends and allows(into, "from", source, port, target.ports)


def test_every_pod_is_covered_in_both_directions(helm: Helm, values: str) -> None:
    bodies = rendered(helm, values)
    models = of_kind(bodies, "ModelService")
    pods = [*chart_pods(bodies), *((name, worker(name, role)) for name in models for role in ("prefill", "decode"))]
    for name, pod in pods:
        policies = policies_of(bodies, pod)
        assert {kind for policy in policies for kind in policy["spec"]["policyTypes"]} == {"Ingress", "Egress"}, name
        assert {policy["metadata"]["namespace"] for policy in policies} == {NAMESPACE}


def test_kv_goes_from_prefill_to_decode_of_one_model_alone(
    everything: tuple[Body, ...], pods: Mapping[str, Pod]
) -> None:
    found = {
        (source, target)
        for target in ("packed/prefill", "packed/decode")
        for source, pod in pods.items()
        if reaches(everything, pod, pods[target], 7000)
    }
    assert found == {
        ("packed/router", "packed/prefill"),
        ("packed/router", "packed/decode"),
        ("packed/decode", "packed/prefill"),
    }


def test_metrics_are_for_operator_and_test(everything: tuple[Body, ...], pods: Mapping[str, Pod]) -> None:
    found = {source for source, pod in pods.items() if reaches(everything, pod, pods["packed/decode"], 7001)}
    assert found == {"operator", "packed/test"}


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
    assert rule == {"ports": [{"port": "http", "protocol": "TCP"}]}


def test_only_what_downloads_reaches_out(everything: tuple[Body, ...]) -> None:
    policies = of_kind(everything, "NetworkPolicy")
    out = {
        name
        for name, policy in policies.items()
        for rule in policy["spec"]["egress"]
        for peer in rule.get("to", ())
        if peer.get("ipBlock", {}).get("cidr") == "192.0.2.0/24"
    }
    assert out == {"packed-router", "packed-prefill", "packed-decode"}


def test_policies_can_be_switched_off(helm: Helm) -> None:
    assert of_kind(helm.template("--set", "networkPolicy.enabled=false"), "NetworkPolicy") == {}
