"""Folders in the cache that are filled once, by one process, and then only read.

Used for converted and downloaded models. It does not know what is in a folder. A cache may be shared by processes of
several users, as pods on one volume are: what its group may do with the cache, it may do with all that is added.
"""

import errno
import fcntl
import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from kvarn_engine.model_errors import ModelNotFound

_NO_ROOM = frozenset({errno.EROFS, errno.ENOTDIR, errno.EACCES, errno.EPERM, errno.ENOSPC, errno.EDQUOT})
_IN_THE_WAY = frozenset({errno.ENOTEMPTY, errno.EEXIST})


def cache_root() -> Path:
    """`KVARN_CACHE`, else `~/.cache/kvarn`. Raises ModelNotFound where there is no home folder either."""
    given = os.environ.get("KVARN_CACHE")
    if given:
        return Path(given)
    try:
        return Path.home() / ".cache" / "kvarn"
    except RuntimeError:
        raise ModelNotFound("this user has no home folder: set KVARN_CACHE to a folder that can be written") from None


def fill_once(folder: Path, is_ready: Callable[[], bool], fill: Callable[[Path], None]) -> bool:
    """Let `fill` write into a scratch folder that then becomes `folder`; whether that was needed.

    A second process waits for the first, then finds `folder` ready. What `folder` held before is replaced. Raises
    ModelNotFound when nothing can be written there, and what `fill` raises.
    """
    if is_ready():
        return False
    try:
        with as_open_as(folder.parent):
            folder.parent.mkdir(parents=True, exist_ok=True)
            with _locked(folder.parent / f"{folder.name}.lock"):
                if is_ready():
                    return False
                _fill(folder, fill)
    except OSError as error:
        if error.errno in _IN_THE_WAY:
            raise ModelNotFound(f"{folder} is not whole, and another user's: let its owner remove it") from error
        if error.errno not in _NO_ROOM:
            raise
        raise ModelNotFound(
            f"{error.filename or folder} cannot be written ({error.strerror}): set KVARN_CACHE to a folder with room "
            "that can be, by its group too where several users share it"
        ) from error
    return True


@contextmanager
def as_open_as(folder: Path) -> Iterator[None]:
    """The group may write what is written meanwhile, if it may write `folder` or the nearest parent there is."""
    if not _is_shared(next(path for path in (folder, *folder.absolute().parents) if path.exists())):
        yield
        return
    before = os.umask(0o002)
    try:
        yield
    finally:
        os.umask(before)


def _is_shared(folder: Path) -> bool:
    return bool(folder.stat().st_mode & stat.S_IWGRP)


def _fill(folder: Path, fill: Callable[[Path], None]) -> None:
    prefix = f".{folder.name}-"
    for left_behind in folder.parent.glob(f"{prefix}*"):  # of a process that was killed
        shutil.rmtree(left_behind, ignore_errors=True)
    scratch = Path(tempfile.mkdtemp(prefix=prefix, dir=folder.parent))
    try:
        _open_up(scratch)  # Now, so that another user of the group can remove what a killed process leaves.
        fill(scratch)
        for path in (scratch, *scratch.rglob("*")):
            _open_up(path)
        shutil.rmtree(folder, ignore_errors=True)
        scratch.rename(folder)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _open_up(path: Path) -> None:
    """Libraries write some files for their owner alone; whoever reads or replaces the folder may be another user."""
    mode = stat.S_IMODE(path.stat().st_mode) | (0o755 if path.is_dir() else 0o644)
    path.chmod(mode | stat.S_IWGRP if _is_shared(path.parent) else mode)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """The kernel releases the lock when a process dies, so an interrupted one blocks nobody."""
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
