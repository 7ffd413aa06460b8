"""Cache folders that several users share: what the group may do with the cache, it may do with all that is added."""

import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from kvarn_engine.cache_folder import as_open_as, fill_once

GROUP = 65532


@pytest.fixture(autouse=True)
def usual_umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


def fill(scratch: Path) -> None:
    (scratch / "deep").mkdir()
    (scratch / "deep" / "config.json").write_text("{}")
    (scratch / "private").touch(0o600)


def modes(folder: Path) -> dict[str, int]:
    return {str(path.relative_to(folder)): stat.S_IMODE(path.stat().st_mode) for path in folder.rglob("*")}


@pytest.mark.parametrize(("cache_mode", "folder", "file"), [(0o755, 0o755, 0o644), (0o775, 0o775, 0o664)])
def test_the_group_may_do_with_a_folder_what_it_may_do_with_the_cache(
    tmp_path: Path, cache_mode: int, folder: int, file: int
) -> None:
    tmp_path.chmod(cache_mode)
    assert fill_once(tmp_path / "model", lambda: False, fill)
    assert modes(tmp_path) == {
        "model": folder,
        "model/deep": folder,
        "model/deep/config.json": file,
        "model/private": file,
        "model.lock": file,
    }
    assert os.umask(0o022) == 0o022


def test_the_group_of_a_volume_stays_that_of_its_folders(tmp_path: Path) -> None:
    tmp_path.chmod(0o2775)
    fill_once(tmp_path / "model", lambda: False, fill)
    assert stat.S_IMODE((tmp_path / "model" / "deep").stat().st_mode) == 0o2775


def test_a_cache_that_does_not_exist_yet_is_as_open_as_what_it_will_lie_in(tmp_path: Path) -> None:
    tmp_path.chmod(0o775)
    with as_open_as(tmp_path / "hf" / "hub"):
        (tmp_path / "hf" / "hub").mkdir(parents=True)
    assert set(modes(tmp_path).values()) == {0o775}


FILL = """
import os, sys
from pathlib import Path
from kvarn_engine.cache_folder import fill_once
from kvarn_engine.model_errors import ModelNotFound
folder = Path(sys.argv[1])
try:
    fill_once(folder, lambda: (folder / "whole").exists(), lambda scratch: (scratch / sys.argv[2]).touch())
except ModelNotFound as error:
    sys.exit(str(error))
"""


def fill_as(user: int, folder: Path, name: str) -> "subprocess.CompletedProcess[str]":
    """The user may read every file, so that the interpreter is found wherever it lies."""
    reads_all = ("--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search")
    become = ("setpriv", f"--reuid={user}", f"--regid={user}", f"--groups={GROUP}", *reads_all)
    command = (*become, sys.executable, "-c", FILL, str(folder), name)
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd="/", umask=0o022)


needs_root = pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("setpriv") is None, reason="needs root and setpriv to become another user"
)


@needs_root
def test_two_users_of_one_group_share_a_volume(tmp_path: Path) -> None:
    """As pods with user ids of their own and one `fsGroup`: the second goes on where the first was killed."""
    os.chown(tmp_path, 0, GROUP)
    tmp_path.chmod(0o2775)
    assert fill_as(11111, tmp_path / "model", "broken").returncode == 0
    assert fill_as(22222, tmp_path / "model", "whole").returncode == 0
    assert {path.name for path in (tmp_path / "model").iterdir()} == {"whole"}
    assert (tmp_path / "model").stat().st_uid == 22222


@needs_root
def test_a_folder_that_another_user_left_in_the_way_is_named(tmp_path: Path) -> None:
    tmp_path.chmod(0o2775)
    os.chown(tmp_path, 0, GROUP)
    (tmp_path / "model").mkdir(0o755)
    (tmp_path / "model" / "broken").touch()
    answer = fill_as(22222, tmp_path / "model", "whole")
    assert answer.stderr.strip().startswith(f"{tmp_path}/model is not whole, and another user's")


@needs_root
def test_a_lock_of_another_user_is_named(tmp_path: Path) -> None:
    tmp_path.chmod(0o2775)
    os.chown(tmp_path, 0, GROUP)
    (tmp_path / "model.lock").touch(0o644)
    answer = fill_as(22222, tmp_path / "model", "whole")
    assert answer.stderr.strip().startswith(f"{tmp_path}/model.lock cannot be written (Permission denied)")
    assert "by its group too" in answer.stderr
