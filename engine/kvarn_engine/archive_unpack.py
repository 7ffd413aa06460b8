"""Unpacks the model files of a tar or zip archive into a folder, trusting nothing in it. Called by `model_archive`."""

import gzip
import lzma
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO

from kvarn_engine.model_files import matches

ARCHIVE_SUFFIXES = (".tar", ".tar.gz", ".tgz", ".zip")
MAX_MEMBERS = 10_000
MAX_GROWTH = 20
"""Weights hardly shrink and JSON shrinks tenfold: what grows by more than this is no model."""

_PIECE_BYTES = 1 << 20
_BROKEN = (
    tarfile.TarError, zipfile.BadZipFile, zlib.error, lzma.LZMAError, gzip.BadGzipFile,
    EOFError, RuntimeError, ValueError,
)  # fmt: skip
"""What the readers raise for bad data; RuntimeError for a zip that wants a password or an unknown method, ValueError
for a name that no file can have."""


class UnsafeArchive(Exception):
    """An archive that is broken, or that holds what no model holds."""


@dataclass(frozen=True, slots=True)
class Member:
    name: str
    is_plain_file: bool
    is_folder: bool
    open: Callable[[], IO[bytes] | None]


def is_archive_name(path: str) -> bool:
    return path.endswith(ARCHIVE_SUFFIXES)


def unpack(archive: Path, folder: Path, patterns: tuple[str, ...]) -> None:
    """Write the files whose names match. Raises UnsafeArchive; `folder` may then hold some of them."""
    limit = archive.stat().st_size * MAX_GROWTH
    try:
        members = _zip_members(archive) if archive.name.endswith(".zip") else _tar_members(archive)
        for number, member in enumerate(members, start=1):
            if number > MAX_MEMBERS:
                raise UnsafeArchive(f"it holds more than {MAX_MEMBERS} files")
            limit -= _write(member, folder, patterns, limit)
    except (FileExistsError, NotADirectoryError, IsADirectoryError) as error:
        raise UnsafeArchive(f"it holds one name twice ({error})") from error
    except _BROKEN as error:
        raise UnsafeArchive(f"it cannot be unpacked ({error})") from error


def _write(member: Member, folder: Path, patterns: tuple[str, ...], limit: int) -> int:
    """How many bytes were written."""
    path = PurePosixPath(member.name)
    if path.is_absolute() or ".." in path.parts:
        raise UnsafeArchive(f"it holds {member.name!r}, which points outside of it")
    if member.is_folder or not matches(path.name, patterns):
        return 0
    if not member.is_plain_file:
        raise UnsafeArchive(f"it holds {member.name!r}, which is no plain file: pack the files that links point to")
    source = member.open()
    assert source is not None
    target = folder / path
    target.parent.mkdir(parents=True, exist_ok=True)
    written = 0
    with source, target.open("xb") as file:
        while piece := source.read(_PIECE_BYTES):
            written += len(piece)
            if written > limit:
                raise UnsafeArchive(f"it grows to more than {MAX_GROWTH} times its size")
            file.write(piece)
    return written


def _tar_members(archive: Path) -> Iterator[Member]:
    with tarfile.open(archive) as tar:
        for entry in tar:
            yield Member(entry.name, entry.isreg(), entry.isdir(), lambda entry=entry: tar.extractfile(entry))  # type: ignore[misc]


def _zip_members(archive: Path) -> Iterator[Member]:
    with zipfile.ZipFile(archive) as packed:
        for entry in packed.infolist():
            is_link = (entry.external_attr >> 16) & 0o170000 == 0o120000
            is_plain = not entry.is_dir() and not is_link
            yield Member(entry.filename, is_plain, entry.is_dir(), lambda entry=entry: packed.open(entry))  # type: ignore[misc]
