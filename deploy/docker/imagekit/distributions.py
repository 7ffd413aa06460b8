"""The installed packages that one role needs, found by walking the metadata that pip left, and their files.

Reads the extras of this project from its pyproject.toml and everything else from the environment that runs this, so an
image holds exactly the versions that the tests ran with. Needs no network.
"""

import importlib.metadata
import sys
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from . import unused
from .interpreter import VERSION, base_libraries, write_libraries
from .layers import LayerWriter, key_of
from .shared_libraries import needed_by

SITE_PACKAGES = f"opt/kvarn/venv/lib/{VERSION}/site-packages"


class NotInstalled(Exception):
    """A package that the role needs is missing from the environment."""


@dataclass(frozen=True, slots=True)
class Role:
    name: str
    distributions: tuple[importlib.metadata.Distribution, ...]

    def key(self) -> str:
        versions = [f"{each.metadata['Name']}=={each.version}" for each in self.distributions]
        return key_of([_recipe(), sys.version, *sorted(versions)])

    def fill(self, writer: LayerWriter) -> None:
        """A virtual environment at /opt/kvarn/venv, and the libraries of the machine that only its modules need."""
        venv = SITE_PACKAGES.removesuffix(f"/lib/{VERSION}/site-packages")
        writer.data(f"{venv}/pyvenv.cfg", b"home = /usr/local/bin\ninclude-system-site-packages = false\n")
        for name in ("python", "python3"):
            writer.link(f"{venv}/bin/{name}", f"/usr/local/bin/{VERSION}")
        files = dict(self.files())
        for name, path in sorted(files.items()):
            writer.file(f"{SITE_PACKAGES}/{name}", path)
        binaries = [path for path in files.values() if ".so" in path.suffixes]
        roots = {Path(str(each.locate_file(""))) for each in self.distributions}
        extra = needed_by(binaries, roots)
        write_libraries(writer, {name: path for name, path in extra.items() if name not in _in_base()})

    def files(self) -> Iterator[tuple[str, Path]]:
        """Path inside site-packages -> file. Programs outside of it are left out: `python -m` starts all of ours."""
        for distribution in self.distributions:
            for entry in distribution.files or ():
                name = entry.as_posix()
                path = Path(str(distribution.locate_file(entry)))
                if not name.startswith("../") and unused.is_used(name) and path.is_file():
                    yield name, path


def _recipe() -> bytes:
    """What decides the layer besides the packages: this module and the rules that it applies."""
    return b"".join(path.read_bytes() for path in (Path(__file__), Path(unused.__file__)))


def _in_base() -> set[str]:
    return {*base_libraries(), "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"}


def read_role(name: str, pyproject: Path) -> Role:
    project = tomllib.loads(pyproject.read_text())["project"]
    wanted = [*project["dependencies"], *project["optional-dependencies"][name]]
    found = _closure(wanted)
    return Role(name, tuple(found[key] for key in sorted(found)))


def _closure(wanted: list[str]) -> Mapping[str, importlib.metadata.Distribution]:
    found: dict[str, importlib.metadata.Distribution] = {}
    todo = [Requirement(text) for text in wanted]
    seen: set[tuple[str, frozenset[str]]] = set()
    while todo:
        requirement = todo.pop()
        key = (canonicalize_name(requirement.name), frozenset(requirement.extras))
        if key in seen:
            continue
        seen.add(key)
        distribution = found[key[0]] = _installed(requirement)
        todo += [each for text in distribution.requires or () if _applies(each := Requirement(text), requirement)]
    return found


def _installed(requirement: Requirement) -> importlib.metadata.Distribution:
    try:
        distribution = importlib.metadata.distribution(requirement.name)
    except importlib.metadata.PackageNotFoundError:
        raise NotInstalled(f"{requirement} is not installed in {sys.prefix}") from None
    if not requirement.specifier.contains(distribution.version, prereleases=True):
        raise NotInstalled(f"{requirement} is wanted, {distribution.version} is installed in {sys.prefix}")
    return distribution


def _applies(requirement: Requirement, parent: Requirement) -> bool:
    if requirement.marker is None:
        return True
    return any(requirement.marker.evaluate({"extra": extra}) for extra in (parent.extras or {""}))
