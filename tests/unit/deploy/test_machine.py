"""Where cluster tests cannot run, the reason names what is missing."""

import os
import shutil
from pathlib import Path

import pytest

from tests.cluster.support import machine


@pytest.fixture(autouse=True)
def able(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine where nothing is missing."""
    monkeypatch.setenv("KVARN_BED", str(tmp_path / "not" / "there" / "yet"))
    monkeypatch.setattr(os, "getuid", lambda: 0)
    monkeypatch.setattr(machine.platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(machine, "_os_release", lambda: ["ID=debian", "VERSION_CODENAME=bookworm"])
    monkeypatch.setattr(shutil, "which", lambda tool: f"/usr/bin/{tool}")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(1 << 50, 0, 1 << 50))


def test_no_reason_where_nothing_is_missing() -> None:
    assert machine.why_no_bed() == ""


def test_not_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getuid", lambda: 1000)
    assert machine.why_no_bed() == "the bed of cluster tests needs root"


def test_another_system(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "_os_release", lambda: ["VERSION_CODENAME=trixie"])
    assert "Debian 12 on amd64" in machine.why_no_bed()


def test_a_missing_tool(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda tool: None if tool == "npm" else f"/usr/bin/{tool}")
    assert machine.why_no_bed() == "the bed of cluster tests needs npm"


def test_a_full_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(1 << 40, 0, 9000 << 20))
    assert "needs 10000 MiB of disk" in machine.why_no_bed()
    assert "9000 are free" in machine.why_no_bed()


def test_little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "_available_mib", lambda: 512)
    assert "5000 MiB of memory, 512 are available" in machine.why_no_node()


def test_no_namespaces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "_available_mib", lambda: 64_000)
    failed = machine.subprocess.CompletedProcess([], 1, "", "unshare: Operation not permitted\n")
    monkeypatch.setattr(machine.subprocess, "run", lambda *args, **kwargs: failed)
    assert "(unshare: Operation not permitted)" in machine.why_no_node()
