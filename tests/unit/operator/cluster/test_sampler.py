"""The sampler against real HTTP servers that stand for workers and routers."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx
import uvicorn
from kvarn_operator.cluster.kinds import MODEL_SERVICE, POD, WORKER_POOL
from kvarn_operator.cluster.mirror import Mirror, ServiceKey, Source
from kvarn_operator.cluster.sampler import Sampler, SampleTimes
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

KEY = ServiceKey("models", "chat")
TIMES = SampleTimes(fast_s=5.0, slow_s=30.0, timeout_s=5.0, longest_rest_s=60.0)


@dataclass
class Pages:
    """What each pod's `/metrics` says; a missing one is 404. Pods are told apart by port-less host names."""

    text: str = ""
    asked: int = 0
    broken: bool = False
    answered: asyncio.Event = field(default_factory=asyncio.Event)

    async def answer(self, request: Request) -> PlainTextResponse:
        self.asked += 1
        return PlainTextResponse("no", 500) if self.broken else PlainTextResponse(self.text)


@asynccontextmanager
async def serving(pages: Pages) -> AsyncIterator[int]:
    app = Starlette(routes=[Route("/metrics", pages.answer)])
    config = uvicorn.Config(app, host="127.0.0.1", port=0, log_config=None, access_log=False, lifespan="off")
    server = uvicorn.Server(config)
    server.install_signal_handlers = lambda: None  # type: ignore[attr-defined]
    task = asyncio.create_task(server.serve(), name="pages")
    try:
        while not server.started:  # uvicorn sets no event
            assert not task.done()
            await asyncio.sleep(0.002)
        yield server.servers[0].sockets[0].getsockname()[1]
    finally:
        server.should_exit = True
        await task


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def pod(name: str, port: int, component: str = "worker", ready: bool = True, version: int = 1) -> dict[str, Any]:
    port_name = "metrics" if component == "worker" else "http"
    labels = {"kvarn.dev/model-service": "chat", "app.kubernetes.io/component": component}
    return {
        "metadata": {
            "namespace": "models", "name": name, "uid": f"uid-{name}", "resourceVersion": str(version),
            "labels": labels, "annotations": {},
        },
        "spec": {"containers": [{"ports": [{"name": port_name, "containerPort": port}]}]},
        "status": {
            "phase": "Running", "podIP": "127.0.0.1",
            "conditions": [{"type": "Ready", "status": "True" if ready else "False"}],
        },
    }  # fmt: skip


@dataclass
class Bench:
    clock: Clock = field(default_factory=Clock)
    pace: Clock = field(default_factory=Clock)
    due: list[ServiceKey] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.mirror = Mirror(self.clock, lambda _key: None)
        self.sampler = Sampler(self.mirror, TIMES, self.due.append, self.clock, self.pace)
        self.set_mode("SLO")

    def set_mode(self, mode: str, version: int = 1) -> None:
        metadata = {"namespace": "models", "name": "chat-decode", "uid": "p", "resourceVersion": str(version)}
        spec = {"modelService": "chat", "scaling": {"mode": mode}}
        self.mirror.put(WORKER_POOL, {"metadata": metadata, "spec": spec}, Source.WATCH)

    async def tick(self, after_s: float = 0.0) -> None:
        self.clock.now += after_s
        self.pace.now += after_s
        async with httpx.AsyncClient(trust_env=False, timeout=5) as client:
            await self.sampler.tick(client)


def worker_page(in_flight: int) -> str:
    return f"kvarn_requests_in_flight {in_flight}\n"


def router_page(total: float) -> str:
    return f"kvarn_router_requests_in_flight 2\nkvarn_router_uncached_tokens_total {total}\n"


async def test_workers_and_routers_become_readings_and_the_model_is_looked_at() -> None:
    bench = Bench()
    worker, router = Pages(worker_page(3)), Pages(router_page(0.0))
    async with serving(worker) as worker_port, serving(router) as router_port:
        bench.mirror.put(POD, pod("w", worker_port), Source.WATCH)
        bench.mirror.put(POD, pod("r", router_port, "router"), Source.WATCH)
        await bench.tick()
        router.text = router_page(500.0)
        await bench.tick(after_s=5.0)
    readings = bench.sampler.readings(KEY)
    assert {name: reading.in_flight for name, reading in readings.workers.items()} == {"w": 3}
    assert readings.demand is not None
    assert (readings.demand.inflight_requests, readings.demand.uncached_tokens_per_s) == (2, 100.0)
    assert bench.due == [KEY, KEY]


async def test_a_pod_that_is_removed_leaves_the_readings_at_once() -> None:
    bench = Bench()
    worker = Pages(worker_page(3))
    async with serving(worker) as port:
        bench.mirror.put(POD, pod("w", port), Source.WATCH)
        await bench.tick()
    bench.mirror.remove("uid-w")
    assert dict(bench.sampler.readings(KEY).workers) == {}


async def test_a_worker_that_stops_answering_has_no_reading_and_is_asked_less_and_less() -> None:
    bench = Bench()
    worker = Pages(worker_page(3))
    async with serving(worker) as port:
        bench.mirror.put(POD, pod("w", port), Source.WATCH)
        await bench.tick()
        worker.broken = True
        asked = []
        for _ in range(12):
            await bench.tick(after_s=5.0)
            asked.append(worker.asked)
        assert dict(bench.sampler.readings(KEY).workers) == {}
        # At once again after the first failure; then after 10, 20 and 40 s.
        assert asked == [2, 3, 3, 4, 4, 4, 4, 5, 5, 5, 5, 5]
        worker.broken = False
        await bench.tick(after_s=40.0)
        await bench.tick(after_s=5.0)
        assert worker.asked == 7
        assert bench.sampler.readings(KEY).workers


async def test_without_the_answer_of_a_router_that_serves_the_demand_is_unknown() -> None:
    bench = Bench()
    good, bad = Pages(router_page(0.0)), Pages(broken=True)
    async with serving(good) as good_port, serving(bad) as bad_port:
        bench.mirror.put(POD, pod("good", good_port, "router"), Source.WATCH)
        bench.mirror.put(POD, pod("bad", bad_port, "router", version=1), Source.WATCH)
        await bench.tick()
        assert bench.sampler.readings(KEY).demand is None
        bench.mirror.put(POD, pod("bad", bad_port, "router", ready=False, version=2), Source.WATCH)
        await bench.tick(after_s=5.0)
        demand = bench.sampler.readings(KEY).demand
        assert demand is not None
        assert demand.inflight_requests == 2


async def test_a_router_that_is_not_ready_counts_when_it_answers() -> None:
    """At zero workers routers are not ready, and hold the requests that have to wake the pool."""
    bench = Bench()
    page = "kvarn_router_requests_in_flight 1\nkvarn_router_requests_held 1\n"
    async with serving(Pages(page)) as port:
        bench.mirror.put(POD, pod("r", port, "router", ready=False), Source.WATCH)
        await bench.tick()
    demand = bench.sampler.readings(KEY).demand
    assert demand is not None
    assert demand.held_requests == 1


async def test_models_that_decide_nothing_by_readings_are_scraped_now_and_then() -> None:
    bench = Bench()
    bench.set_mode("Manual", version=2)
    worker = Pages(worker_page(0))
    async with serving(worker) as port:
        bench.mirror.put(POD, pod("w", port), Source.WATCH)
        for _ in range(13):
            await bench.tick()
            bench.pace.now += 5.0
        assert worker.asked == 3
        assert bench.due == []
        draining = pod("w", port, version=2)
        draining["metadata"]["annotations"] = {"kvarn.dev/draining": "2026-12-01T04:00:00Z"}
        bench.mirror.put(POD, draining, Source.WATCH)
        await bench.tick()
        await bench.tick(after_s=5.0)
        assert worker.asked == 5
        assert bench.due == [KEY, KEY]


async def test_a_clock_that_is_set_back_stops_neither_questions_nor_answers() -> None:
    bench = Bench()
    bench.set_mode("Manual", version=2)
    router = Pages(router_page(0.0))
    async with serving(router) as port:
        bench.mirror.put(POD, pod("r", port, "router"), Source.WATCH)
        await bench.tick()
        bench.clock.now -= 3600.0
        router.text = router_page(90.0)
        await bench.tick(after_s=30.0)
        router.text = router_page(150.0)
        await bench.tick(after_s=30.0)
    assert router.asked == 3
    demand = bench.sampler.readings(KEY).demand
    assert demand is not None
    assert (demand.at, demand.uncached_tokens_per_s) == (bench.clock.now, 2.0)


async def test_the_percentile_is_the_models_own() -> None:
    bench = Bench()
    metadata = {"namespace": "models", "name": "chat", "uid": "s", "resourceVersion": "1"}
    bench.mirror.put(MODEL_SERVICE, {"metadata": metadata, "spec": {"slo": {"percentile": 50}}}, Source.WATCH)
    lines = 'kvarn_router_requests_in_flight 0\nkvarn_api_ttft_seconds_bucket{{le="1"}} {0}\n'
    lines += 'kvarn_api_ttft_seconds_bucket{{le="2"}} {1}\nkvarn_api_ttft_seconds_bucket{{le="+Inf"}} {1}\n'
    router = Pages(lines.format(0, 0))
    async with serving(router) as port:
        bench.mirror.put(POD, pod("r", port, "router"), Source.WATCH)
        await bench.tick()
        router.text = lines.format(50, 100)
        await bench.tick(after_s=5.0)
    demand = bench.sampler.readings(KEY).demand
    assert demand is not None
    assert demand.ttft_s == 1.0
