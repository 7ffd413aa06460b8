"""Where compiled kernels are kept: the folder that is named, a copy of it where it cannot be written, or nowhere."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from kvarn_engine.runtime.backends.kernel_folder import kernel_folder, take_compiled

READ = """
from kvarn_engine.runtime.backends.cpu import warm_up
from kvarn_engine.runtime.backends.cpu_kernel import compiled_decode
kernel = compiled_decode()
warm_up(kernel, np.empty((1, 1, 2, 1, 1, 2), dtype=np.uint32), np.uint32(0))
print(sum(kernel.stats.cache_hits.values()), sum(kernel.stats.cache_misses.values()))
"""


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("KVARN_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    return tmp_path / "cache"


@pytest.fixture
def read_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Tests may run as root, who can write into any folder: this one is taken for one that cannot be written."""
    folder = tmp_path / "image" / "kernels"
    (folder / "sub").mkdir(parents=True)
    (folder / "sub" / "kernel.1.nbc").write_text("code")
    (folder / "sub" / "kernel.nbi").write_text("index")
    monkeypatch.setattr("kvarn_engine.runtime.backends.kernel_folder._is_writable", lambda path: path != folder)
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(folder))
    return folder


def test_the_cache_is_the_default(cache: Path) -> None:
    assert kernel_folder() == cache / "kernels"
    assert (cache / "kernels").is_dir()


def test_a_folder_that_is_named_and_can_be_written_is_used(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(cache.parent / "named"))
    assert kernel_folder() == cache.parent / "named"


def test_an_image_s_folder_that_cannot_be_written_is_not_used_itself(cache: Path, read_only: Path) -> None:
    assert read_only.is_dir()
    assert kernel_folder() == cache / "kernels"


def test_what_an_image_holds_is_copied_once(tmp_path: Path, read_only: Path) -> None:
    target = tmp_path / "here"
    target.mkdir()
    take_compiled(target)
    assert {path.name: path.read_text() for path in target.iterdir()} == {"kernel.1.nbc": "code", "kernel.nbi": "index"}
    (target / "kernel.nbi").write_text("newer")
    take_compiled(target)
    assert (target / "kernel.nbi").read_text() == "newer"


def test_compiled_ahead_elsewhere_is_not_compiled_again(tmp_path: Path) -> None:
    """In processes of their own, as numba reads its settings at import."""
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "image"), "KVARN_CACHE": str(tmp_path / "cache")}
    subprocess.run([sys.executable, "-m", kernel_folder.__module__, str(tmp_path / "image")], check=True)
    [first] = (tmp_path / "image").iterdir()
    first.rename(tmp_path / "image" / "backends_of_another_path")
    script = (
        "import numpy as np, kvarn_engine.runtime.backends.kernel_folder as folder\n"
        f"image = folder.Path({str(tmp_path / 'image')!r})\n"
        "folder._is_writable = lambda path: path != image\n"
        f"{READ}"
    )
    done = subprocess.run([sys.executable, "-c", script], check=True, env=environment, capture_output=True, text=True)
    assert done.stdout.split() == ["1", "0"]


def test_no_folder_to_write_is_no_failure(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache.parent.joinpath("file").write_text("")
    monkeypatch.setenv("KVARN_CACHE", str(cache.parent / "file" / "cache"))
    assert kernel_folder() is None
