"""Which shared libraries of the machine a set of binaries needs, by `ldd`."""

import re
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path

_LOADED = re.compile(r"(?:=> )?(/\S+) \(0x[0-9a-f]+\)$")
_BATCH = 200


def needed_by(binaries: Sequence[Path], inside: Iterable[Path] = ()) -> dict[str, Path]:
    """Name as the loader asks for it -> file. What lies in one of the folders `inside` travels with them anyway."""
    own = tuple(f"{folder.resolve()}/" for folder in inside)
    found: dict[str, Path] = {}
    for start in range(0, len(binaries), _BATCH):
        for line in _ldd(binaries[start : start + _BATCH]).splitlines():
            match = _LOADED.search(line)
            if match is None:
                continue
            path = Path(match.group(1))
            if not str(path.resolve()).startswith(own):
                found[path.name] = path
    return found


def loader(binary: Path) -> Path:
    """The program interpreter: the one line that names a path without an arrow."""
    lines = [line.strip() for line in _ldd([binary]).splitlines() if "=>" not in line]
    return next(Path(match.group(1)) for line in lines if (match := re.match(r"(/\S+) \(", line)))


def _ldd(binaries: Sequence[Path]) -> str:
    """A file that is no dynamic binary makes ldd fail for that file alone; what it says of the others counts."""
    return subprocess.run(["ldd", *map(str, binaries)], capture_output=True, text=True, check=False).stdout
