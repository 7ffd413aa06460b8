"""Folders in the cache that are filled once, by one process, and then only read.

Used for converted and downloaded models. It does not know what is in a folder.
"""

import errno
import fcntl
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from kvarn_engine.model_errors import ModelNotFound

_NO_ROOM = frozenset({errno.EROFS, errno.ENOTDIR, errno.EACCES, errno.EPERM, errno.ENOSPC, errno.EDQUOT})


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
        folder.parent.mkdir(parents=True, exist_ok=True)
        with _locked(folder.parent / f"{folder.name}.lock"):
            if is_ready():
                return False
            _fill(folder, fill)
    except OSError as error:
        if error.errno not in _NO_ROOM:
            raise
        raise ModelNotFound(
            f"{folder} cannot be written ({error.strerror}): set KVARN_CACHE to a folder with room that can be"
        ) from error
    return True


def _fill(folder: Path, fill: Callable[[Path], None]) -> None:
    prefix = f".{folder.name}-"
    for left_behind in folder.parent.glob(f"{prefix}*"):  # of a process that was killed
        shutil.rmtree(left_behind, ignore_errors=True)
    scratch = Path(tempfile.mkdtemp(prefix=prefix, dir=folder.parent))
    try:
        fill(scratch)
        _let_everyone_read(scratch)
        shutil.rmtree(folder, ignore_errors=True)
        scratch.rename(folder)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _let_everyone_read(folder: Path) -> None:
    """Libraries write some files for their owner alone; whoever reads the folder later may be another user."""
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """The kernel releases the lock when a process dies, so an interrupted one blocks nobody."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
