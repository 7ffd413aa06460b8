"""The metrics endpoint answers over HTTP, probes included, and gives its port back."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import pytest
from kvarn_engine.process.metrics_endpoint import Probes, serve_metrics
from prometheus_client import CollectorRegistry, Counter

from tests.support.stack import free_port


class Answers:
    def __init__(self) -> None:
        self.not_ready = "loading"
        self.not_live = ""

    def ready(self) -> str:
        return self.not_ready

    def live(self) -> str:
        return self.not_live


@contextmanager
def serving(registry: CollectorRegistry, probes: Probes | None = None, host: str = "127.0.0.1") -> Iterator[str]:
    endpoint = serve_metrics(registry, host, free_port(), probes)
    try:
        yield f"http://[{host}]:{endpoint.port}" if ":" in host else f"http://{host}:{endpoint.port}"
    finally:
        endpoint.close()


def test_scrape_and_close() -> None:
    registry = CollectorRegistry()
    Counter("kvarn_things", "Things seen", registry=registry).inc(3)
    with serving(registry) as url:
        answer = httpx.get(f"{url}/metrics")
        assert "kvarn_things_total 3.0" in answer.text
        assert answer.headers["content-type"].startswith("text/plain")
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{url}/metrics")


def test_probes_say_why_not() -> None:
    answers = Answers()
    with serving(CollectorRegistry(), answers) as url:
        ready, live = httpx.get(f"{url}/ready"), httpx.get(f"{url}/live")
        assert (ready.status_code, ready.text) == (503, "loading\n")
        assert (live.status_code, live.text) == (200, "ok\n")
        answers.not_ready, answers.not_live = "", "stalled"
        ready, live = httpx.get(f"{url}/ready"), httpx.get(f"{url}/live")
        assert (ready.status_code, ready.text) == (200, "ok\n")
        assert (live.status_code, live.text) == (503, "stalled\n")


@pytest.mark.parametrize("path", ["/", "/metrics/", "/ready"])
def test_other_paths_are_not_found(path: str) -> None:
    """Without probes there is no `/ready` either: an answer would be a promise."""
    with serving(CollectorRegistry()) as url:
        assert httpx.get(url + path).status_code == 404


def test_a_silent_client_does_not_block_the_next_one() -> None:
    with serving(CollectorRegistry(), Answers()) as url:
        host, port = url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port))):
            assert httpx.get(f"{url}/live").status_code == 200


def test_ipv6() -> None:
    if not socket.has_dualstack_ipv6():
        pytest.skip("this machine has no IPv6")
    with serving(CollectorRegistry(), Answers(), "::1") as url:
        assert httpx.get(f"{url}/live").status_code == 200


def test_port_0_is_off() -> None:
    endpoint = serve_metrics(CollectorRegistry(), "127.0.0.1", 0)
    assert endpoint.port == 0
    endpoint.close()
