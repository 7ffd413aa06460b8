"""Where compiled kernels are kept: the folder that is named, a copy of it where it cannot be written, or nowhere."""

from pathlib import Path

import pytest
from kvarn_engine.runtime.backends.kernel_folder import kernel_folder


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


def test_what_an_image_holds_is_copied_once(cache: Path, read_only: Path) -> None:
    assert kernel_folder() == cache / "kernels"
    copied = cache / "kernels" / "sub"
    assert {path.name: path.read_text() for path in copied.iterdir()} == {"kernel.1.nbc": "code", "kernel.nbi": "index"}
    (copied / "kernel.nbi").write_text("newer")
    (read_only / "sub" / "kernel.2.nbc").write_text("more")
    assert kernel_folder() == cache / "kernels"
    assert (copied / "kernel.nbi").read_text() == "newer"
    assert (copied / "kernel.2.nbc").read_text() == "more"


def test_no_folder_to_write_is_no_failure(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache.parent.joinpath("file").write_text("")
    monkeypatch.setenv("KVARN_CACHE", str(cache.parent / "file" / "cache"))
    assert kernel_folder() is None
