"""Monitors, alerts and dashboards: there when asked for and possible, and about metrics and labels that exist."""

import json
import re
from typing import Any

import pytest

from tests.chart.registered import metrics
from tests.chart.rendering import CHART, Body, Helm, containers, of_kind, rendered, workloads

METRIC = re.compile(r"\bkvarn_[a-z_]+")
GIVEN_LABELS = frozenset({"namespace", "pod", "model_service", "role", "pool", "le"})
"""By Prometheus, by the monitors' relabelings, and of histograms."""

DASHBOARDS = sorted((CHART / "dashboards").glob("*.json"))
KINDS = ("PodMonitor", "ServiceMonitor", "PrometheusRule")


def unknown_metrics(expression: str) -> list[str]:
    return [name for name in METRIC.findall(expression) if name not in metrics().series]


def unknown_labels(expression: str) -> set[str]:
    return used_labels(expression) - GIVEN_LABELS - metrics().labels


def used_labels(expression: str) -> set[str]:
    matched = re.findall(r"[{,]\s*([a-z_]+)\s*(?:=|!=|=~|!~)\"", expression)
    grouped = [name for group in re.findall(r"\bby \(([^)]*)\)", expression) for name in re.split(r"[,\s]+", group)]
    return {*matched, *grouped}


def alerts(bodies: tuple[Body, ...]) -> list[dict[str, Any]]:
    (rule,) = of_kind(bodies, "PrometheusRule").values()
    return [alert for group in rule["spec"]["groups"] for alert in group["rules"]]


def test_the_check_itself_finds_what_is_missing() -> None:
    assert unknown_metrics("rate(kvarn_api_requests_total[5m]) + kvarn_nonsense") == ["kvarn_nonsense"]
    wrong = ["kvarn_api_requests", "kvarn_draining_total", "kvarn_ttft_seconds"]
    assert unknown_metrics(" + ".join(wrong)) == wrong, "a series, not a stem"
    assert used_labels('sum by (pod, le) (kvarn_a{status=~"5..",role="x"})') == {"pod", "le", "status", "role"}
    assert unknown_labels('sum by (pod) (kvarn_a{status=~"5..",stauts="x"})') == {"stauts"}
    assert len(metrics().series) > 60


@pytest.mark.parametrize("values", ["everything", "tls_cert_manager"])
def test_alerts_are_about_metrics_that_exist(helm: Helm, values: str) -> None:
    found = alerts(rendered(helm, values))
    assert len(found) >= 8
    for alert in found:
        assert METRIC.search(alert["expr"]), alert["alert"]
        assert unknown_metrics(alert["expr"]) == [], alert["alert"]
        assert unknown_labels(alert["expr"]) == set(), alert["alert"]
        assert alert["expr"].count("(") == alert["expr"].count(")"), alert["alert"]
        assert alert["labels"]["severity"] in ("critical", "warning")


def test_alerts_stay_in_their_namespace(helm: Helm) -> None:
    """One Prometheus may serve several teams."""
    for alert in alerts(rendered(helm, "everything")):
        assert alert["expr"].count('namespace="serving"') == len(METRIC.findall(alert["expr"])), alert["alert"]


def test_objectives_come_from_the_values(helm: Helm) -> None:
    expressions = {alert["alert"]: alert["expr"] for alert in alerts(rendered(helm, "everything"))}
    assert expressions["KvarnTtftAboveObjective"].endswith("> 1.5")
    assert expressions["KvarnItlAboveObjective"].endswith("> 0.2")


def test_a_model_that_sleeps_is_no_alarm(helm: Helm) -> None:
    """At zero it has no worker for hours; requests that wait for it have an alert of their own."""
    zero = "models.night.spec.decode.scaling.min=0,models.dusk.spec.prefill.scaling.min=0"
    bodies = helm.template("--set", f"monitoring.prometheusRule.enabled=true,{zero}")
    (expression,) = [alert["expr"] for alert in alerts(tuple(bodies)) if alert["alert"] == "KvarnNoWorker"]
    assert 'kvarn_router_workers{namespace="serving",model_service!~"dusk|night"}' in expression
    (usual,) = [alert["expr"] for alert in alerts(rendered(helm, "everything")) if alert["alert"] == "KvarnNoWorker"]
    assert 'kvarn_router_workers{namespace="serving"}' in usual


def test_an_operator_that_is_gone_is_an_alarm(helm: Helm) -> None:
    """No operator, no series, and so no zero. Where nobody scrapes operators, the series is missing always."""
    scraped, unscraped = (
        next(alert["expr"] for alert in alerts(rendered(helm, values)) if alert["alert"] == "KvarnNoOperatorActs")
        for values in ("everything", "tls_cert_manager")
    )
    assert scraped.endswith('or absent(kvarn_operator_is_leader{namespace="serving"})')
    assert "absent" not in unscraped


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_dashboards_are_about_metrics_that_exist(path: Any) -> None:
    board = json.loads(path.read_text(encoding="utf-8"))
    expressions = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    assert len(expressions) >= 5
    for expression in expressions:
        assert unknown_metrics(expression) == [], expression
        assert unknown_labels(expression) == set(), expression
        assert expression.count("(") == expression.count(")"), expression
    queries = [variable["query"]["query"] for variable in board["templating"]["list"] if variable["type"] == "query"]
    assert [query for query in queries if unknown_metrics(query)] == []
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])


def test_dashboards_have_names_of_their_own() -> None:
    boards = [json.loads(path.read_text(encoding="utf-8")) for path in DASHBOARDS]
    assert len({board["uid"] for board in boards}) == len({board["title"] for board in boards}) == len(boards)


def test_dashboards_arrive_as_they_are(helm: Helm) -> None:
    maps = of_kind(rendered(helm, "everything"), "ConfigMap")
    for path in DASHBOARDS:
        body = maps[f"mill-dashboard-{path.stem}"]
        assert body["metadata"]["labels"]["grafana_dashboard"] == "1"
        assert json.loads(body["data"][path.name]) == json.loads(path.read_text(encoding="utf-8"))


def test_nothing_of_it_without_the_switches(helm: Helm) -> None:
    bodies = rendered(helm, "default")
    assert [body["kind"] for body in bodies if body["kind"] in KINDS] == []
    assert list(of_kind(bodies, "ConfigMap")) == ["kvarn-crds"]


def test_nothing_of_it_without_the_api(helm: Helm) -> None:
    switches = ",".join(
        f"monitoring.{name}.enabled=true" for name in ("podMonitor", "serviceMonitor", "prometheusRule")
    )
    assert [body["kind"] for body in helm.template("--set", switches, apis=()) if body["kind"] in KINDS] == []


def test_monitors_select_pods_and_ports_that_exist(helm: Helm) -> None:
    bodies = rendered(helm, "everything")
    ports = {
        pod["metadata"]["labels"]["app.kubernetes.io/component"]: {
            port["name"] for container in containers(pod) for port in container.get("ports", ())
        }
        for _, pod in workloads(bodies)
    } | {"worker": {"metrics", "grpc"}}
    monitors = [body for body in bodies if body["kind"] in ("PodMonitor", "ServiceMonitor")]
    assert len(monitors) == 8
    for body in monitors:
        component = body["spec"]["selector"]["matchLabels"]["app.kubernetes.io/component"]
        endpoints = body["spec"].get("endpoints") or body["spec"]["podMetricsEndpoints"]
        assert [endpoint["port"] for endpoint in endpoints if endpoint["port"] not in ports[component]] == []
        assert body["metadata"]["labels"]["release"] == "prometheus"
