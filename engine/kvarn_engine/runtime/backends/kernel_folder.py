"""Where compiled kernels are kept between two starts: `python -m kvarn_engine.runtime.backends.kernel_folder DIR`
fills a folder when an image is built, for the kind of CPU it is built on.

numba keeps compiled code only where it can write. `NUMBA_CACHE_DIR` may name a read-only folder all the same: what lies
there is copied into the cache once.
"""

import logging
import os
import shutil
import sys
import tempfile
from pathlib import Path

import numpy as np

from kvarn_engine.cache_folder import cache_root
from kvarn_engine.model_errors import ModelNotFound

logger = logging.getLogger("kvarn.runtime")


def kernel_folder() -> Path | None:
    """None when no folder can be written: kernels are then compiled at every start, which takes seconds."""
    given = os.environ.get("NUMBA_CACHE_DIR")
    if given and _is_writable(Path(given)):
        return Path(given)
    try:
        own = cache_root() / "kernels"
    except ModelNotFound:
        return None
    if not _is_writable(own):
        logger.info("compiled kernels are not kept", extra={"folder": str(own)})
        return None
    if given:
        _copy_missing(Path(given), own)
    return own


def _is_writable(folder: Path) -> bool:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError:
        return False
    return True


def _copy_missing(source: Path, target: Path) -> None:
    """Code before the index that names it, each by a rename: another process may start at the same moment."""
    files = [path for path in source.rglob("*") if path.is_file()]
    for path in sorted(files, key=lambda path: path.suffix == ".nbi"):
        copy = target / path.relative_to(source)
        if copy.exists():
            continue
        copy.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=copy.parent, delete=False) as scratch:
            scratch.write(path.read_bytes())
        shutil.move(scratch.name, copy)


def main(folder: Path) -> int:
    from kvarn_engine.runtime.backends.cpu import warm_up
    from kvarn_engine.runtime.backends.cpu_kernel import compiled_decode

    os.environ["NUMBA_CACHE_DIR"] = str(folder.resolve())
    if not _is_writable(folder):
        print(f"kernels: {folder} cannot be written", file=sys.stderr)
        return 1
    kernel = compiled_decode()
    for word, shift in ((np.uint16, 16), (np.uint32, 0)):
        warm_up(kernel, np.empty((1, 1, 2, 1, 1, 2), dtype=word), np.uint32(shift))
    print(f"kernels: done, {folder}")
    return 0


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m kvarn_engine.runtime.backends.kernel_folder DIR")
    sys.exit(main(Path(sys.argv[1])))
