"""Where compiled kernels are kept between two starts: `python -m kvarn_engine.runtime.backends.kernel_folder DIR`
fills a folder when an image is built, for the kind of CPU it is built on.

numba uses compiled code only where it can write, too. `NUMBA_CACHE_DIR` may name a read-only folder all the same: what
lies there is copied into the cache once.
"""

import logging
import os
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
    return own


def _is_writable(folder: Path) -> bool:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError:
        return False
    return True


def take_compiled(target: Path) -> None:
    """Copy what lies in `NUMBA_CACHE_DIR`, in whatever folder there, to `target`, where numba looks for it.

    numba names folders after the path of the source, which may differ between the machine that compiled and this one;
    what belongs to another source, interpreter or CPU it passes over. The index goes last, each file by a rename:
    another process may start at the same moment.
    """
    given = os.environ.get("NUMBA_CACHE_DIR")
    if not given or any(target.glob("*.nbi")):
        return
    files = [path for path in Path(given).rglob("*.nb?") if path.is_file() and path.parent != target]
    for path in sorted(files, key=lambda path: path.suffix == ".nbi"):
        with tempfile.NamedTemporaryFile(dir=target, delete=False) as scratch:
            scratch.write(path.read_bytes())
        os.replace(scratch.name, target / path.name)


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
