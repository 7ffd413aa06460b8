"""Unpacks the model files of a tar or zip archive into a folder, trusting nothing in it. Called by `model_archive`."""

import gzip
import io
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
_MAX_HEADER_BYTES = 4 << 20
"""A long name of a tar, or the list of all files of a zip."""

_BROKEN = (
    tarfile.TarError, zipfile.BadZipFile, zlib.error, gzip.BadGzipFile, EOFError, RuntimeError, ValueError,
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
    end = archive.stat().st_size * MAX_GROWTH + _PIECE_BYTES  # A small tar is padded.
    with archive.open("rb") as packed:
        is_zipped = packed.read(2) == b"\x1f\x8b"
        packed.seek(0)
        with gzip.open(packed) if is_zipped else packed as plain, tarfile.open(fileobj=_Guarded(plain, end)) as tar:
            for entry in tar:
                yield Member(entry.name, entry.isreg(), entry.isdir(), lambda entry=entry: tar.extractfile(entry))  # type: ignore[misc]


def _zip_members(archive: Path) -> Iterator[Member]:
    with archive.open("rb") as plain, zipfile.ZipFile(_Guarded(plain, archive.stat().st_size)) as packed:
        for entry in packed.infolist():
            # The other methods unpack into memory whatever a piece of the archive grows to.
            if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                raise UnsafeArchive(f"{entry.filename!r} is compressed by a method other than deflate")
            is_link = (entry.external_attr >> 16) & 0o170000 == 0o120000
            is_plain = not entry.is_dir() and not is_link
            yield Member(entry.filename, is_plain, entry.is_dir(), lambda entry=entry: packed.open(entry))  # type: ignore[misc]


class _Guarded(io.BufferedIOBase):
    """The archive as its reader sees it, which takes headers into memory whole, as long as they claim to be, and passes
    over what is between them."""

    def __init__(self, file: IO[bytes] | gzip.GzipFile, end: int) -> None:
        self._file = file
        self._end = end

    def seekable(self) -> bool:
        return True

    def read(self, size: int | None = -1) -> bytes:
        most = _MAX_HEADER_BYTES + 1
        data = self._file.read(most if size is None or size < 0 else min(size, most))
        if len(data) == most:
            raise UnsafeArchive(f"a header in it has more than {_MAX_HEADER_BYTES} bytes")
        self._check(self._file.tell())
        return data

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        if whence == io.SEEK_SET:
            self._check(offset)
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        return self._file.tell()

    def _check(self, position: int) -> None:
        if position > self._end:
            raise UnsafeArchive(f"it grows to more than {MAX_GROWTH} times its size")
