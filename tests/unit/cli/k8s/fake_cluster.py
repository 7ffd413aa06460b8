"""A cluster as the `k8s` commands see it, held in memory."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from kvarn_cli.k8s.cluster import ClusterError, Json, NotThere


@dataclass
class FakeCluster:
    namespace: str = "ml"
    service_list: list[Json] = field(default_factory=list)
    pool_list: list[Json] = field(default_factory=list)
    pod_list: list[dict[str, Any]] = field(default_factory=list)
    pages: dict[tuple[str, int, str], str] = field(default_factory=dict)
    logs: dict[str, list[str]] = field(default_factory=dict)
    installed: bool = True

    def services(self) -> list[Json]:
        if not self.installed:
            raise NotThere("404")
        return self.service_list

    def pools(self, service: str) -> list[Json]:
        return self.pool_list

    def pods(self, service: str) -> list[Json]:
        return list(self.pod_list)

    def pod(self, name: str) -> Json:
        for pod in self.pod_list:
            if pod["metadata"]["name"] == name:
                return pod
        raise NotThere(name)

    def page(self, pod: str, port: int, path: str) -> str:
        try:
            return self.pages[pod, port, path]
        except KeyError:
            raise ClusterError("no route") from None

    def annotate(self, pod: str, annotations: Mapping[str, str | None]) -> None:
        held = self.pod(pod)["metadata"].setdefault("annotations", {})
        for key, value in annotations.items():
            if value is None:
                held.pop(key, None)
            else:
                held[key] = value

    def log_lines(self, pod: str, follow: bool, tail: int) -> Iterator[str]:
        yield from self.logs[pod][-tail:]


def service(name: str = "smollm2", ready: str = "True", **conditions: str) -> Json:
    told = {"Ready": ready, **conditions}
    items = [
        {"type": kind, "status": status, "reason": f"{kind}Reason", "message": f"about {kind}"}
        for kind, status in told.items()
    ]
    spec = {"model": {"source": {"hub": {"id": "org/m"}}}, "slo": {"ttftMs": 500, "itlMs": 50, "percentile": 90}}
    return {"metadata": {"name": name}, "spec": spec, "status": {"conditions": items}}


def pool(role: str, replicas: int = 2, ready: int = 1, decisions: tuple[Json, ...] = ()) -> Json:
    return {
        "metadata": {"name": f"smollm2-{role}"},
        "spec": {"role": role, "replicas": replicas, "scaling": {"mode": "SLO"}},
        "status": {"readyReplicas": ready, "updatedReplicas": ready, "decisions": list(decisions)},
    }


def worker(name: str, role: str = "decode", ready: bool = True) -> dict[str, Any]:
    labels = {
        "app.kubernetes.io/component": "worker",
        "kvarn.dev/role": role,
        "kvarn.dev/pool": f"smollm2-{role}",
        "kvarn.dev/revision": "abc",
    }
    conditions = [{"type": "Ready", "status": "True" if ready else "False"}]
    return {
        "metadata": {"name": name, "uid": f"uid-{name}", "labels": labels},
        "spec": {"nodeName": "node1"},
        "status": {"phase": "Running", "conditions": conditions},
    }


def router(name: str = "smollm2-router-1") -> dict[str, Any]:
    pod = worker(name)
    pod["metadata"]["labels"] = {"app.kubernetes.io/component": "router"}
    return pod


WORKER_PAGE = """
kvarn_requests_in_flight 7.0
kvarn_running_requests 5.0
kvarn_waiting_requests 2.0
kvarn_kv_blocks{state="in_use"} 30.0
kvarn_kv_blocks{state="cached"} 20.0
kvarn_kv_blocks{state="total"} 120.0
"""

ROUTER_PAGE = """
kvarn_router_requests_in_flight 9.0
kvarn_router_requests_held 3.0
# TYPE kvarn_api_ttft_seconds histogram
kvarn_api_ttft_seconds_bucket{le="0.1"} 50.0
kvarn_api_ttft_seconds_bucket{le="0.5"} 89.0
kvarn_api_ttft_seconds_bucket{le="1.0"} 100.0
kvarn_api_ttft_seconds_bucket{le="+Inf"} 100.0
kvarn_api_ttft_seconds_count 100.0
kvarn_api_ttft_seconds_sum 30.0
"""
