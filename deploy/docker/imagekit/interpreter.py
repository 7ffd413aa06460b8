"""The bottom layer: the Python that runs this, moved to /usr/local, and the few files that a process expects.

There is no shell and no package manager in it. The libraries lie where the machine's loader looks without a cache:
beside its libc.
"""

import functools
import os
import sys
import sysconfig
from pathlib import Path

from .layers import LayerWriter, key_of
from .roles import USER
from .shared_libraries import loader, needed_by

VERSION = f"python{sys.version_info.major}.{sys.version_info.minor}"

# Of the standard library: what only builds, teaches, draws windows or tests Python itself.
_UNUSED_FOLDERS = frozenset({
    "test", "tests", "idlelib", "idle_test", "tkinter", "turtledemo", "ensurepip", "lib2to3", "pydoc_data",
    "site-packages", "dist-packages",
})  # fmt: skip
_UNUSED_MODULES = ("_tkinter", "_test", "_ctypes_test", "_xx", "xx")

_ACCOUNTS = f"root:x:0:0:root:/root:/sbin/nologin\nkvarn:x:{USER}:{USER}:kvarn:/tmp:/sbin/nologin\n"
_GROUPS = f"root:x:0:\nkvarn:x:{USER}:\n"
_CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
_ZONES = Path("/usr/share/zoneinfo")


def base_key() -> str:
    """Of this module, the interpreter's release and place, and the machine's libc and certificates."""
    libc = os.confstr("CS_GNU_LIBC_VERSION") or ""
    return key_of([Path(__file__).read_bytes(), sys.version, str(_stdlib()), libc, _CERTIFICATES.read_bytes()])


def fill_base(writer: LayerWriter) -> None:
    _fill_system(writer)
    writer.file(f"usr/local/bin/{VERSION}", _executable())
    writer.link("usr/local/bin/python3", VERSION)
    writer.link("usr/local/bin/python", VERSION)
    for path in _stdlib_files():
        writer.file(f"usr/local/lib/{VERSION}/{path.relative_to(_stdlib()).as_posix()}", path)
    write_libraries(writer, base_libraries())
    _fill_zones(writer)


def write_libraries(writer: LayerWriter, libraries: dict[str, Path]) -> None:
    for name, path in sorted(libraries.items()):
        writer.file(f"{library_folder()}/{name}", path.resolve())


@functools.cache
def base_libraries() -> dict[str, Path]:
    modules = [path for path in _stdlib_files() if path.suffix == ".so"]
    found = needed_by([_executable(), *modules], [_stdlib()])
    found.pop(loader(_executable()).name, None)
    return found


def library_folder() -> str:
    """Where the machine's libc lies, links resolved, without the leading slash."""
    libc = next(path for name, path in base_libraries().items() if name.startswith("libc.so"))
    return str(libc.resolve().parent).lstrip("/")


def _fill_system(writer: LayerWriter) -> None:
    # Merged /usr, as on the machine itself: a link where it has one.
    for name in ("bin", "lib", "lib64", "sbin"):
        if (place := Path("/", name)).is_symlink():
            writer.link(name, os.readlink(place).lstrip("/"))
            writer.folder(os.readlink(place).lstrip("/"))
    dynamic_loader = loader(_executable())
    writer.file(str(dynamic_loader.parent.resolve() / dynamic_loader.name).lstrip("/"), dynamic_loader.resolve())
    writer.data("etc/passwd", _ACCOUNTS.encode())
    writer.data("etc/group", _GROUPS.encode())
    writer.data("etc/nsswitch.conf", b"hosts: files dns\n")
    writer.file(str(_CERTIFICATES).lstrip("/"), _CERTIFICATES.resolve())
    writer.folder("tmp", 0o1777)


def _fill_zones(writer: LayerWriter) -> None:
    """The time zones proper; `posix` and `right` repeat them."""
    for path in sorted(_ZONES.rglob("*")) if _ZONES.is_dir() else ():
        if path.is_file() and path.relative_to(_ZONES).parts[0] not in ("posix", "right"):
            writer.file(str(path).lstrip("/"), path)


def _executable() -> Path:
    """The binary itself: in a virtual environment `sys.executable` is a link to it."""
    return Path(sys.executable).resolve()


def _stdlib() -> Path:
    return Path(sysconfig.get_path("stdlib")).resolve()


@functools.cache
def _stdlib_files() -> tuple[Path, ...]:
    """Sorted. Folders that are not wanted are not even listed: site-packages lies below this one."""
    found: list[Path] = []
    for folder, names, files in os.walk(_stdlib()):
        names[:] = [name for name in names if name not in _UNUSED_FOLDERS and not name.startswith("config-")]
        found += [Path(folder, name) for name in files if _is_used(Path(folder).name, name)]
    return tuple(sorted(found))


def _is_used(folder: str, name: str) -> bool:
    if ".opt-" in name:  # bytecode for python -O
        return False
    return not (folder == "lib-dynload" and name.startswith(_UNUSED_MODULES))
