"""The workers file: its two formats, and a source that keeps the last good set."""

import asyncio
import logging
from contextlib import aclosing
from pathlib import Path

import pytest
from kvarn_engine.process.settings import SettingsError
from kvarn_router.discovery.choice import choose_source
from kvarn_router.discovery.file_format import BadWorkersFile, parse_workers
from kvarn_router.discovery.static_list import StaticList
from kvarn_router.discovery.watched_file import WatchedFile
from kvarn_router.settings import DiscoverySettings, WorkerSettings

from tests.support.routing_stack import eventually


@pytest.mark.parametrize(
    ("text", "toml"),
    [
        ("# ours\na:1\n\n[::1]:2 draining # soon gone\n", False),
        ('workers = ["a:1"]\ndraining = ["[::1]:2"]\n', True),
    ],
)
def test_both_formats_say_the_same(text: str, toml: bool) -> None:
    assert [(each.address, each.draining) for each in parse_workers(text, toml)] == [("a:1", False), ("[::1]:2", True)]


@pytest.mark.parametrize(
    ("text", "toml", "reason"),
    [
        ("a:1\nb", False, "line 2: 'b' is not host:port"),
        ("a:70000", False, "line 1: 'a:70000' is not host:port"),
        ("a:1\na:1", False, "line 2: 'a:1' a second time"),
        ("a:1 stop", False, "line 1: 'stop' after the address"),
        ("# none\n", False, "names no worker"),
        ('workers = [\n"a:1",\n"b"]', True, "line 3: 'b' is not host:port"),
        ("workers = [}", True, "line 1"),
        ('\nworker = ["a:1"]', True, "line 2: unknown key 'worker'"),
        ("draining = []", True, "no key 'workers'"),
        ("workers = [1]", True, "line 1: 'workers' is not a list of strings"),
    ],
)
def test_bad_content_is_named_with_its_line(text: str, toml: bool, reason: str) -> None:
    with pytest.raises(BadWorkersFile, match=".*" + reason.replace("(", "\\(")):
        parse_workers(text, toml)


def test_empty_toml_list_is_an_answer() -> None:
    assert parse_workers("workers = []", toml=True) == ()


async def test_changes_arrive_and_bad_or_missing_files_keep_the_set(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "workers"
    path.write_text("a:1\n")
    seen: list[list[str]] = []

    async def collect() -> None:
        async with aclosing(WatchedFile(path, poll_interval_s=0.005).snapshots()) as snapshots:
            async for endpoints in snapshots:
                seen.append([endpoint.address for endpoint in endpoints])

    def problems() -> list[str]:
        return [record.__dict__["reason"] for record in caplog.records if record.levelno == logging.ERROR]

    task = asyncio.create_task(collect(), name="collect")
    try:
        await eventually(lambda: seen == [["a:1"]], "the first set")
        path.write_text("a:1\nb:2\n")
        await eventually(lambda: seen[-1] == ["a:1", "b:2"], "the added worker")
        path.write_text("a:1\nnonsense\n")
        await eventually(lambda: any("line 2: 'nonsense'" in each for each in problems()), "the reason")
        path.unlink()
        await eventually(lambda: any("No such file" in each for each in problems()), "the missing file")
        assert seen[-1] == ["a:1", "b:2"]
        path.write_text("b:2\n")
        await eventually(lambda: seen[-1] == ["b:2"], "the removal")
    finally:
        task.cancel()
        await asyncio.wait({task})


@pytest.mark.parametrize(
    ("workers", "discovery", "words"),
    [
        (WorkerSettings(), DiscoverySettings(), ["--workers,", "--workers-file", "--workers-selector"]),
        (WorkerSettings(("a:1",)), DiscoverySettings(workers_file="f"), ["--workers and --workers-file exclude"]),
        (
            WorkerSettings(),
            DiscoverySettings(workers_file="f", workers_selector="a=b"),
            ["--workers-file and --workers-selector exclude"],
        ),
    ],
)
def test_none_or_several_sources_are_wrong(
    workers: WorkerSettings, discovery: DiscoverySettings, words: list[str]
) -> None:
    with pytest.raises(SettingsError) as raised:
        choose_source(workers, discovery)
    assert all(word in str(raised.value) for word in words)


def test_one_source_is_chosen() -> None:
    assert isinstance(choose_source(WorkerSettings(("a:1",)), DiscoverySettings()), StaticList)
    assert isinstance(choose_source(WorkerSettings(), DiscoverySettings(workers_file="f")), WatchedFile)
