"""What of installed packages no image needs: tests, headers, sources of compiled modules, second APIs.

`unused.py SITE_PACKAGES` deletes it there, which is how the Dockerfiles use this; build_local.py leaves it out.
Bytecode stays: containers run on a read-only root, so without it every start would compile torch and transformers anew.
"""

import sys
from pathlib import Path

_FOLDERS = frozenset({"tests", "test", "include", "docs"})
"""Below a package's own folder."""

_SUFFIXES = (".a", ".h", ".hpp", ".cuh", ".c", ".cpp", ".cc", ".pyx", ".pxd", ".pyi", ".cmake", ".lib")
_PATHS = (
    "kubernetes/aio/",  # the asyncio twin of the client, as large as the client
    "torch/bin/protoc",
    "torch/bin/test_",
    "torch/share/",
    "torch/utils/benchmark/utils/valgrind_wrapper/",
)


def is_used(name: str) -> bool:
    """Of a file's path inside site-packages."""
    folders = name.split("/")[1:-1]
    unused = _FOLDERS.intersection(folders) or name.endswith(_SUFFIXES) or name.startswith(_PATHS)
    return not unused and ".opt-" not in name


def main() -> None:
    site_packages = Path(sys.argv[1])
    removed = 0
    for path in sorted(site_packages.rglob("*")):
        if path.is_file() and not is_used(path.relative_to(site_packages).as_posix()):
            removed += path.stat().st_size
            path.unlink()
    print(f"removed {removed / 1e6:.1f} MB below {site_packages}")


if __name__ == "__main__":
    main()
