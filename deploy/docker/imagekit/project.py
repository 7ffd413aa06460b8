"""The top layer: the project's own packages, with bytecode, and the metadata by which they know their version."""

import py_compile
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path

from .distributions import SITE_PACKAGES
from .layers import LayerWriter, key_of


class Project:
    """The packages that the wheel would hold, all of them in every image: together they are small."""

    def __init__(self, root: Path) -> None:
        self._root = root
        content = tomllib.loads((root / "pyproject.toml").read_text())
        self._name = str(content["project"]["name"])
        self.version = str(content["project"]["version"])
        self._packages = [root / folder for folder in content["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]]

    def key(self) -> str:
        """Of the files' content: where the checkout lies and when it was made does not matter."""
        parts: list[str | bytes] = [Path(__file__).read_bytes(), sys.version, self.version]
        for name, path in self._files():
            parts += [name, path.read_bytes()]
        return key_of(parts)

    def fill(self, writer: LayerWriter) -> None:
        with tempfile.TemporaryDirectory() as scratch:
            for name, path in self._files():
                writer.data(f"{SITE_PACKAGES}/{name}", path.read_bytes())
                if path.suffix == ".py":
                    writer.data(f"{SITE_PACKAGES}/{_cache_name(name)}", _bytecode(path, name, Path(scratch)))
        facts = f"{SITE_PACKAGES}/{self._name}-{self.version}.dist-info"
        metadata = f"Metadata-Version: 2.1\nName: {self._name}\nVersion: {self.version}\n"
        writer.data(f"{facts}/METADATA", metadata.encode())
        writer.data(f"{facts}/INSTALLER", b"build_local\n")

    def _files(self) -> Iterator[tuple[str, Path]]:
        for package in self._packages:
            for path in sorted(package.rglob("*")):
                if path.is_file() and "__pycache__" not in path.parts:
                    yield path.relative_to(package.parent).as_posix(), path


def _cache_name(name: str) -> str:
    folder, _, file = name.rpartition("/")
    return f"{folder}/__pycache__/{file.removesuffix('.py')}.{sys.implementation.cache_tag}.pyc"


def _bytecode(path: Path, name: str, scratch: Path) -> bytes:
    """Never checked against the source, whose time in the image says nothing."""
    target = scratch / "module.pyc"
    mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
    py_compile.compile(str(path), str(target), f"/{SITE_PACKAGES}/{name}", doraise=True, invalidation_mode=mode)
    return target.read_bytes()
