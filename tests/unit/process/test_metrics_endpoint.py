"""The metrics endpoint answers over HTTP and gives its port back."""

import socket

import httpx
import pytest
from kvarn_engine.process.metrics_endpoint import serve_metrics
from prometheus_client import CollectorRegistry, Counter


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_scrape_and_close() -> None:
    registry = CollectorRegistry()
    Counter("kvarn_things", "Things seen", registry=registry).inc(3)
    endpoint = serve_metrics(registry, "127.0.0.1", free_port())
    url = f"http://127.0.0.1:{endpoint.port}/metrics"
    try:
        assert "kvarn_things_total 3.0" in httpx.get(url).text
    finally:
        endpoint.close()
    with pytest.raises(httpx.ConnectError):
        httpx.get(url)


def test_port_0_is_off() -> None:
    endpoint = serve_metrics(CollectorRegistry(), "127.0.0.1", 0)
    assert endpoint.port == 0
    endpoint.close()
