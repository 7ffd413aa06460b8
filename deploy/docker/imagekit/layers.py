"""Layers of container images as tar files, kept by key so that unchanged content is written once.

A layer's bytes depend on its content alone: every file belongs to root, names are sorted, folders are 0755 and files
0644 or 0755. Knows nothing of what the layers hold.
"""

import hashlib
import io
import json
import os
import tarfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import IO

FOLDER_MODE = 0o755
FILE_MODE = 0o644
PROGRAM_MODE = 0o755


@dataclass(frozen=True, slots=True)
class Layer:
    path: Path
    """An uncompressed tar."""

    digest: str
    """SHA-256 of the tar, in hex."""

    size: int


class LayerWriter:
    """Adds files to one tar, and to a digest of it on the way."""

    def __init__(self, sink: IO[bytes]) -> None:
        self._sink = _DigestSink(sink)
        self._tar = tarfile.TarFile(fileobj=self._sink, mode="w", format=tarfile.PAX_FORMAT)  # type: ignore[arg-type]
        self._folders: set[str] = set()

    def file(self, name: str, source: Path) -> None:
        """Keeps the time of `source` to the second: Python compares it with what its bytecode remembers."""
        status = source.stat()
        member = tarfile.TarInfo(name)
        member.size = status.st_size
        member.mtime = int(status.st_mtime)
        member.mode = PROGRAM_MODE if status.st_mode & 0o100 else FILE_MODE
        self._parents(name)
        with source.open("rb") as content:
            self._tar.addfile(member, content)

    def data(self, name: str, content: bytes) -> None:
        member = tarfile.TarInfo(name)
        member.size = len(content)
        member.mode = FILE_MODE
        self._parents(name)
        self._tar.addfile(member, io.BytesIO(content))

    def link(self, name: str, target: str) -> None:
        member = tarfile.TarInfo(name)
        member.type = tarfile.SYMTYPE
        member.linkname = target
        self._parents(name)
        self._tar.addfile(member)

    def folder(self, name: str, mode: int = FOLDER_MODE) -> None:
        if name in self._folders:
            return
        self._folders.add(name)
        self._parents(name)
        member = tarfile.TarInfo(name)
        member.type = tarfile.DIRTYPE
        member.mode = mode
        self._tar.addfile(member)

    def tree(self, name: str, source: Path) -> None:
        """All regular files below `source`."""
        for path in sorted(path for path in source.rglob("*") if path.is_file()):
            self.file(f"{name}/{path.relative_to(source).as_posix()}".lstrip("/"), path)

    def finish(self) -> tuple[str, int]:
        """Digest and size."""
        self._tar.close()
        return self._sink.digest.hexdigest(), self._sink.size

    def _parents(self, name: str) -> None:
        if parent := os.path.dirname(name):
            self.folder(parent)


class _DigestSink:
    def __init__(self, sink: IO[bytes]) -> None:
        self._sink = sink
        self.digest = hashlib.sha256()
        self.size = 0

    def write(self, data: bytes) -> int:
        self.digest.update(data)
        self.size += len(data)
        return self._sink.write(data)

    def tell(self) -> int:
        """TarFile asks where it starts."""
        return self.size


class LayerCache:
    """A folder of layers. Two builds at once may both write a layer; the rename makes the last one win, whole."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def layer(self, name: str, key: str, fill: Callable[[LayerWriter], None]) -> Layer:
        """The layer of that key, filled now if it is not there. Older layers of the same name are removed."""
        path = self._folder / f"{name}-{key[:20]}.tar"
        facts = path.with_suffix(".json")
        if not (path.exists() and facts.exists()):
            self._write(path, facts, fill)
            for old in self._folder.glob(f"{name}-*"):
                if old.stem != path.stem and not old.suffix.startswith(".partial"):
                    old.unlink(missing_ok=True)
        known = json.loads(facts.read_text())
        return Layer(path, known["digest"], known["size"])

    def _write(self, path: Path, facts: Path, fill: Callable[[LayerWriter], None]) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(f".partial{os.getpid()}")
        try:
            with partial.open("wb") as sink:
                writer = LayerWriter(sink)
                fill(writer)
                digest, size = writer.finish()
            os.replace(partial, path)
            facts.write_text(json.dumps({"digest": digest, "size": size}))
        finally:
            partial.unlink(missing_ok=True)


def key_of(parts: Iterable[str | bytes]) -> str:
    """A digest over all parts and their borders."""
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        digest.update(len(data).to_bytes(8, "big"))
        digest.update(data)
    return digest.hexdigest()
