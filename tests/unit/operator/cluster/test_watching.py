"""The watch's supervision with threads that only pretend, and the sessions that kopf gets."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import cast

import kopf
import pytest
from kubernetes import client
from kvarn_operator.cluster.handlers import build_settings
from kvarn_operator.cluster.kinds import POD, followed_kinds
from kvarn_operator.cluster.kopf_sessions import KopfSessions, connection
from kvarn_operator.cluster.watch_thread import WatchThread
from kvarn_operator.cluster.watching import Watching, WatchTimes

from tests.support.kubernetes_api import Cluster, configuration_for, served_cluster

TIMES = WatchTimes(deaf_s=60.0, look_s=0.001, backoff_min_s=0.001, backoff_max_s=0.001)


@dataclass
class Pretended:
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    reason: str = "broken"
    started: bool = False
    stopped: bool = False

    def start(self) -> None:
        self.started = True

    async def stop(self) -> None:
        self.stopped = True


class Bench:
    def __init__(self) -> None:
        self.watches: list[Pretended] = []
        self.silence_s = 0.0
        self.now = 0.0
        self.restarts = 0
        self.looks = 0

    def silence(self) -> float:
        self.looks += 1
        return self.silence_s

    async def looked_again(self) -> None:
        """Twice in full: one look may have begun before the last change."""
        wanted = self.looks + 2
        async with asyncio.timeout(10):
            while True:
                if self.looks >= wanted:
                    return
                await asyncio.sleep(0.001)

    def watch_restarted(self) -> None:
        self.restarts += 1

    def open(self) -> WatchThread:
        self.watches.append(Pretended())
        return cast(WatchThread, self.watches[-1])

    async def until(self, count: int) -> None:
        async with asyncio.timeout(10):
            while True:
                if len(self.watches) == count:
                    return
                await asyncio.sleep(0.001)


@asynccontextmanager
async def supervised() -> AsyncIterator[Bench]:
    bench = Bench()
    watching = Watching(bench.open, bench.silence, bench, TIMES, lambda: bench.now)
    task = asyncio.create_task(watching.run(), name="watching")
    try:
        await bench.until(1)
        yield bench
    finally:
        task.cancel()
        await asyncio.wait([task])
        assert bench.watches[-1].stopped


async def test_a_watch_that_ends_is_followed_by_another() -> None:
    async with supervised() as bench:
        assert bench.watches[0].started
        bench.watches[0].ended.set()
        await bench.until(2)
        assert bench.watches[0].stopped
        assert bench.watches[1].started
        assert bench.restarts == 1


async def test_a_deaf_watch_is_stopped_and_replaced_and_the_new_one_gets_its_time() -> None:
    async with supervised() as bench:
        bench.now = 59.0
        bench.silence_s = 500.0
        await bench.looked_again()
        assert len(bench.watches) == 1
        bench.now = 61.0
        await bench.until(2)
        assert bench.watches[0].stopped
        bench.now = 120.0
        await bench.looked_again()
        assert len(bench.watches) == 2


async def test_every_request_carries_the_token_of_the_moment() -> None:
    cluster = Cluster()
    tokens = iter(["first", "second", "third", "fourth"])
    seen: list[str] = []
    async with served_cluster(cluster) as url:
        configuration = configuration_for(url)

        def renew(current: client.Configuration) -> None:
            current.api_key["BearerToken"] = f"Bearer {next(tokens)}"

        configuration.refresh_api_key_hook = renew
        sessions = KopfSessions(lambda: configuration)
        session = (await sessions.open()).aiohttp_session
        for _ in range(2):
            async with session.get(f"{url}/api") as response:
                seen.append(response.request_info.headers["Authorization"])
        await sessions.close()
        assert session.closed
    assert seen == ["Bearer second", "Bearer third"]


async def test_the_same_credentials_again_are_no_answer_to_a_refusal() -> None:
    sessions = KopfSessions(lambda: configuration_for("http://127.0.0.1:1"))
    await sessions.open()
    with pytest.raises(kopf.PermanentError):
        await sessions.open()
    await sessions.close()


def test_certificates_and_basic_credentials_are_handed_on() -> None:
    configuration = configuration_for("https://api.example:6443")
    configuration.username, configuration.password = "user", "word"
    configuration.verify_ssl = False
    info = connection(configuration)
    assert (info.server, info.insecure, info.token) == ("https://api.example:6443", True, None)
    assert info.as_http_headers()["Authorization"].startswith("Basic ")


def test_kopf_writes_nothing_and_needs_no_rights_on_the_cluster() -> None:
    settings = build_settings(followed_kinds("policy/v1"), 10.0)
    assert settings.scanning.disabled
    assert settings.peering.standalone
    assert not settings.posting.enabled
    assert settings.watching.inactivity_timeout == 70.0
    assert settings.queueing.worker_limit is None
    selectors = dict(settings.watching.label_selectors.items())
    assert sorted(selectors.values()) == [
        "app.kubernetes.io/managed-by=kvarn-operator,kvarn.dev/model-service",
        POD.selector,
    ]
